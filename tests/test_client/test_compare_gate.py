"""Comparison of whole results: what is comparable, which differences are reported, and how a gate decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from specbench_api.plan.plan import Arm
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.engine import PromptCache
from specbench_api.spec.gate import Gate, GateRequest
from specbench_api.spec.load import Level, Load
from specbench_api.spec.workload import ThinkTime
from specbench_client.analysis.compare.comparability import (
    differences,
    refusals,
    shorten_both,
    workload_difference,
)
from specbench_client.analysis.compare.comparison import compare_results, comparison
from specbench_client.analysis.compare.effects import OF_SUMMARIES
from specbench_client.analysis.compare.gate import judge_gate
from specbench_client.documents.comparison import ComparisonGapReason, GateReport, GateTestOutcome
from specbench_client.documents.figure import Verdict
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.summary import Cell
from specbench_client.report.text.comparison import headline as gate_headline
from specbench_client.stored_runs.run import Run
from specbench_testing.corrupted_records import replace_columns, without_counters
from specbench_testing.observed_launches import observed_launch
from specbench_testing.present import present
from specbench_testing.result_pairs import manifests_of, replaced, result_of, without_records
from specbench_testing.synthetic_records import NS_PER_MS, Corruptions, SyntheticRun

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
            ("ClientSaturated", Severity.INVALID),
            ("ChunksCoalesced", Severity.WARNING),
            ("ShortAnswers", Severity.INFO),
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
        (invalid, before, {"onMissing": "Pass"}, GateReason.NOT_COMPARABLE, "nothing was tested"),
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
        (lambda: other_workload(extraBody={"max_tokens": None}), "different request fields"),
        (lambda: other_workload(extraBody={"temperature": None}), "different request fields"),
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
        "no limit",
        "no temperature",
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


def test_every_reason_against_a_comparison_is_named() -> None:
    both = other_workload(output={"maxTokens": 99}, sampling={"temperature": 1.0})
    prompts = with_provenance(both, dataset_fingerprint="other", trace_fingerprint="b")
    found = workload_difference(with_provenance(before(), trace_fingerprint="a"), prompts, "chat")
    assert [reason.split(":")[0] for reason in found.split("; ")] == [
        "different sampling",
        "different output limits",
        "different prompts",
        "different arrival trace",
    ]
    open_loop = replaced(both, plan=both.plan.model_copy(update={"load": Load(rate=[2.0], slots=64)}))
    arrivals, work = refusals(before(), open_loop)
    assert "the arrivals of requests differ" in arrivals
    assert work == f"chat: {workload_difference(before(), open_loop, 'chat')}" != "chat: "
    cells = [each.model_copy(update={"level": Level(concurrency=2)}) for each in cells_but("")]
    elsewhere = replaced(both, summary=both.summary.model_copy(update={"cells": cells}))
    gaps = compare_results(before(), elsewhere, []).uncompared
    assert {gap.reason for gap in gaps} == {ComparisonGapReason.MISSING_BEFORE, ComparisonGapReason.MISSING_AFTER}
    assert all("different sampling" in gap.message for gap in gaps)
    spoilt = replaced(invalid(), plan=both.plan)
    gap = compare_results(before(), spoilt, []).uncompared[0]
    assert gap.reason is ComparisonGapReason.OTHER_WORK
    assert gap.message == f"{workload_difference(before(), spoilt, 'chat')}; invalid in the later result"


def test_every_setting_of_the_load_is_compared() -> None:
    load, workload = before().plan.load, before().plan.workloads[0]
    changed = with_plan(
        load=load.model_copy(update={"requests": None, "requests_per_stream": 7, "stop": "WhenDecayed"}),
        workloads=[workload.model_copy(update={"think_time": ThinkTime(seconds=2)})],
    )
    found = {each.name for each in differences(before(), changed)}
    assert found >= {"load.requestsPerStream", "load.stop", "thinkTime of chat"}


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None, "max_completion_tokens": WORLD.plan.workloads[0].output.max_tokens},
        {"seed": None},
        {"stream_options": None},
    ],
    ids=["renamed limit", "seed", "usage"],
)
def test_fields_that_a_server_rejects_are_no_other_work(fields: dict[str, Any]) -> None:
    assert gate_report(other_workload(extraBody=fields), before()).reason is GateReason.PASSED


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ({"draft_sampling": "greedy"}, {"draft_sampling": "probabilistic"}, "Draft sampling greedy → probabilistic"),
        ({"drafter_at_work": False}, {"drafter_at_work": True}, "Drafter at work false → true"),
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


def test_long_values_are_shown_from_shortly_before_they_differ() -> None:
    same, end = "a" * 300, "c" * 300
    assert shorten_both(f"{same}x{end}", f"{same}y") == (f"…{'a' * 40}x{'c' * 119}…", f"…{'a' * 40}y")
    assert shorten_both("short", "other") == ("short", "other")


def test_result_compared_with_itself_has_no_differences() -> None:
    found = comparison(before(), before(), CREATED)
    assert (found.differences, found.refused, found.uncompared) == ([], [], [])
    assert {cell.conclusion for cell in found.cells} == {Verdict.INDISTINGUISHABLE}
    metrics = ["speedup", "tpot", "ttft p50", "e2e p50", "outputTps", "acceptanceLength"]
    assert [cell.metric for cell in found.cells if cell.arm == "ngram"] == metrics
    assert [cell.metric for cell in found.cells if cell.arm == "none"] == metrics[1:-1], "the baseline has no drafter"


def test_a_comparison_names_untrustworthy_sides_and_only_two_runs_are_of_different_times() -> None:
    again = replaced(before(), summary=before().summary.model_copy(update={"uid": "another"}))
    assert len(comparison(before(), again, CREATED).limits) == len(comparison(before(), before(), CREATED).limits) + 1
    alike = [str(each) for each in comparison(before(), again, CREATED).differences]
    assert alike == [f"run {before().summary.uid} → another"], "their names are equal"
    renamed = replaced(again, summary=again.summary.model_copy(update={"name": "tuesday"}))
    assert comparison(before(), renamed, CREATED).differences == []
    doubt = Finding(check="NoisyRepeats", severity=Severity.WARNING, message="m")
    changes = {"trustworthy": False, "findings": [doubt]}
    doubted = replaced(before(), summary=before().summary.model_copy(update=changes))
    for pair, side in (((doubted, before()), "earlier"), ((before(), doubted), "later")):
        named = [each for each in comparison(*pair, CREATED).limits if "not trustworthy" in each]
        assert [(f"The {side} result" in each, "NoisyRepeats" in each) for each in named] == [(True, True)]


def gaps(after: Run) -> dict[str, str]:
    """Return messages of the ngram arm's figures that could not be compared, by figure."""
    return {gap.metric: gap.message for gap in comparison(before(), after, CREATED).uncompared if gap.arm == "ngram"}


def test_figure_missing_in_one_result_is_reported_although_requests_are_paired() -> None:
    columns = ("steps", "draft_steps", "drafted_tokens", "accepted_tokens", "step_accepted", "acceptance_source")
    without_drafting = replace_columns(**dict.fromkeys(columns))
    after = result_of(WORLD, Corruptions(records=without_drafting.records, counters=without_counters))
    assert gaps(after) == {"acceptanceLength": "the later result has no value for it"}
    assert {cell.metric for cell in comparison(before(), after, CREATED).cells if cell.arm == "ngram"} >= {"tpot"}


def test_figure_that_a_result_has_left_out_is_not_compared_from_its_records() -> None:
    late = replace_columns(intended_ns=lambda _, row: max(0, row["intended_ns"] - 8 * NS_PER_MS))
    assert gaps(result_of(WORLD, late)) == {"ttft p50": "the later result has no value for it"}


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
