"""Comparison of whole results and gates: what is comparable, which differences are reported, how a gate decides."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench_api.outcome.layout import GATE, SUMMARY, run_root
from specbench_api.outcome.termination import Exit
from specbench_api.plan.plan import Arm
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.gate import GATE_VARIABLE, BaselineRef, Gate, GateRequest
from specbench_api.spec.load import Level, Load
from specbench_client.analysis.compare.comparison import OF_SUMMARIES, comparison
from specbench_client.analysis.compare.differences import differences
from specbench_client.analysis.compare.gate import judge_gate
from specbench_client.cli import exit_code
from specbench_client.documents.comparison import ComparisonGapReason
from specbench_client.documents.figure import Verdict
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.gate_report import GateReport, GateTestOutcome
from specbench_client.documents.summary import Cell
from specbench_client.job.commands import run_program
from specbench_client.report.text.comparison import headline as gate_headline
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.run import Run
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.corrupted_records import replace_columns, without_counters
from specbench_testing.local_results import store_results
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.result_pairs import manifests_of, replaced, result_of, without_records
from specbench_testing.specs import simulated_run, write_run
from specbench_testing.synthetic_records import Corruptions, SyntheticRun

pytestmark = pytest.mark.runs


WORLD = SyntheticRun(prompts=16, repeats=3, run_noise=0.004)
CREATED = "2026-01-02T03:04:05Z"
SLOW = replace(WORLD, step_ms={"ngram": 14.5})


@cache
def before() -> Run:
    return result_of(WORLD)


@cache
def slow() -> Run:
    return result_of(SLOW)


def gate_report(after: Run, earlier: Run | None = None, **gate: Any) -> GateReport:
    gate_spec = Gate.model_validate({"baselineRef": {"uri": "results/run"}, "requireTrustworthy": False, **gate})
    return judge_gate(
        GateRequest(gate_digest="a", gate=gate_spec, baseline="results/run"), earlier or before(), after, CREATED
    )


def with_plan(**changes: Any) -> Run:
    return replaced(before(), plan=before().plan.model_copy(update=changes))


def other_workload(**changes: Any) -> Run:
    workload = before().plan.workloads[0]
    return with_plan(workloads=[workload.model_validate({**workload.to_dict(), **changes})])


def with_summary(**changes: Any) -> Run:
    return replaced(before(), summary=before().summary.model_copy(update=changes))


def with_provenance(result: Run, **changes: Any) -> Run:
    observed = {point: each.observed.model_copy(update=changes) for point, each in result.manifests.items()}
    return replaced(result, manifests=manifests_of(observed))


def of_repeats(count: int) -> Run:
    """Return the same run, stopped after `count` repeats."""
    return replaced(
        before(),
        point_summaries={key: each for key, each in before().point_summaries.items() if each.repeat < count},
    )


def cells_but(arm: str) -> list[Cell]:
    return [cell for cell in before().summary.cells if cell.arm != arm]


def test_unchanged_result_passes_and_every_test_has_its_data() -> None:
    report = gate_report(before())
    assert (report.passed, report.reason) == (True, GateReason.PASSED)
    assert [(test.compared.metric, test.compared.arm) for test in report.tests] == [
        ("speedup", "ngram"),
        ("tpot", "none"),
        ("tpot", "ngram"),
    ]
    for test in report.tests:
        ratio = test.compared.ratio
        assert (test.outcome, ratio.n, test.compared.repeats) == (GateTestOutcome.PASSED, 16, (3, 3))
        assert ratio.value == pytest.approx(1.0)
        assert present(test.low) < 1 < present(test.high)
    assert "3 of 3 tests are within their tolerance" in report.message
    assert "measured at different times" in report.limits[0]


def test_slower_arm_fails_and_the_message_starts_with_the_worst_test() -> None:
    report = gate_report(slow())
    assert (report.passed, report.reason) == (False, GateReason.REGRESSED)
    outcomes = {(test.compared.metric, test.compared.arm): test.outcome for test in report.tests}
    assert outcomes == {
        ("speedup", "ngram"): GateTestOutcome.FAILED,
        ("tpot", "ngram"): GateTestOutcome.FAILED,
        ("tpot", "none"): GateTestOutcome.PASSED,
    }
    assert report.tests[0].outcome is GateTestOutcome.FAILED, "the worst test comes first"
    assert "speedup of ngram on chat at 1: 0.8" in report.message
    assert "limit 0.950" in report.message


def test_too_few_repeats_are_inconclusive_and_the_message_has_the_number() -> None:
    report = gate_report(of_repeats(2), of_repeats(2))
    assert (report.passed, report.reason) == (False, GateReason.INCONCLUSIVE)
    assert {(test.outcome, test.repeats_to_decide) for test in report.tests} == {(GateTestOutcome.INCONCLUSIVE, 3)}
    assert "2 repeats before and 2 after, but minRepeats is 3" in report.message
    assert all(test.low is None and test.compared.ratio.interval is None for test in report.tests)
    assert all(test.compared.conclusion is Verdict.TOO_FEW_REPEATS for test in report.tests)
    assert "3 repeats before and 3 after, but minRepeats is 4" in gate_report(before(), minRepeats=4).message


@cache
def noisy() -> Run:
    return result_of(replace(WORLD, run_noise=0.08, seed=3))


def untrusted() -> Run:
    """Return the same run with findings that make it untrustworthy, and with one that does not."""
    found = [
        Finding(check=check, severity=severity, message="m")
        for check, severity in (
            ("ShortAnswers", Severity.INFO),
            ("ChunksCoalesced", Severity.WARNING),
            ("ClientSaturated", Severity.INVALID),
        )
    ]
    return with_summary(trustworthy=False, findings=found)


def with_arm(name: str) -> Run:
    more = [cell.model_copy(update={"arm": name}) for cell in cells_but("none")]
    return with_summary(cells=[*before().summary.cells, *more])


def invalid(*kept: Cell) -> Run:
    """Return the same run with an invalid cell of each arm that is not kept, and the findings of one."""
    arms = {cell.arm for cell in kept}
    broken = [cell.model_copy(update={"valid": False}) for cell in cells_but("") if cell.arm not in arms]
    findings = [
        Finding(check=check, severity=severity, message="", arm="ngram", workload="chat", load="1")
        for check, severity in (("ChunksCoalesced", Severity.WARNING), ("PrematureLengthStop", Severity.INVALID))
    ]
    return with_summary(cells=[*kept, *broken], findings=findings)


WIDE = [{"metric": "speedup", "maxRegressionPercent": 30}]
OF_BASELINE = [{"metric": "tpot", "arms": ["none"]}]
MISSPELT = [{"metric": "tpot"}, {"metric": "speedup", "arms": ["ngrom"]}]
TWICE = [{"metric": "tpot", "maxRegressionPercent": 3}, {"metric": "tpot", "maxRegressionPercent": 9}]
TRUSTED = {"requireTrustworthy": True}
DOUBTS = "is not trustworthy (ClientSaturated, ChunksCoalesced)"


@pytest.mark.parametrize(
    ("after", "earlier", "gate", "reason", "message"),
    [
        (slow, before, {"tolerances": WIDE}, GateReason.PASSED, "1 of 1 tests"),
        (slow, before, {"tolerances": OF_BASELINE}, GateReason.PASSED, "1 of 1 tests"),
        (before, before, {"tolerances": TWICE}, GateReason.INCONCLUSIVE, "of 4 tests"),
        (before, slow, {}, GateReason.PASSED, ""),
        (
            before,
            before,
            {"tolerances": MISSPELT},
            GateReason.CELLS_MISSING,
            "the tolerance of speedup for ngrom matches no cell",
        ),
        (noisy, noisy, {}, GateReason.INCONCLUSIVE, "repeats on each side would decide"),
        (noisy, noisy, {"onInconclusive": "Pass"}, GateReason.INCONCLUSIVE, ""),
        (
            lambda: with_summary(cells=cells_but("ngram")),
            before,
            {},
            GateReason.CELLS_MISSING,
            "ngram on chat at 1 (the later result does not have this cell)",
        ),
        (lambda: with_summary(cells=cells_but("ngram")), before, {"onMissing": "Pass"}, GateReason.PASSED, ""),
        (lambda: with_arm("other"), before, {}, GateReason.PASSED, ""),
        (
            lambda: invalid(*cells_but("ngram")),
            before,
            {},
            GateReason.CELLS_MISSING,
            "invalid (PrematureLengthStop) in the later result",
        ),
        (invalid, before, {}, GateReason.CELLS_MISSING, ""),
        (invalid, before, {"onMissing": "Pass"}, GateReason.INCONCLUSIVE, ""),
        (untrusted, before, {}, GateReason.PASSED, ""),
        (untrusted, before, TRUSTED, GateReason.UNTRUSTWORTHY, f"the later result {DOUBTS}"),
        (before, untrusted, TRUSTED, GateReason.UNTRUSTWORTHY, f"the earlier result {DOUBTS}"),
        (slow, untrusted, TRUSTED, GateReason.REGRESSED, ""),
    ],
)
def test_each_gate_has_its_reason(
    after: Callable[[], Run], earlier: Callable[[], Run], gate: dict[str, Any], reason: GateReason, message: str
) -> None:
    report = gate_report(after(), earlier(), **gate)
    assert (report.reason, report.passed) == (reason, reason is GateReason.PASSED or "onInconclusive" in gate)
    assert message in report.message
    assert report.refused == []


def test_headline_of_a_regression_says_that_a_result_is_also_untrustworthy() -> None:
    report = gate_report(slow(), untrusted(), requireTrustworthy=True)
    assert gate_headline(report) == "Gate failed: 2 of 3 tests regressed; a result is also untrustworthy"
    assert gate_headline(gate_report(slow(), untrusted())) == "Gate failed: 2 of 3 tests regressed"


def test_cells_of_one_result_alone_are_not_compared() -> None:
    after = (with_arm("other"), with_summary(cells=cells_but("ngram")), invalid(*cells_but("ngram")))
    assert [[(each.arm, each.reason) for each in gate_report(one).uncompared] for one in after] == [
        [("other", ComparisonGapReason.MISSING_BEFORE)],
        [("ngram", ComparisonGapReason.MISSING_AFTER)],
        [("ngram", ComparisonGapReason.INVALID)],
    ]


@pytest.mark.parametrize("check", ["AnswersWorse", "ReuseLost"])
def test_an_arm_that_is_newly_at_fault_fails_even_where_missing_cells_pass(check: str) -> None:
    fault = Finding(check=check, severity=Severity.FAULT, message="", arm="ngram", workload="chat", load="1")
    after = with_summary(findings=[fault])
    report = gate_report(after, onMissing="Pass")
    assert (report.passed, report.reason) == (False, GateReason.ARM_AT_FAULT)
    assert report.message == f"at fault, and not in the earlier result: ngram ({check})"
    assert gate_report(after, after).reason is GateReason.PASSED, "known before"
    new_arm = with_summary(cells=cells_but("ngram"))
    assert gate_report(after, new_arm).reason is GateReason.ARM_AT_FAULT
    others = [{"metric": "tpot", "arms": ["none"]}]
    assert gate_report(after, tolerances=others).reason is GateReason.PASSED, "another arm's gate"


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda: with_provenance(before(), dataset_fingerprint="other"), "different prompts: fingerprint f → other"),
        (lambda: other_workload(output={"maxTokens": 99}), "different output limits"),
        (lambda: other_workload(sampling={"temperature": 1.0}), "different sampling"),
        (lambda: other_workload(extraBody={"top_k": 3}), "different request fields"),
        (
            lambda: other_workload(chatTemplate={"appliedBy": "Client", "kwargs": {"a": 1}}),
            'different chat template: the engine\'s own → by the client, [{"a": 1}, "2026-01-01"]',
        ),
        (lambda: with_provenance(before(), chat_template_sha256="two"), "different chat template"),
        (lambda: with_provenance(before(), tokenizer_sha256="two"), "different tokenizer of the chat template"),
        (lambda: with_summary(simulated=True), "the later result is a simulation"),
        (
            lambda: with_summary(
                cells=[each.model_copy(update={"level": Level(concurrency=2)}) for each in cells_but("")]
            ),
            "share no cell (arm × workload × load)",
        ),
        (lambda: with_plan(load=Load(rate=[2.0], slots=64)), "the arrivals of requests differ: closed loop → Poisson"),
    ],
    ids=[
        "prompts",
        "limits",
        "sampling",
        "fields",
        "applied by",
        "template",
        "tokenizer",
        "simulated",
        "loads",
        "loop",
    ],
)
def test_different_work_is_rejected_with_the_reason(after: Callable[[], Run], message: str) -> None:
    known = with_provenance(before(), chat_template_sha256="one", tokenizer_sha256="one")
    report = gate_report(after(), known)
    assert (report.passed, report.reason) == (False, GateReason.NOT_COMPARABLE)
    assert message in report.message
    assert report.tests == []


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ({"draft_sampling": "greedy"}, {"draft_sampling": "probabilistic"}, "Draft sampling greedy → probabilistic"),
        (None, {"gpu": "H100"}, "Hardware not known → recorded"),
    ],
)  # fmt: skip
def test_difference_of_launches_has_both_values(
    earlier: dict[str, Any] | None, later: dict[str, Any] | None, expected: str
) -> None:
    old, new = (replaced(before(), launches=(observed_launch(**facts),) if facts else ()) for facts in (earlier, later))
    assert [str(each) for each in differences(old, new)] == [expected]


def test_other_differences_are_listed_with_both_values() -> None:
    arms = before().plan.arms
    drafter = present(arms[1].drafter).model_copy(update={"num_speculative_tokens": 4})
    changed = with_plan(
        target=before().plan.target.model_copy(update={"revision": "v2"}),
        prompt_cache=PromptCache.AS_SERVED,
        arms=[arms[0], Arm(name="ngram", drafter=drafter)],
    )
    old, new = (
        replaced(with_provenance(result, engine_version=version), launches=(observed_launch(gpu=gpu, driver="550"),))
        for result, version, gpu in ((before(), "0.1", "H100"), (changed, "0.2", "H200"))
    )
    found = differences(old, new)
    assert {each.name: (each.before, each.after) for each in found} == {
        "GPU": ("H100", "H200"),
        "Engine version": ("0.1", "0.2"),
        "Model": ("acme/tiny@main", "acme/tiny@v2"),
        "Drafter ngram: numSpeculativeTokens": ("3", "4"),
        "promptCache": (PromptCache.DISABLED, PromptCache.AS_SERVED),
    }
    assert str(found[0]) == "Model acme/tiny@main → acme/tiny@v2"


def test_result_compared_with_itself_has_no_differences() -> None:
    found = comparison(before(), before(), CREATED)
    assert (found.differences, found.refused, found.uncompared) == ([], [], [])
    assert {cell.conclusion for cell in found.cells} == {Verdict.INDISTINGUISHABLE}
    metrics = ["speedup", "tpot", "ttft p50", "e2e p50", "outputTps", "acceptanceLength"]
    assert [cell.metric for cell in found.cells if cell.arm == "ngram"] == metrics
    assert [cell.metric for cell in found.cells if cell.arm == "none"] == metrics[1:-1], "the baseline has no drafter"


def gaps(after: Run) -> dict[str, str]:
    """Return messages of the ngram arm's figures that could not be compared, by figure."""
    return {gap.metric: gap.message for gap in comparison(before(), after, CREATED).uncompared if gap.arm == "ngram"}


