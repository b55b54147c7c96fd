"""`specbench compare`, `specbench gate` and `specbench-client gate` over stored results."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.layout import GATE, SUMMARY, run_root
from specbench_api.spec.gate import GATE_VARIABLE, BaselineRef, Gate, GateRequest
from specbench_client.cli import exit_code
from specbench_client.documents.comparison import GateReport
from specbench_client.job.commands import run_program
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_results
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import SyntheticRun

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=14, categories=("code",), repeats=3, run_noise=0.003, alpha_spread=0.05, drafts=1)
UIDS = {"main": "0190a000-0000-7000-8000-000000000000", "slow": "0190c000-0000-7000-8000-000000000000"}
TRUSTING = "--allow-untrustworthy"


def store_finished(world: SyntheticRun, folder: Path, uid: str) -> None:
    """Store a run with its summary, and a report without plots."""
    plan = store_results(world, folder, uid)
    with pytest.MonkeyPatch.context() as undrawn:
        undrawn.setattr("specbench_client.report.html.draw_figures", lambda _: {})
        conclude(plan, FolderStore(folder / run_root(plan.namespace, plan.name, plan.uid)))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs: main, a copy of it, and one with a slower drafter."""
    root = tmp_path_factory.mktemp("results")
    worlds = {"main": WORLD, "slow": replace(WORLD, step_ms={"ngram": 18.0})}
    for name, world in worlds.items():
        store_finished(world, root / name, UIDS[name])
    shutil.copytree(root / "main", root / "again")
    return root


def root_of(results: Path, name: str) -> Path:
    return results / name / run_root("local", "demo", UIDS[name])


def gate(results: Path, after: str, *more: str) -> int:
    return exit_code(["gate", str(results / after), *more])


