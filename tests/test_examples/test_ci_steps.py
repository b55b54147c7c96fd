"""The composite action and the GitLab template, run as their CI systems do, with an emulated API for comments.

Each script is executed by its shell, in order, with the variables and files of the system. Expressions are replaced as
far as the two files use them; any other one fails the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from peers.registry import PEERS
from specbench_testing.command_line import specbench_here
from specbench_testing.http_server import Reply, Request, http_server
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "examples/github/action.yml"
TEMPLATE = ROOT / "examples/gitlab/specbench.gitlab-ci.yml"
_EXPRESSION = re.compile(r"\$\{\{ ([\w.-]+) \}\}")
_CONDITION = re.compile(r"([\w.-]+) (==|!=) '([^']*)'")
_INPUT = re.compile(r"\$\[\[ inputs\.([\w-]+) \]\]")
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""GitHub's `shell: bash`. GitLab sets the same options."""
TOKEN = "a-token"
PULL_REQUEST = 7
"""Number of the pull request and of the merge request."""
OURS = {"user": {"type": "Bot"}, "author": {"id": 1}}
THEIRS = {"user": {"type": "User"}, "author": {"id": 2}}
"""Authors of comments, in the fields of both systems."""


@dataclass
class CommentApi:
    """The comments of one pull request and the answers of both systems' APIs. `refuses`: every change gets a 403."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = False
    changes: list[str] = field(default_factory=list)
    """Methods of the requests that changed something."""

    def answer(self, method: str, path: str, body: str) -> tuple[int, Any]:
        """Return status and document of a request."""
        parts, last = urlsplit(path), urlsplit(path).path.rpartition("/")[2]
        if method == "GET" and last == "user":
            return 200, OURS["author"]
        if method == "GET":
            query = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
            first = (query["page"] - 1) * query["per_page"]
            return 200, self.comments[first : first + query["per_page"]]
        if self.refuses:
            return 403, {"message": "Resource not accessible by integration"}
        self.changes.append(method)
        if method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), "body": body, **OURS})
            return 201, self.comments[-1]
        (found,) = [each for each in self.comments if str(each["id"]) == last]
        found["body"] = body
        return 200, found

    def reply(self, request: Request) -> Reply:
        """Answer a request over HTTP; one without the token is refused."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers["private-token"]
        text = json.loads(request.body)["body"] if request.body else ""
        status, document = self.answer(request.method, request.target, text) if given == TOKEN else (401, {})
        return status, {}, json.dumps(document).encode()


@dataclass(frozen=True)
class JobResult:
    """How a job ended. `outputs`: speedup, trustworthy; `shown`: its log, and GitHub's job summary."""

    code: int
    outputs: Mapping[str, str]
    shown: str
    files: Path
    """The folder of report.html and comment.md, each with the system's own prefix."""


class CiSystem(Protocol):
    """Runs the benchmark job in a folder, with inputs."""

    def run(self, folder: Path, api_url: str, inputs: Mapping[str, str], token: str = "") -> JobResult: ...


def _filled(text: str, contexts: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: contexts[found[1]], text)


def _variables(folder: Path) -> dict[str, str]:
    """Return the variables of every process: specbench is found in folder/bin, else as in this test."""
    passed = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_")
    here = {name: value for name, value in os.environ.items() if name.startswith(passed)}
    return {**here, "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)}


def _executed(
    shell: tuple[str, ...], script: Path, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, str(script)], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=800, check=False,
    )  # fmt: skip