def test_figure_missing_in_one_result_is_reported_although_requests_are_paired() -> None:
    columns = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted", "acceptance_source")
    without_drafting = replace_columns(**dict.fromkeys(columns))
    after = result_of(WORLD, Corruptions(records=without_drafting.records, counters=without_counters))
    assert gaps(after) == {"acceptanceLength": "the later result has no value for it"}
    assert {cell.metric for cell in comparison(before(), after, CREATED).cells if cell.arm == "ngram"} >= {"tpot"}


def test_better_and_worse_follow_each_figures_direction() -> None:
    worse, better = (
        {cell.metric: cell.conclusion for cell in comparison(*pair, CREATED).cells if cell.arm == "ngram"}
        for pair in ((before(), slow()), (slow(), before()))
    )
    for metric in ("speedup", "tpot", "outputTps"):
        assert (worse[metric], better[metric]) == (Verdict.WORSE, Verdict.BETTER), metric
    assert worse["acceptanceLength"] is worse["ttft p50"] is Verdict.INDISTINGUISHABLE
    assert gate_report(before(), slow()).reason is GateReason.PASSED


def test_summaries_without_records_are_compared_with_wider_intervals() -> None:
    report, alone = gate_report(slow()), gate_report(without_records(slow()))
    pairs = list(zip(_tests_by_metric_and_arm(report).values(), _tests_by_metric_and_arm(alone).values(), strict=True))
    assert pairs
    for whole, bare in pairs:
        assert bare.compared.ratio.value == pytest.approx(whole.compared.ratio.value, rel=0.02)
        assert present(bare.low) < present(whole.low)
        assert OF_SUMMARIES in present(bare.compared.ratio.interval).method


