"""Whole results beside each other: what is comparable, what is said to differ, and what a gate makes of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from specbench_api.outcome.comparison import LackReason, Standing
from specbench_api.outcome.gate import AskedGate, GateReport, Shown
from specbench_api.outcome.summary import Cell
from specbench_api.plan.plan import Arm
from specbench_api.spec.conditions import GateReason
from specbench_api.spec.gate import Gate
from specbench_api.spec.load import Level, Load
from specbench_client.analysis.compare.comparison import comparison
from specbench_client.analysis.compare.differences import differences
from specbench_client.analysis.compare.gate import judge_gate
from specbench_client.analysis.compare.metrics import OF_SUMMARIES
from specbench_client.analysis.compare.result import Result
from specbench_testing.launched import launched
from specbench_testing.records import World
from specbench_testing.two_results import result_of, without_records

pytestmark = pytest.mark.usefixtures("few_resamples")

WORLD = World(prompts=16, repeats=3, run_noise=0.004)
CREATED = "2026-01-02T03:04:05Z"
SLOW = replace(WORLD, step_ms={"ngram": 14.5})


@cache
def before() -> Result:
    return result_of(WORLD)


@cache
def slow() -> Result:
    return result_of(SLOW)


def gated(after: Result, earlier: Result | None = None, **gate: Any) -> GateReport:
    asked = Gate.model_validate({"baselineRef": {"uri": "results/run"}, "requireTrustworthy": False, **gate})
    return judge_gate(AskedGate(asked="a", gate=asked, baseline="results/run"), earlier or before(), after, CREATED)


@cache
def noisy() -> Result:
    return result_of(replace(WORLD, run_noise=0.08, seed=3))


def planned(**changes: Any) -> Result:
    """The same figures of a run that was asked for otherwise."""
    return replace(before(), plan=before().plan.model_copy(update=changes))


def other_workload(**changes: Any) -> Result:
    workload = before().plan.workloads[0]
    return planned(workloads=[workload.model_validate({**workload.to_dict(), **changes})])


def told(**changes: Any) -> Result:
    """The same run with another summary."""
    return replace(before(), summary=before().summary.model_copy(update=changes))


def seen(result: Result, **changes: Any) -> Result:
    """The same run whose manifests saw something else."""
    observed = {point: each.model_copy(update=changes) for point, each in result.observed.items()}
    return replace(result, observed=observed)


def of_repeats(count: int) -> Result:
    """The same run, stopped after so many repeats."""
    return replace(before(), points={key: each for key, each in before().points.items() if each.repeat < count})


def cells_but(arm: str) -> list[Cell]:
    return [cell for cell in before().summary.cells if cell.arm != arm]


def test_the_same_again_passes_and_every_test_says_what_it_rests_on() -> None:
    report = gated(before())
    assert (report.passed, report.reason) == (True, GateReason.PASSED)
    assert [(test.compared.metric, test.compared.arm) for test in report.tests] == [
        ("speedup", "ngram"),
        ("tpot", "none"),
        ("tpot", "ngram"),
    ]
    for test in report.tests:
        assert test.verdict is Shown.PASSED
        assert test.compared.ratio.value == pytest.approx(1.0)
        assert test.compared.ratio.n == 16
        assert test.compared.repeats == (3, 3)
        assert test.low is not None
        assert test.high is not None
        assert test.low < 1 < test.high
    assert "3 of 3 tests are within their tolerance" in report.message
    assert "measured at different times" in report.limits[0]


def test_a_slower_arm_fails_and_the_message_names_the_worst_and_by_how_much() -> None:
    report = gated(slow())
    assert (report.passed, report.reason) == (False, GateReason.REGRESSED)
    verdicts = {(test.compared.metric, test.compared.arm): test.verdict for test in report.tests}
    assert verdicts["speedup", "ngram"] is verdicts["tpot", "ngram"] is Shown.FAILED
    assert verdicts["tpot", "none"] is Shown.PASSED
    assert report.tests[0].verdict is Shown.FAILED, "the worst first"
    assert "speedup of ngram on chat at 1: 0.8" in report.message
    assert "limit 0.950" in report.message


def test_what_got_better_passes() -> None:
    assert gated(before(), slow()).reason is GateReason.PASSED


def test_a_tolerance_wide_enough_lets_it_pass_and_filters_choose_cells() -> None:
    wide = [{"metric": "speedup", "maxRegressionPercent": 30}]
    assert gated(slow(), tolerances=wide).reason is GateReason.PASSED
    elsewhere = [{"metric": "tpot", "arms": ["none"]}]
    assert gated(slow(), tolerances=elsewhere).reason is GateReason.PASSED
    assert [test.compared.arm for test in gated(slow(), tolerances=elsewhere).tests] == ["none"]


def test_a_filter_that_meets_no_cell_is_no_test_that_was_passed() -> None:
    report = gated(before(), tolerances=[{"metric": "tpot"}, {"metric": "speedup", "arms": ["ngrom"]}])
    assert (report.passed, report.reason) == (False, GateReason.CELLS_MISSING)
    assert "the tolerance of speedup for ngrom meets no cell" in report.message


def test_two_tolerances_of_one_metric_are_two_tests_and_not_four() -> None:
    twice = [{"metric": "tpot", "maxRegressionPercent": 3}, {"metric": "tpot", "maxRegressionPercent": 9}]
    assert len(gated(before(), tolerances=twice).tests) == 4, "two arms"


def test_too_few_repeats_are_inconclusive_and_say_how_many_are_needed() -> None:
    report = gated(of_repeats(2), of_repeats(2))
    assert (report.passed, report.reason) == (False, GateReason.INCONCLUSIVE)
    assert {(test.verdict, test.repeats_to_decide) for test in report.tests} == {(Shown.INCONCLUSIVE, 3)}
    assert "2 repeats before and 2 after: 3 are needed" in report.message
    assert all(test.low is None and test.compared.ratio.interval is None for test in report.tests)
    assert all(test.compared.standing is Standing.TOO_FEW_REPEATS for test in report.tests)
    assert "3 repeats before and 3 after: 4 are needed" in gated(before(), minRepeats=4).message


def test_noise_beyond_the_tolerance_is_inconclusive_which_passes_only_where_it_was_asked_to() -> None:
    report = gated(noisy(), noisy())
    assert (report.passed, report.reason) == (False, GateReason.INCONCLUSIVE)
    assert "repeats on each side would decide" in report.message
    lenient = gated(noisy(), noisy(), inconclusive="Pass")
    assert (lenient.passed, lenient.reason) == (True, GateReason.INCONCLUSIVE)


def test_an_arm_that_was_not_measured_is_missing_and_fails_unless_that_was_allowed() -> None:
    without = told(cells=cells_but("ngram"))
    report = gated(without)
    assert (report.passed, report.reason) == (False, GateReason.CELLS_MISSING)
    assert "ngram on chat at 1 (the later result does not have it)" in report.message
    assert gated(without, onMissing="Pass").reason is GateReason.PASSED


def test_an_arm_that_is_new_is_told_and_fails_nothing() -> None:
    more = [cell.model_copy(update={"arm": "other"}) for cell in cells_but("none")]
    report = gated(told(cells=[*before().summary.cells, *more]))
    assert report.reason is GateReason.PASSED
    assert [(each.arm, each.reason) for each in report.uncompared] == [("other", LackReason.MISSING_BEFORE)]


def test_a_cell_that_a_check_broke_is_not_compared() -> None:
    broken = [cell.model_copy(update={"valid": False, "findings": ["CutAnswers"]}) for cell in cells_but("none")]
    report = gated(told(cells=[*cells_but("ngram"), *broken]))
    assert report.reason is GateReason.CELLS_MISSING
    assert [(each.arm, each.reason) for each in report.uncompared] == [("ngram", LackReason.INVALID)]
    assert "invalid in the later result: CutAnswers" in report.message


def test_results_of_which_no_cell_is_valid_lack_cells_and_are_still_the_same_question() -> None:
    broken = [cell.model_copy(update={"valid": False, "findings": ["ClientSaturated"]}) for cell in cells_but("")]
    report = gated(told(cells=broken))
    assert (report.passed, report.reason, report.refused) == (False, GateReason.CELLS_MISSING, [])
    lenient = gated(told(cells=broken), onMissing="Pass")
    assert (lenient.passed, lenient.reason) == (False, GateReason.INCONCLUSIVE), "nothing was shown"


def test_an_untrustworthy_side_fails_where_trust_is_required_and_is_named() -> None:
    doubted = told(trustworthy=False, verdict="not trustworthy (FewPrompts)")
    later = gated(doubted, requireTrustworthy=True)
    assert (later.passed, later.reason) == (False, GateReason.UNTRUSTWORTHY)
    assert later.message == "the later result: not trustworthy (FewPrompts)"
    earlier = gated(before(), doubted, requireTrustworthy=True)
    assert earlier.message == "the earlier result: not trustworthy (FewPrompts)"
    assert gated(doubted).reason is GateReason.PASSED


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (lambda: seen(before(), dataset_fingerprint="other"), "other prompts: fingerprint f → other"),
        (lambda: other_workload(output={"maxTokens": 99}), "other limits of the answers"),
        (lambda: other_workload(sampling={"temperature": 1.0}), "other sampling"),
        (lambda: other_workload(extraBody={"top_k": 3}), "other fields of the requests"),
        (
            lambda: other_workload(chatTemplate={"appliedBy": "Client", "kwargs": {"a": 1}}),
            'other chat template: the engine\'s own → by the client, [{"a": 1}, "2026-01-01"]',
        ),
    ],
    ids=["prompts", "limits", "sampling", "fields", "template"],
)
def test_other_work_is_refused_with_the_reason(after: Any, message: str) -> None:
    report = gated(after())
    assert (report.passed, report.reason) == (False, GateReason.NOT_COMPARABLE)
    assert message in report.message
    assert report.tests == []


@pytest.mark.parametrize(
    ("field", "words"),
    [("chat_template_sha256", "another chat template"), ("tokenizer_sha256", "another tokenizer of the chat template")],
)
def test_prompts_that_another_template_made_are_other_work(field: str, words: str) -> None:
    report = gated(seen(before(), **{field: "two"}), seen(before(), **{field: "one"}))
    assert f"{words}: fingerprint one → two" in report.message


def test_a_simulation_is_not_compared_with_a_measurement() -> None:
    report = gated(told(simulated=True))
    assert report.reason is GateReason.NOT_COMPARABLE
    assert "the later result is a simulation" in report.message


def test_other_loads_have_no_cell_in_common() -> None:
    report = gated(told(cells=[cell.model_copy(update={"level": Level(concurrency=2)}) for cell in cells_but("")]))
    assert report.reason is GateReason.NOT_COMPARABLE
    assert "no cell (arm × workload × load) in common" in report.message


def test_an_open_loop_is_not_compared_with_a_closed_one() -> None:
    report = gated(planned(load=Load(rate=[2.0], slots=64)))
    assert "requests come otherwise: closed loop → Poisson" in report.message


def test_what_else_differs_is_listed_with_both_values() -> None:
    arms = before().plan.arms
    drafter = arms[1].drafter
    assert drafter is not None
    changed = planned(
        target=before().plan.target.model_copy(update={"revision": "v2"}),
        arms=[arms[0], Arm(name="ngram", drafter=drafter.model_copy(update={"num_speculative_tokens": 4}))],
    )
    old = replace(seen(before(), engine_version="0.1"), launches=(launched(gpu="H100", driver="550"),))
    new = replace(seen(changed, engine_version="0.2"), launches=(launched(gpu="H200", driver="550"),))
    found = differences(old, new)
    by_name = {each.what: (each.before, each.after) for each in found}
    assert by_name["GPU"] == ("H100", "H200")
    assert by_name["Engine version"] == ("0.1", "0.2")
    assert by_name["Model"] == ("acme/tiny@main", "acme/tiny@v2")
    assert by_name["Drafter ngram: numSpeculativeTokens"] == ("3", "4")
    assert set(by_name) == {"GPU", "Engine version", "Model", "Drafter ngram: numSpeculativeTokens"}
    assert str(found[0]) == "Model acme/tiny@main → acme/tiny@v2"


def test_unseen_hardware_on_one_side_is_said() -> None:
    known = replace(before(), launches=(launched(gpu="H100"),))
    assert [str(each) for each in differences(before(), known)] == ["Hardware not known → seen"]


def test_the_same_result_twice_differs_in_nothing() -> None:
    found = comparison(before(), before(), CREATED)
    assert (found.differences, found.refused, found.uncompared) == ([], [], [])
    assert {cell.standing for cell in found.cells} == {Standing.INDISTINGUISHABLE}
    metrics = ["speedup", "tpot", "ttft p50", "e2e p50", "outputTps", "acceptanceLength"]
    assert [cell.metric for cell in found.cells if cell.arm == "ngram"] == metrics
    assert [cell.metric for cell in found.cells if cell.arm == "none"] == metrics[1:-1], "the baseline has no drafter"


def test_better_and_worse_are_said_by_what_is_better_of_each_figure() -> None:
    worse = {cell.metric: cell.standing for cell in comparison(before(), slow(), CREATED).cells if cell.arm == "ngram"}
    better = {cell.metric: cell.standing for cell in comparison(slow(), before(), CREATED).cells if cell.arm == "ngram"}
    for metric in ("speedup", "tpot", "outputTps"):
        assert (worse[metric], better[metric]) == (Standing.WORSE, Standing.BETTER), metric
    assert worse["acceptanceLength"] is worse["ttft p50"] is Standing.INDISTINGUISHABLE


def test_without_records_the_summaries_speak_with_wider_intervals_and_it_is_said() -> None:
    report, alone = gated(slow()), gated(without_records(slow()))
    pairs = list(zip(_by_place(report).values(), _by_place(alone).values(), strict=True))
    assert pairs
    for whole, bare in pairs:
        assert bare.compared.ratio.value == pytest.approx(whole.compared.ratio.value, rel=0.02)
        assert bare.low is not None
        assert whole.low is not None
        assert bare.low < whole.low
        assert bare.compared.ratio.interval is not None
        assert OF_SUMMARIES in bare.compared.ratio.interval.method


def _by_place(report: GateReport) -> dict[tuple[str, str], Any]:
    return {(test.compared.metric, test.compared.arm): test for test in sorted(report.tests, key=str)}


def test_without_records_other_prompts_are_known_by_what_was_declared() -> None:
    other = other_workload(dataset={"source": "jsonl", "uri": "else.jsonl"})
    assert gated(other).reason is GateReason.PASSED, "another file with the same prompts"
    bare = gated(without_records(other))
    assert (bare.reason, "other prompts" in bare.message) == (GateReason.NOT_COMPARABLE, True)


def test_the_same_two_results_give_the_same_report() -> None:
    report = gated(slow())
    assert report == gated(slow())
    assert GateReport.from_json(report.to_json()) == report