class GitHub:
    """GitHub's runner, as far as the action needs it. The specbench of this environment is used, unless installed."""

    def run(self, folder: Path, api_url: str, inputs: Mapping[str, str], token: str = "") -> JobResult:
        """Run every step whose condition holds, until one fails."""
        action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
        temp = folder / "temp"
        temp.mkdir(exist_ok=True)
        given = {"install": "false", "token": token, "pull-request": str(PULL_REQUEST), **inputs}
        assert set(given) <= set(action["inputs"])
        contexts = {f"inputs.{name}": given.get(name, row.get("default")) for name, row in action["inputs"].items()}
        tag = temp / "v9.8.7"  # GitHub's runner has the action in a folder OWNER/NAME/REF
        if not tag.exists():
            tag.symlink_to(ROOT)
        contexts |= {"github.action_path": str(tag / "examples/github"), "github.run_id": "1"}
        contexts |= {"github.server_url": "https://forge", "github.repository": "o/r"}
        env = {**_variables(folder), "RUNNER_TEMP": str(temp), "GITHUB_API_URL": api_url, "GITHUB_REPOSITORY": "o/r"}
        env |= {"GITHUB_WORKFLOW": "bench", "GITHUB_JOB": "gate"}
        files = {name: temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
        summary, shown, code = "", "", 0
        for number, step in enumerate(action["runs"]["steps"]):
            if code or not self._holds(step.get("if", ""), contexts):
                continue
            for file in files.values():
                file.write_text("")
            script = temp / f"step-{number}"
            script.write_text(step["run"])
            shell = BASH if step["shell"] == "bash" else (step["shell"].removesuffix(" {0}"),)
            own = {name: _filled(text, contexts) for name, text in step.get("env", {}).items()}
            done = _executed(shell, script, folder, {**env, **own, **{name: str(file) for name, file in files.items()}})
            code, shown = done.returncode, f"{shown}{done.stdout}"
            summary += files["GITHUB_STEP_SUMMARY"].read_text()
            rows = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
            contexts |= {f"steps.{step['id']}.outputs.{name}": value for name, value in rows.items()} if rows else {}
            env["PATH"] = ":".join([*files["GITHUB_PATH"].read_text().split(), env["PATH"]])
        values = {name: row["value"] for name, row in action["outputs"].items()}
        outputs = {name: _filled(text, {text[4:-3]: "", **contexts}) for name, text in values.items()}
        return JobResult(code, outputs, shown + summary, temp)

    @staticmethod
    def _holds(condition: str, contexts: Mapping[str, str]) -> bool:
        parts = condition.split(" && ") if condition else []
        terms = [_CONDITION.fullmatch(part) for part in parts]
        assert all(terms), condition
        return all((contexts[term[1]] == term[3]) == (term[2] == "==") for term in terms if term)


class GitLab:
    """GitLab's runner, as far as the template needs it."""

    def run(self, folder: Path, api_url: str, inputs: Mapping[str, str], token: str = "") -> JobResult:
        """Run the script of the job."""
        header, jobs = yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))
        rows, job = header["spec"]["inputs"], jobs["specbench"]
        given = {"image": "none", **inputs}
        assert set(given) <= set(rows)
        allowed = [given[name] in row["options"] for name, row in rows.items() if name in given and "options" in row]
        if not all(allowed):
            return JobResult(2, {}, "", folder)  # GitLab rejects the configuration
        own = {
            name: _INPUT.sub(lambda found: given.get(found[1], rows[found[1]].get("default")), text)
            for name, text in job["variables"].items()
        }
        env = {**_variables(folder), "CI_API_V4_URL": api_url, "CI_PROJECT_ID": "1", "CI_JOB_NAME": "specbench"}
        env |= {"CI_MERGE_REQUEST_IID": str(PULL_REQUEST), "CI_JOB_URL": "https://forge/1", "SPECBENCH_TOKEN": token}
        script = folder / "script"
        script.write_text("\n".join(job["script"]))
        done = _executed(BASH, script, folder, {**env, **own})
        (dotenv,) = {job["artifacts"]["reports"]["dotenv"]}
        lines = (folder / dotenv).read_text().splitlines() if (folder / dotenv).exists() else []
        outputs = {
            name.removeprefix("SPECBENCH_").lower(): value for name, _, value in (line.partition("=") for line in lines)
        }
        return JobResult(done.returncode, outputs, done.stdout, folder / "specbench-report")


STEPS: list[dict[str, Any]] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"]
JOB: dict[str, Any] = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))[1]["specbench"]

WORLD = SyntheticRun(prompts=14, categories=("code",), repeats=3, run_noise=0.003, alpha_spread=0.05, drafts=1)

