"""The composite action and the GitLab template: their scripts run as in CI, and the tools made for them accept them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from peers.registry import PEERS
from specbench_testing.ci_systems import (
    ACTION,
    OURS,
    ROOT,
    TEMPLATE,
    THEIRS,
    TOKEN,
    CiSystem,
    CommentApi,
    GitHub,
    GitLab,
)
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

STEPS: list[dict[str, Any]] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"]
JOB: dict[str, Any] = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))[1]["specbench"]
WORLD = SyntheticRun(prompts=14, categories=("code",), repeats=3, run_noise=0.003, alpha_spread=0.05, drafts=1)
DEFAULT_LIMITS = ["--tolerance", "speedup=5%", "--tolerance", "tpot=5%"]
DURATIONS = "launchSeconds=60,pointSeconds=10"
SYSTEMS = pytest.mark.parametrize("ci", [GitHub(), GitLab()], ids=lambda each: type(each).__name__)
STUB = f"""#!{sys.executable}
import json, pathlib, sys

folder, arguments = pathlib.Path(__file__).parent, sys.argv[1:]
answers = json.loads((folder / "answers.json").read_text())
with (folder / "calls").open("a") as calls:
    print(json.dumps(arguments), file=calls)
if "json" in arguments:
    print(json.dumps(answers["summary"]))
for option, value in zip(arguments, arguments[1:]):
    if option in ("--to", "--markdown"):
        pathlib.Path(value).write_text(answers["comment"])
sys.exit(answers["codes"].get(arguments[0], 0))
"""
"""A command `specbench` that records how it is called, and answers what the test wants."""


@dataclass(frozen=True)
class StubbedCommand:
    """The stub, which a job in this folder calls instead of specbench."""

    folder: Path
    summary: dict[str, Any]

    def answer(
        self, *, trustworthy: bool = True, comment: str = "# specbench", codes: dict[str, int] | None = None
    ) -> None:
        """Set the answers: the summary's trust, the comment, and the exit code of each command."""
        summary = {**self.summary, "trustworthy": trustworthy}
        answers = {"summary": summary, "comment": comment, "codes": codes or {}}
        (self.folder / "bin/answers.json").write_text(json.dumps(answers))

    def calls(self, command: str) -> list[list[str]]:
        """Return the arguments of each call of this command."""
        lines = (self.folder / "bin/calls").read_text().splitlines()
        return [arguments[1:] for arguments in map(json.loads, lines) if arguments[0] == command]


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    """The summary of a run with a faster drafter."""
    document: dict[str, Any] = json.loads(run_of_world(WORLD).to_json())
    return document


@pytest.fixture
def stub(tmp_path: Path, summary: dict[str, Any]) -> StubbedCommand:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/specbench").write_text(STUB)
    (tmp_path / "bin/specbench").chmod(0o755)
    stubbed = StubbedCommand(tmp_path, summary)
    stubbed.answer()
    return stubbed


@pytest.fixture
def api() -> CommentApi:
    return CommentApi()


@pytest.fixture
def api_url(api: CommentApi) -> Iterator[str]:
    server = api.server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


# The scripts, executed.


@pytest.mark.process
@SYSTEMS
def test_a_file_is_planned_measured_and_reported(ci: CiSystem, tmp_path: Path, api_url: str) -> None:
    """With the command itself; the other tests have a stub of it."""
    file = write_run(tmp_path, simulated_run(placement={"gpus": 1}))
    odd = file.rename(tmp_path / "a $(touch injected); 'run'.yaml")
    done = ci.run(tmp_path, api_url, {"file": odd.name, "max-gpu-hours": "1", "assume": DURATIONS, "fail-on": "never"})
    assert done.code == 0, done.shown
    assert "2 points from --assume pointSeconds" in done.shown
    assert done.outputs["trustworthy"] in ("true", "false")
    assert [file.read_text()[:15].lower() for file in done.files.glob("*report.html")] == ["<!doctype html>"]
    assert not list(tmp_path.rglob("injected"))


@SYSTEMS
@pytest.mark.parametrize(
    ("codes", "code", "measured"),
    [({"plan": 2}, 2, 0), ({"run": 4}, 4, 1), ({"run": 3}, 0, 1)],
    ids=["above the limit", "failed engine", "untrustworthy, judged below"],
)
def test_a_plan_or_a_measurement_that_fails_ends_the_job_with_its_code(  # noqa: PLR0917 -- the columns of the table
    ci: CiSystem, codes: dict[str, int], code: int, measured: int, stub: StubbedCommand, api_url: str
) -> None:
    stub.answer(codes=codes)
    given = {"file": "run.yaml", "results": "out", "max-gpu-hours": "0.01", "assume": DURATIONS}
    assert ci.run(stub.folder, api_url, given).code == code
    options = ["--results", "out", "--max-gpu-hours", "0.01", "--assume", DURATIONS, "--", "run.yaml"]
    assert stub.calls("plan") == [options]
    assert stub.calls("run") == [["--results", "out", "--", "run.yaml"]] * measured


