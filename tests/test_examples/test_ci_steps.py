"""The composite action and the GitLab template: their scripts run as in CI, and the tools made for them accept them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from peers.registry import PEERS
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_client.store.folder import FolderStore
from specbench_client.store.locations import open_store
from specbench_client.stored_runs.write_results import conclude
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
from specbench_testing.local_results import store_results
from specbench_testing.s3 import S3Access
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import SyntheticRun

STEPS: list[dict[str, Any]] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"]
JOB: dict[str, Any] = list(yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8")))[1]["specbench"]
UIDS = {"main": "0190a000-0000-7000-8000-000000000000", "slow": "0190c000-0000-7000-8000-000000000000"}
WORLD = SyntheticRun(prompts=14, categories=("code",), repeats=3, run_noise=0.003, alpha_spread=0.05, drafts=1)
DURATIONS = "launchSeconds=60,pointSeconds=10"
SYSTEMS = pytest.mark.parametrize("ci", [GitHub(), GitLab()], ids=lambda each: type(each).__name__)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of main, of a slower drafter, of main again and with a doubt, and a location of two runs."""
    root = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as undrawn:
        undrawn.setattr("specbench_client.report.html.draw_figures", lambda _: {})
        for name, world in {"main": WORLD, "slow": replace(WORLD, step_ms={"ngram": 18.0})}.items():
            plan = store_results(world, root / name, UIDS[name])
            conclude(plan, FolderStore(root / name / run_root(plan.namespace, plan.name, plan.uid)))
    for copy in ("same", "doubted", "two"):
        shutil.copytree(root / "main", root / copy)
    shutil.copytree(root / "slow", root / "two", dirs_exist_ok=True)
    for file in (root / "doubted").rglob(SUMMARY):
        file.write_text(re.sub(r'("trustworthy": ?)true', r"\1false", file.read_text()))
    return root


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
    done = ci.run(tmp_path, api_url, {"file": odd.name, "max-gpu-hours": "1", "assume": DURATIONS, "fail-on": "never"})
    assert done.code == 0, done.shown
    assert "2 points from --assume pointSeconds" in done.shown
    assert done.outputs["trustworthy"] in ("true", "false")
    assert [file.read_text()[:15].lower() for file in done.files.glob("*report.html")] == ["<!doctype html>"]
    assert not list(tmp_path.rglob("injected"))


@pytest.mark.process
@SYSTEMS
def test_a_cost_above_the_limit_fails_before_anything_is_measured(ci: CiSystem, tmp_path: Path, api_url: str) -> None:
    write_run(tmp_path, simulated_run(placement={"gpus": 2}))
    done = ci.run(tmp_path, api_url, {"file": "run.yaml", "max-gpu-hours": "0.01", "assume": DURATIONS})
    assert done.code == 2
    assert "GPU-hours are expected, and --max-gpu-hours is 0.01" in " ".join(done.shown.split())
    assert not list(tmp_path.rglob("plan.json"))


@pytest.mark.process
@SYSTEMS
def test_an_engine_that_fails_has_its_own_exit_code(ci: CiSystem, tmp_path: Path, api_url: str) -> None:
    write_run(tmp_path, simulated_run(engine={"kind": "simulator", "command": ["false"]}))
    assert ci.run(tmp_path, api_url, {"file": "run.yaml", "fail-on": "never"}).code == 4


@pytest.mark.process
@SYSTEMS
@pytest.mark.parametrize(
    ("change", "inputs", "code", "words"),
    [
        ("slow", {}, 3, "Gate failed"),
        ("slow", {"tolerance": "speedup=60%\n  tpot=99%"}, 0, "Gate passed"),
        ("doubted", {}, 3, "Gate not passed: Untrustworthy"),
        ("doubted", {"fail-on": "regression"}, 0, "Gate passed"),
    ],
    ids=["slower", "tolerated", "untrustworthy", "accepted"],
)
def test_the_gate_decides_about_results_that_exist(
    ci: CiSystem,
    *,
    change: str,
    inputs: dict[str, str],
    code: int,
    words: str,
    stored: Path,
    tmp_path: Path,
    api_url: str,
) -> None:
    given = {"results": str(stored / change), "baseline": str(stored / "main"), **inputs}
    done = ci.run(tmp_path, api_url, given)
    assert done.code == code, done.shown
    assert words in done.shown
    assert done.outputs.get("passed", "") in ("", str(words == "Gate passed").lower())
    (speedup,) = {done.outputs["speedup"]}
    assert (float(speedup) > 1) if change == "doubted" else speedup == ""