SYSTEMS = pytest.mark.parametrize("ci", [GitHub(), GitLab()], ids=lambda each: type(each).__name__)


STUB = """#!/usr/bin/env -S python3 -IS
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
with open(here / "calls", "a") as calls:
    calls.write(" ".join(words) + "\\n")
code = json.loads((here / "codes.json").read_text()).get(words[0], 0)
for option in {"--to", "--markdown"} & set(words):
    pathlib.Path(words[words.index(option) + 1]).write_text(f"{words[0]} exits with {code}")
if "json" in words:
    print((here / "summary.json").read_text())
sys.exit(code)
"""
"""Replaces specbench: each command exits with its code and is logged."""
GATED = {"baseline": "main"}


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    """The summary of a trustworthy run with a faster drafter."""
    document: dict[str, Any] = json.loads(run_of_world(WORLD).to_json())
    return document


def stub(folder: Path, summary: Mapping[str, Any], codes: Mapping[str, int]) -> Path:
    """Put the stub into the folder; returns the file in which it logs its calls."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/summary.json").write_text(json.dumps(summary))
    (folder / "bin/codes.json").write_text(json.dumps(codes))
    (folder / "bin/specbench").write_text(STUB)
    (folder / "bin/specbench").chmod(0o755)
    return folder / "bin/calls"


@pytest.fixture
def api() -> CommentApi:
    return CommentApi()


@pytest.fixture
def api_url(api: CommentApi) -> Iterator[str]:
    with http_server(api.reply) as port:
        yield f"http://127.0.0.1:{port}"


# The scripts, executed.


FORWARDED = """#!{python} -IS
import json, os, sys, urllib.request
if sys.argv[1] == "simulate":
    os.execv("{specbench}", sys.argv)
given = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
with urllib.request.urlopen("http://127.0.0.1:{port}", given) as answer:
    code, out, err = json.load(answer)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
"""Replaces specbench, but for engines: the test's process runs the command line, which then needs no imports."""


@pytest.fixture
def _specbench_here(tmp_path: Path) -> Iterator[None]:
    def run(request: Request) -> Reply:
        arguments, cwd, environment = json.loads(request.body)
        done = specbench_here(*arguments, cwd=Path(cwd), **environment)
        return 200, {}, json.dumps([done.returncode, done.stdout, done.stderr]).encode()

    (tmp_path / "bin").mkdir()
    with http_server(run) as port:
        real = Path(sys.executable).with_name("specbench")
        (tmp_path / "bin/specbench").write_text(FORWARDED.format(python=sys.executable, specbench=real, port=port))
        (tmp_path / "bin/specbench").chmod(0o755)
        yield


@pytest.mark.process
@SYSTEMS
@pytest.mark.usefixtures("_specbench_here")
def test_a_file_is_planned_measured_and_reported(ci: CiSystem, tmp_path: Path, api_url: str) -> None:
    file = write_run(tmp_path, simulated_run(placement={"gpus": 1}))
    odd = file.rename(tmp_path / "a $(touch injected); 'run'.yaml")
    durations = "launchSeconds=60,pointSeconds=10"
    done = ci.run(tmp_path, api_url, {"file": odd.name, "max-gpu-hours": "1", "assume": durations, "fail-on": "never"})
    assert done.code == 0, done.shown
    assert "2 points from --assume pointSeconds" in done.shown
    assert done.outputs["trustworthy"] in ("true", "false")
    assert [file.read_text()[:15].lower() for file in done.files.glob("*report.html")] == ["<!doctype html>"]
    assert not list(tmp_path.rglob("injected"))