@SYSTEMS
@pytest.mark.parametrize(
    ("gate", "inputs", "code", "options"),
    [
        (3, {}, 3, DEFAULT_LIMITS),
        (3, {"fail-on": "never"}, 0, DEFAULT_LIMITS),
        (2, {"fail-on": "never"}, 2, DEFAULT_LIMITS),
        (0, {"tolerance": "speedup=60%\n  tpot=99%"}, 0, ["--tolerance", "speedup=60%", "--tolerance", "tpot=99%"]),
        (0, {"fail-on": "regression"}, 0, [*DEFAULT_LIMITS, "--inconclusive", "Pass", "--allow-untrustworthy"]),
    ],
    ids=["failed", "tolerated", "bad input", "tolerances", "regression"],
)
def test_the_gate_decides_about_results_that_exist(  # noqa: PLR0917 -- the columns of the table
    ci: CiSystem,
    gate: int,
    inputs: dict[str, str],
    code: int,
    options: list[str],
    stub: StubbedCommand,
    api_url: str,
) -> None:
    stub.answer(codes={"gate": gate})
    done = ci.run(stub.folder, api_url, {"results": "new", "baseline": "main", **inputs})
    assert done.code == code, done.shown
    (call,) = stub.calls("gate")
    assert call[: call.index("--report-url")] == ["--latest", "--baseline", "main", *options]
    assert call[-2:] == ["--", "new"]
    assert done.outputs.get("passed", "") in ("", str(gate == 0).lower())
    assert float(done.outputs["speedup"]) > 1


@SYSTEMS
@pytest.mark.parametrize(("fail_on", "code"), [("not-passed", 3), ("regression", 0)])
def test_without_a_baseline_an_untrustworthy_result_fails(
    ci: CiSystem, fail_on: str, code: int, stub: StubbedCommand, api_url: str
) -> None:
    stub.answer(trustworthy=False)
    done = ci.run(stub.folder, api_url, {"results": "new", "fail-on": fail_on})
    assert (done.code, done.outputs["trustworthy"]) == (code, "false"), done.shown


@SYSTEMS
@pytest.mark.parametrize(("report", "fail_on"), [(2, "never"), (0, "maybe")], ids=["no results", "fail-on"])
def test_bad_input_fails_whatever_fail_on_is(
    ci: CiSystem, report: int, fail_on: str, stub: StubbedCommand, api_url: str
) -> None:
    stub.answer(codes={"report": report})
    assert ci.run(stub.folder, api_url, {"results": "none", "fail-on": fail_on}).code == 2


@SYSTEMS
def test_the_comment_is_replaced_and_comments_of_others_are_not(
    ci: CiSystem, stub: StubbedCommand, api: CommentApi, api_url: str
) -> None:
    inputs = {"results": "new", "baseline": "main", "fail-on": "never"}
    stub.answer(comment="Gate failed", codes={"gate": 3})
    assert ci.run(stub.folder, api_url, inputs, TOKEN).code == 0
    (first,) = api.comments
    assert first["body"].startswith("<!-- specbench ")
    assert "Gate failed" in first["body"]
    copied = {"id": 1, "body": first["body"], **THEIRS}
    api.comments[:0] = [copied, *({"id": 10 + n, "body": "another", **OURS} for n in range(150))]
    stub.answer(comment="Gate passed")
    assert ci.run(stub.folder, api_url, inputs, TOKEN).code == 0
    assert (api.changes[0], len(api.changes), len(api.comments)) == ("POST", 2, 152)
    assert "Gate passed" in api.comments[-1]["body"]
    assert "Gate failed" in copied["body"]


@SYSTEMS
def test_a_comment_that_is_refused_does_not_change_the_answer(
    ci: CiSystem, stub: StubbedCommand, api: CommentApi, api_url: str
) -> None:
    api.refuses = True
    done = ci.run(stub.folder, api_url, {"results": "new", "baseline": "main"}, TOKEN)
    assert done.code == 0
    assert "no comment" in done.shown
    assert "HTTP Error 403" in done.shown


@pytest.mark.long  # it needs the package index, and minutes
@pytest.mark.timeout(900)
def test_the_action_installs_its_own_version_with_pinned_dependencies(tmp_path: Path, api_url: str) -> None:
    done = GitHub().run(tmp_path, api_url, {"install": "true", "results": "none"})
    assert "none: contains no run" in done.shown
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


def test_the_action_is_valid_for_githubs_schema() -> None:
    accepted([tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", ACTION])


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