def _tests_by_metric_and_arm(report: GateReport) -> dict[tuple[str, str], Any]:
    return {(test.compared.metric, test.compared.arm): test for test in sorted(report.tests, key=str)}


def test_prompts_without_records_are_identified_by_the_declared_dataset() -> None:
    other = other_workload(dataset={"source": "jsonl", "uri": "else.jsonl"})
    assert gate_report(other).reason is GateReason.PASSED, "another file may contain the same prompts"
    bare = gate_report(without_records(other))
    assert (bare.reason, "different prompts" in bare.message) == (GateReason.NOT_COMPARABLE, True)


GATE_WORLD = SyntheticRun(prompts=14, categories=("code",), repeats=3, run_noise=0.003, alpha_spread=0.05, drafts=1)
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
    worlds = {"main": GATE_WORLD, "slow": replace(GATE_WORLD, step_ms={"ngram": 18.0})}
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
    world = replace(GATE_WORLD, repeats=repeats, edits={"spec.baseline": "Skip"})
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
        assert json.loads(printed)["schemaVersion"] == "specbench.io/comparison/v1"


def test_results_without_a_common_cell_are_rejected(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_finished(replace(GATE_WORLD, concurrency=(2,)), tmp_path / "other", UIDS["main"])
    assert gate(tmp_path, "other", "--baseline", str(results / "main"), TRUSTING) == Exit.UNTRUSTWORTHY
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("the later result does not have this cell") == 2, "once for each arm"
    assert exit_code(["compare", str(results / "main"), str(tmp_path / "other")]) == Exit.BAD_INPUT
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
    plan = store_results(GATE_WORLD, tmp_path / "open", UIDS["main"], points=1)
    place = {"open": tmp_path / "open" / run_root(plan.namespace, plan.name, plan.uid)}.get(str(baseline))
    gate_spec = Gate(baseline_ref=BaselineRef(run="main"))
    request = GateRequest(gate_digest="abc", gate=gate_spec, baseline=str(place or tmp_path / "nowhere"))
    code, message = job(monkeypatch, tmp_path, root_of(results, "main"), request.to_line() if baseline else "{}")
    assert (code, message["reason"]) == (Exit.BAD_INPUT, reason)