@pytest.mark.process
@SYSTEMS
@pytest.mark.parametrize(
    ("inputs", "codes", "trustworthy", "code", "called"),
    [
        ({"file": "run.yaml", "max-gpu-hours": "0.01"}, {"plan": 2}, True, 2, ["plan"]),
        ({"file": "run.yaml", "fail-on": "never"}, {"run": 4}, True, 4, ["plan", "run"]),
        ({"fail-on": "never"}, {"report": 2}, True, 2, ["report"]),
        ({"fail-on": "maybe"}, {}, True, 2, []),
        (
            {"file": "run.yaml", "fail-on": "regression"}, {"run": 3}, False, 0,
            ["plan", "run", "report", "report", "report"],
        ),
        ({}, {}, False, 3, ["report", "report", "report"]),
        (GATED, {}, True, 0, ["report", "report", "gate"]),
        (GATED, {"gate": 3}, True, 3, ["report", "report", "gate"]),
        ({**GATED, "fail-on": "never"}, {"gate": 3}, True, 0, ["report", "report", "gate"]),
        ({**GATED, "fail-on": "never"}, {"gate": 2}, True, 2, ["report", "report", "gate"]),
    ],
    ids=str,
)  # fmt: skip
def test_the_answer_follows_from_the_exit_codes(
    ci: CiSystem, *, inputs: dict[str, str], codes: dict[str, int], trustworthy: bool, code: int, called: list[str],
    summary: dict[str, Any], tmp_path: Path, api_url: str,
) -> None:  # fmt: skip
    calls = stub(tmp_path, {**summary, "trustworthy": trustworthy}, codes)
    done = ci.run(tmp_path, api_url, inputs)
    assert done.code == code, done.shown
    assert [line.split()[0] for line in (calls.read_text() if called else "").splitlines()] == called
    if called[1:2] == ["report"]:
        assert (float(done.outputs["speedup"]) > 1, done.outputs["trustworthy"]) == (True, str(trustworthy).lower())
        assert done.outputs.get("passed", "") in ("", str(code == 0 and not codes.get("gate")).lower())


@pytest.mark.process
@SYSTEMS
def test_the_gate_gets_tolerances_and_what_fail_on_allows(
    ci: CiSystem, summary: dict[str, Any], tmp_path: Path, api_url: str
) -> None:
    calls = stub(tmp_path, summary, {})
    ci.run(tmp_path, api_url, {**GATED, "tolerance": "speedup=60%\n  tpot=99%", "fail-on": "regression"})
    gate = calls.read_text().splitlines()[-1]
    assert gate.startswith("gate --latest --baseline main --tolerance speedup=60% --tolerance tpot=99% ")
    assert " --inconclusive Pass --allow-untrustworthy " in gate


@pytest.mark.process
@SYSTEMS
def test_the_comment_is_replaced_and_comments_of_others_are_not(
    ci: CiSystem, summary: dict[str, Any], tmp_path: Path, api: CommentApi, api_url: str
) -> None:
    inputs = {**GATED, "fail-on": "never"}
    stub(tmp_path, summary, {"gate": 3})
    assert ci.run(tmp_path, api_url, inputs, TOKEN).code == 0
    (first,) = api.comments
    assert first["body"].startswith("<!-- specbench ")
    assert "gate exits with 3" in first["body"]
    copied = {"id": 1, "body": first["body"], **THEIRS}
    api.comments[:0] = [copied, *({"id": 10 + n, "body": "another", **OURS} for n in range(150))]
    stub(tmp_path, summary, {})
    assert ci.run(tmp_path, api_url, inputs, TOKEN).code == 0
    assert (api.changes[0], len(api.changes), len(api.comments)) == ("POST", 2, 152)
    assert "gate exits with 0" in api.comments[-1]["body"]
    assert "gate exits with 3" in copied["body"]


@pytest.mark.process
@SYSTEMS
def test_a_comment_that_is_refused_does_not_change_the_answer(
    ci: CiSystem, summary: dict[str, Any], tmp_path: Path, api: CommentApi, api_url: str
) -> None:
    api.refuses = True
    stub(tmp_path, summary, {})
    done = ci.run(tmp_path, api_url, GATED, TOKEN)
    assert done.code == 0
    assert "no comment" in done.shown
    assert "HTTP Error 403" in done.shown


@pytest.mark.long  # it needs the package index, and minutes
@pytest.mark.timeout(900)
def test_the_action_installs_its_own_version_with_pinned_dependencies(tmp_path: Path, api_url: str) -> None:
    done = GitHub().run(tmp_path, api_url, {"install": "true", "results": "none"})
    assert "none: no such file or folder" in done.shown
    command = done.files / "specbench/command/specbench"
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, env={})
    assert version.stdout.split()[-1] == "9.8.7"  # the tag by which the workflow names the action
    assert [each.name for each in command.parent.iterdir()] == ["specbench"]