@pytest.mark.parametrize(("after", "code"), [("again", Exit.OK), ("slow", Exit.UNTRUSTWORTHY)])
def test_exit_code_is_the_result_of_the_gate(
    results: Path, after: str, code: Exit, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    comment = tmp_path / "comment.md"
    more = ("--markdown", str(comment), "--report-url", "https://ci/x", "--output", "json", TRUSTING)
    assert gate(results, after, "--baseline", str(results / "main"), *more) == code
    report = GateReport.from_json(capsys.readouterr().out)
    assert report.passed == (code is Exit.OK)
    assert comment.read_text().startswith("### ✅" if report.passed else "### ❌ specbench: Gate failed")
    assert "[Report](https://ci/x)" in comment.read_text()


@pytest.mark.parametrize(
    ("repeats", "code", "reason"), [(3, Exit.OK, "Passed"), (1, Exit.UNTRUSTWORTHY, "Inconclusive")]
)
def test_gate_without_a_baseline_arm_compares_tpot_only(
    tmp_path: Path, repeats: int, code: Exit, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of `specbench measure` have no speed-up to compare."""
    world = replace(WORLD, repeats=repeats, edits={"spec.baseline": "Skip"})
    for name, uid in UIDS.items():
        store_finished(world, tmp_path / name, uid)
    assert gate(tmp_path, "slow", "--baseline", str(tmp_path / "main"), "-o", "json", TRUSTING) == code
    report = GateReport.from_json(capsys.readouterr().out)
    assert report.reason == reason
    assert [each.compared.metric for each in report.tests] == ["tpot"]
    assert [each.label for each in report.gate.tolerances] == ["tpot"]
    assert ("--repeats 3" in report.message) == (repeats == 1)


def test_tolerances_and_confidence_are_read_from_the_command_line(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = ("--tolerance", "speedup=60%", "--tolerance", "ttft.p50=20", "--confidence", "0.9", "-o", "json", TRUSTING)
    assert gate(results, "slow", "--baseline", str(results / "main"), *wide) == Exit.OK
    report = GateReport.from_json(capsys.readouterr().out)
    assert [each.label for each in report.gate.tolerances] == ["speedup", "ttft p50"]
    assert [each.max_regression_percent for each in report.gate.tolerances] == [60, 20]
    assert report.gate.confidence == 0.9


def test_gate_of_a_spec_is_used_and_can_be_overridden(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate_spec = {"baselineRef": {"uri": str(results / "main")}, "requireTrustworthy": False}
    file = write_run(tmp_path, simulated_run(gate=gate_spec))
    assert gate(results, "again", "--from", str(file)) == Exit.OK
    file.write_text(yaml.safe_dump(simulated_run(gate={**gate_spec, "baselineRef": {"run": "main"}})))
    capsys.readouterr()
    assert gate(results, "main", "--from", str(file)) == Exit.BAD_INPUT
    assert "the run 'main', which only a cluster can find" in capsys.readouterr().err
    assert gate(results, "again", "--from", str(file), "--baseline", str(results / "main")) == Exit.OK


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "give --baseline RESULT, or --from FILE"),
        (("--from", "UNGATED"), "spec.gate"),
        (("--baseline", "nowhere"), "no such file or folder"),
        (("--baseline", "EMPTY"), "contains no run"),
        (("--baseline", "ITSELF"), "is both the result and its baseline"),
        (("--baseline", __file__), "is a file: give the folder of the results"),
        (("--baseline", "MAIN", "--tolerance", "speedy=5"), "'speedy=5' is not METRIC=PERCENT"),
        (("--baseline", "MAIN", "--tolerance", "speedup.p95=5"), "tolerances[].percentile is only valid with"),
        (
            ("--baseline", "MAIN", "--tolerance", "speedup=0"),
            "gate.tolerances[0].maxRegressionPercent: input should be greater than 0, not '0'",
        ),
        (
            ("--baseline", "MAIN", "--confidence", "2"),
            "Invalid value for '--confidence': '2': give a number from 0.8 to 0.999",
        ),
        (("--baseline", "MAIN", "--markdown", "no/such/folder/x.md"), "give a file in a folder that exists"),
    ],
)
def test_bad_input_is_reported_with_a_remedy(
    results: Path, tmp_path: Path, more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ungated = write_run(tmp_path, simulated_run())
    named = {"MAIN": results / "main", "ITSELF": results / "again", "UNGATED": ungated, "EMPTY": tmp_path}
    assert gate(results, "again", *(str(named.get(word, word)) for word in more)) == Exit.BAD_INPUT
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("output", "conclusion"), [("text", "worse"), ("json", '"Worse"'), ("markdown", "worse")])
def test_two_results_are_compared(
    results: Path, output: str, conclusion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["compare", str(results / "main"), str(results / "slow"), "-o", output]) == Exit.OK
    printed = capsys.readouterr().out
    assert conclusion in printed
    if output == "json":
        assert json.loads(printed)["schemaVersion"] == "specbench.io/comparison/v2"


def test_results_without_a_common_cell_are_rejected(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_finished(replace(WORLD, concurrency=(2,)), tmp_path / "other", UIDS["main"])
    assert gate(tmp_path, "other", "--baseline", str(results / "main"), TRUSTING) == Exit.UNTRUSTWORTHY
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("the later result does not have this cell") == 2, "once for each arm"
    assert exit_code(["compare", str(results / "main"), str(tmp_path / "other")]) == Exit.UNTRUSTWORTHY
    printed = capsys.readouterr().err
    assert "share no cell (arm × workload × load) that can be compared" in printed


def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: Path, request: str) -> tuple[int, dict[str, Any]]:
    """Run the gate's Job; return its exit code and its termination message."""
    monkeypatch.setenv(GATE_VARIABLE, request)
    words = tmp_path / "ended"
    code = run_program(["gate", "--results", str(after), "--termination-log", str(words)])
    message: dict[str, Any] = json.loads(words.read_text())
    return code, message


def test_gate_job_writes_gate_json_and_exits_0_also_on_failure(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate_spec = Gate(baseline_ref=BaselineRef(run="main"), require_trustworthy=False)
    request = GateRequest(gate_digest="abc", gate=gate_spec, baseline=str(root_of(results, "main")))
    after = root_of(results, "slow")
    code, message = job(monkeypatch, tmp_path, after, request.to_line())
    assert (code, message["reason"]) == (0, "Regressed")
    assert (after / SUMMARY).exists()
    report = GateReport.from_json((after / GATE).read_text())
    assert (report.gate_digest, report.passed, report.message) == ("abc", False, message["message"])


@pytest.mark.parametrize(
    ("baseline", "reason"), [("nowhere", "BaselineMissing"), ("open", "BaselineNotFinished"), (None, "BadInput")]
)
def test_gate_job_without_a_usable_baseline_exits_with_bad_input(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: str | None, reason: str
) -> None:
    plan = store_results(WORLD, tmp_path / "open", UIDS["main"], points=1)
    place = {"open": tmp_path / "open" / run_root(plan.namespace, plan.name, plan.uid)}.get(str(baseline))
    gate_spec = Gate(baseline_ref=BaselineRef(run="main"))
    request = GateRequest(gate_digest="abc", gate=gate_spec, baseline=str(place or tmp_path / "nowhere"))
    code, message = job(monkeypatch, tmp_path, root_of(results, "main"), request.to_line() if baseline else "{}")
    assert (code, message["reason"]) == (Exit.BAD_INPUT, reason)
