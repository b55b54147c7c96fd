"""The composite action and the GitLab template: their scripts run as in CI, and the tools made for them accept them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
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
    server = api.server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


# The scripts, executed.


@pytest.mark.process
@SYSTEMS
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