# The files, linted.


def tool(name: str) -> str:
    """Return the path of a tool of the extra `dev`."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"{name} is missing: run `make install`"
    return found


def accepted(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
def test_the_action_is_valid_for_githubs_schema() -> None:
    accepted([tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", ACTION])


@pytest.mark.process
def test_the_template_is_valid_for_gitlabs_schema(tmp_path: Path) -> None:
    """The tool reads files with one document, so header and jobs are checked one after the other."""
    for number, document in enumerate(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))):
        part = tmp_path / f"{number}.yml"
        part.write_text(yaml.safe_dump(document))
        accepted([tool("check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci", part])


SCRIPTS = {
    **{step["name"]: step["run"] for step in STEPS if step["shell"] == "bash"},
    "GitLab": "\n".join(JOB["script"]),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_accepts_every_script(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(SCRIPTS[name])
    accepted([tool("shellcheck"), "--shell=bash", "--enable=quote-safe-variables", script])


def test_no_input_is_part_of_a_script() -> None:
    assert [name for name, script in SCRIPTS.items() if "${{" in script or "$[[" in script] == []
    assert [step["name"] for step in STEPS if "${{" in step["run"]] == []


def test_the_action_and_the_template_have_the_same_inputs_and_defaults() -> None:
    """The template has the token as a protected variable, and an image instead of an installation."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"]
    template = next(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))["spec"]["inputs"]
    shared = {name: row["default"] for name, row in action.items() if name not in ("install", "token", "pull-request")}
    assert {name: row["default"] for name, row in template.items() if name not in ("image", "stage")} == shared


CALLERS = [ROOT / "docs/tutorials/gate-in-ci.md", ROOT / "examples/gitops/.github/workflows/gate.yaml"]


@pytest.mark.parametrize("page", CALLERS, ids=lambda page: page.name)
def test_a_workflow_that_uses_the_action_gives_inputs_that_it_has(page: Path) -> None:
    known = set(yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"])
    blocks = re.findall(
        r"uses: OWNER/specbench/examples/github@.+\n +with:\n((?: {8,}.+\n)+)", page.read_text(encoding="utf-8")
    )
    used = [set(re.findall(r"^ +([a-z-]+): ", block.partition("env:")[0], re.MULTILINE)) for block in blocks]
    assert used
    assert all(names <= known for names in used), used


@pytest.mark.long
def test_actionlint_accepts_the_action_and_its_callers(tmp_path: Path) -> None:
    """It checks workflows only, so the steps are checked as a job; `uses: ./` makes it read the action itself."""
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    (tmp_path / "action.yml").write_text(ACTION.read_text(encoding="utf-8"))
    inputs = {name: {"type": "string", "required": False} for name in action["inputs"]}
    job = {"runs-on": "ubuntu-latest", "steps": action["runs"]["steps"]}
    steps = {"on": {"workflow_call": {"inputs": inputs}}, "jobs": {"steps": job}}
    given = dict.fromkeys(action["inputs"], "x")
    outputs = " ".join(f"${{{{ steps.bench.outputs.{name} }}}}" for name in action["outputs"])
    uses = [{"uses": "./", "id": "bench", "with": given}, {"run": 'echo "$ALL"', "env": {"ALL": outputs}}]
    caller = {"on": "push", "jobs": {"caller": {"runs-on": "ubuntu-latest", "steps": uses}}}
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    for name, workflow in {"steps": steps, "caller": caller}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(workflow))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)  # otherwise ./ is not resolved
    lint: list[str | Path] = [PEERS["actionlint"].built(), "-shellcheck", tool("shellcheck")]
    accepted([*lint, *sorted(folder.iterdir())])
    given["no-such-input"] = "x"
    (folder / "caller.yaml").write_text(yaml.safe_dump(caller))
    assert (
        subprocess.run([*lint, folder / "caller.yaml"], cwd=tmp_path, capture_output=True, check=False).returncode == 1
    )