@pytest.mark.process
@SYSTEMS
def test_results_that_a_cluster_left_in_s3_are_read_there(
    ci: CiSystem, *, stored: Path, tmp_path: Path, api_url: str, s3_access: S3Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_access.enter(monkeypatch)
    root = f"s3://{s3_access.bucket}/{uuid.uuid4().hex}"
    for name in ("main", "slow"):
        for file in (file for file in (stored / name).rglob("*") if file.is_file()):
            open_store(f"{root}/{name}").put(str(file.relative_to(stored / name)), file.read_bytes())
    done = ci.run(tmp_path, api_url, {"results": f"{root}/slow", "baseline": f"{root}/main"})
    assert (done.code, "Gate failed" in done.shown) == (3, True), done.shown


@pytest.mark.process
@SYSTEMS
@pytest.mark.parametrize(("fail_on", "code"), [("not-passed", 3), ("regression", 0)])
def test_without_a_baseline_an_untrustworthy_result_fails(
    ci: CiSystem, *, fail_on: str, code: int, stored: Path, tmp_path: Path, api_url: str
) -> None:
    done = ci.run(tmp_path, api_url, {"results": str(stored / "doubted"), "fail-on": fail_on})
    assert (done.code, done.outputs["trustworthy"]) == (code, "false"), done.shown


@pytest.mark.process
@SYSTEMS
@pytest.mark.parametrize("inputs", [{"results": "none"}, {"results": "two"}, {"fail-on": "maybe"}], ids=str)
def test_bad_input_fails_whatever_fail_on_is(
    ci: CiSystem, inputs: dict[str, str], stored: Path, tmp_path: Path, api_url: str
) -> None:
    """Of several runs in one location, another job may have stored the newest."""
    given = {"results": "same", "fail-on": "never", **inputs}
    assert ci.run(tmp_path, api_url, {**given, "results": str(stored / given["results"])}).code == 2


@pytest.mark.process
@SYSTEMS
def test_the_comment_is_replaced_and_comments_of_others_are_not(
    ci: CiSystem, stored: Path, tmp_path: Path, api: CommentApi, api_url: str
) -> None:
    inputs = {"results": str(stored / "slow"), "baseline": str(stored / "main"), "fail-on": "never"}
    assert ci.run(tmp_path, api_url, inputs, TOKEN).code == 0
    (first,) = api.comments
    assert first["body"].startswith("<!-- specbench ")
    assert "Gate failed" in first["body"]
    copied = {"id": 1, "body": first["body"], **THEIRS}
    api.comments[:0] = [copied, *({"id": 10 + n, "body": "another", **OURS} for n in range(150))]
    better = {**inputs, "results": str(stored / "same")}
    assert ci.run(tmp_path, api_url, better, TOKEN).code == 0
    assert (api.changes[0], len(api.changes), len(api.comments)) == ("POST", 2, 152)
    assert "Gate passed" in api.comments[-1]["body"]
    assert "Gate failed" in copied["body"]


@pytest.mark.process
@SYSTEMS
def test_a_comment_that_is_refused_does_not_change_the_answer(
    ci: CiSystem, stored: Path, tmp_path: Path, api: CommentApi, api_url: str
) -> None:
    api.refuses = True
    given = {"results": str(stored / "same"), "baseline": str(stored / "main")}
    done = ci.run(tmp_path, api_url, given, TOKEN)
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
