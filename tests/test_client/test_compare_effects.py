"""The effect of a change between two results: Welch's values, repeats to decide, and shared requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specbench_api.spec.gate import GateMetric, Tolerance
from specbench_client.analysis.compare.comparison import ComparisonRow
from specbench_client.analysis.compare.effects import (
    REPEATS_MOST,
    FigureOnBothSides,
    of_stopped_runs,
    over_repeats,
    percentile,
    ratio,
    repeats_to_decide,
    speedup,
)
from specbench_client.analysis.compare.gate import GateTrial, gate_outcomes
from specbench_client.analysis.compare.metrics import comparable_metric
from specbench_client.analysis.compare.shared_requests import ComparedArm, MeasuredArm
from specbench_client.analysis.statistics.effects import Effect
from specbench_client.documents.comparison import GateTestOutcome
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.metrics.time_per_token import TPOT_MS, TPOT_MS_POOLED
from specbench_client.numpy_columns import Values
from specbench_testing.present import present
from specbench_testing.result_pairs import TwoResults, measured_of
from specbench_testing.synthetic_records import SyntheticRun, tidy_frames
from specbench_testing.tables import filled

LOGS = st.lists(st.floats(-1, 1), min_size=3, max_size=6)
BARE = Effect(0.0, 20, 3)


@given(LOGS, LOGS)
def test_estimate_over_repeats_equals_scipys_welch_test(before: list[float], after: list[float]) -> None:
    old, new = np.array(before), np.array(after)
    if old.std() < 1e-6 or new.std() < 1e-6:
        return
    found = over_repeats(replace(BARE, value=float(new.mean() - old.mean())), old, new)
    theirs = stats.ttest_ind(new, old, equal_var=False)
    assert present(found.chosen).freedom == pytest.approx(theirs.df)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-6)
    assert found.p_above(0.0) == pytest.approx(stats.ttest_ind(new, old, equal_var=False, alternative="greater").pvalue)


def test_difference_without_noise_is_certain() -> None:
    same = over_repeats(replace(BARE, value=0.125), np.zeros(3), np.full(3, 0.125))
    assert (same.p_above(0.0), same.p_below(0.0), same.p_above(0.125)) == (0.0, 1.0, 1.0)
    assert same.low(0.95) == same.high(0.95) == 0.125


def test_one_repeat_or_an_infinite_value_gives_no_estimate_over_repeats() -> None:
    assert over_repeats(BARE, np.zeros(1), np.zeros(3)) == BARE
    assert over_repeats(BARE, np.array([0.0, -np.inf]), np.zeros(3)) == BARE


def test_repeats_to_decide_is_the_smallest_sufficient_number() -> None:
    effect = over_repeats(BARE, np.array([-0.03, 0.0, 0.03]), np.array([-0.03, 0.0, 0.03]))
    limit = float(np.log(0.95))
    needed = present(repeats_to_decide(effect, limit, 0.95))

    def reach(repeats: int) -> float:
        return float(stats.t.ppf(0.95, 2 * repeats - 2) * np.sqrt(2 * 0.03**2 / repeats))

    assert reach(needed) < -limit < reach(needed - 1)
    assert repeats_to_decide(effect, 1e-6, 0.95) is None, f"more than {REPEATS_MOST} are not advised"
    assert repeats_to_decide(BARE.with_errors(0.1, 0.1, 9, ""), limit, 0.95) is None, (
        "more prompts are needed, not more repeats"
    )


def test_known_change_is_recovered() -> None:
    found = present(speedup(ComparedArm(*TwoResults(prompts=400, slower=1.1, run_noise=0.0).measured(1)), 0))
    assert found.after / found.before == pytest.approx(1 / 1.1, rel=0.005)
    assert found.effect.value == pytest.approx(np.log(found.after / found.before))
    assert (found.repeats, found.effect.units) == ((3, 3), 400)


def test_requests_that_only_one_side_answered_are_left_out() -> None:
    prompt, repeat = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    flat = np.full(6, 10.0)
    before = measured_of(prompt, repeat, {"baseline": flat, "arm": np.array([5.0, 5, 5, 5, 5, 5])})
    slow = np.array([5.0, 5, 900, 5, 5, 900])
    after = measured_of(np.array([0, 1, 7, 0, 1, 7]), repeat, {"baseline": flat, "arm": slow})
    found = present(speedup(ComparedArm(before, after), 0))
    assert (found.after / found.before, found.effect.units) == (1.0, 2)


def test_request_answered_less_often_on_one_side_has_equal_weight() -> None:
    """The slow prompt lost a repeat to the ramp on one side; without weights that side would look faster."""
    flat, prompt, repeat = np.full(6, 10.0), np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    pace = np.array([5.0, 6, 50, 5, 6, 50])
    before = measured_of(prompt, repeat, {"baseline": flat, "arm": pace})
    after = measured_of(prompt[:-1], repeat[:-1], {"baseline": flat[:-1], "arm": pace[:-1]})
    found = present(speedup(ComparedArm(before, after), 0))
    assert found.after / found.before == pytest.approx(1.0)


PACES = np.random.default_rng(7).lognormal(2.0, 0.3, (2, 2, 4, 24))
"""ms per token of the baseline and the arm, before and after, of 24 prompts in each of 4 repeats."""


def stopped_side(pace: Values, *, own_prompts: bool, anytime: bool = True) -> MeasuredArm:
    """One result that may have stopped; `pace` of the baseline and the arm, shape (2, repeats, prompts)."""
    _, repeats, prompts = pace.shape
    repeat, prompt = (each.ravel() for each in np.indices((repeats, prompts)))
    known = prompt % repeats == repeat if own_prompts else prompt >= 0
    flat = pace.reshape(2, -1)[:, known]
    side = measured_of(prompt[known], repeat[known], {"baseline": flat[0], "arm": flat[1]})
    return replace(side, pairs=replace(present(side.pairs), anytime=anytime))


def log_speedups(pace: Values, *, own_prompts: bool) -> Values:
    """Log of the speed-up in each repeat, shape (repeats,)."""
    repeat, prompt = np.indices(pace.shape[1:])
    times = (pace * (prompt % len(pace[0]) == repeat) if own_prompts else pace).sum(axis=2)
    return np.asarray(np.log(times[0] / times[1]))


@pytest.mark.parametrize("own", [(True, True), (False, False), (True, False), (False, True)], ids=str)
def test_stopped_runs_add_the_variation_of_prompts_that_the_repeats_of_a_side_share(own: tuple[bool, bool]) -> None:
    sides = [stopped_side(pace, own_prompts=each) for pace, each in zip(PACES, own, strict=True)]
    effect = present(speedup(ComparedArm(*sides), 0)).effect
    before, after = (log_speedups(pace, own_prompts=each) for pace, each in zip(PACES, own, strict=True))
    runs = of_stopped_runs(BARE, (before, after), (None, None))
    assert effect.value == pytest.approx(after.mean() - before.mean()) == pytest.approx(runs.value)
    mine, theirs = np.array(effect.distances), np.array(runs.distances)
    if all(own):
        assert mine == pytest.approx(theirs)
        return
    assert (mine > theirs).all()
    if not any(own):
        whole = PACES.sum(axis=2)
        influence = np.einsum(
            "s,s...->...", [-1, 1], [each[0] / each[0].sum() - each[1] / each[1].sum() for each in whole]
        )
        error = np.sqrt(24 / 23 * (influence**2).sum())
        assert np.sqrt(mine**2 - theirs**2) == pytest.approx(stats.t.ppf(0.975, 23) * error, rel=0.1)


def test_a_comparison_adds_prompts_if_one_side_alone_stopped_and_needs_enough_of_them() -> None:
    fixed, free = (stopped_side(PACES[0], own_prompts=False, anytime=each) for each in (False, True))
    after = stopped_side(PACES[1], own_prompts=False)
    both, one = (present(speedup(ComparedArm(side, after), 0)).effect for side in (free, fixed))
    assert one.distances == both.distances
    few = [stopped_side(pace[:, :, :2], own_prompts=False) for pace in PACES]
    assert present(speedup(ComparedArm(*few), 0)).effect.chosen is None


def rows_of(world: SyntheticRun, repeat: int | None = None) -> MeasuredArm:
    points = [each for each in world.plan.points if each.arm == "ngram" and repeat in (None, each.repeat)]
    return MeasuredArm(tidy_frames([world.records(point) for point in points], "p"), None)


def table(side: MeasuredArm) -> Table:
    assert isinstance(side.rows, Table)
    return side.rows


def test_results_without_a_common_request_have_no_comparison() -> None:
    before, after = rows_of(SyntheticRun(prompts=4)), rows_of(SyntheticRun(prompts=4))
    other = MeasuredArm(filled(table(after), prompt_id="else"), None)
    assert ratio(TPOT_MS_POOLED)(ComparedArm(before, other), 0) is None
    assert percentile(TPOT_MS, 50)(ComparedArm(before, other), 0) is None
    assert speedup(ComparedArm(before, other), 0) is None


def test_later_turns_are_the_same_request_only_after_equal_replies() -> None:
    world = SyntheticRun(prompts=6, turns=2, repeats=1)
    before = rows_of(world)
    changed = table(before).assign(output_sha256=numbers(before.rows, "output_sha256") + 1)
    both = ratio(TPOT_MS_POOLED)(ComparedArm(before, before), 0)
    first_turns_alone = present(ratio(TPOT_MS_POOLED)(ComparedArm(before, MeasuredArm(changed, None)), 0))
    assert both is not None
    assert first_turns_alone.before != both.before
    firsts = MeasuredArm(before.rows.among(numbers(before.rows, "turn") == 0), None)
    alone = present(ratio(TPOT_MS_POOLED)(ComparedArm(firsts, firsts), 0))
    assert first_turns_alone.before == alone.before


def test_percentile_with_few_requests_beyond_it_has_no_interval() -> None:
    few, many = SyntheticRun(prompts=12), SyntheticRun(prompts=60)
    short = percentile(TPOT_MS, 95)(ComparedArm(rows_of(few), rows_of(few)), 0)
    long_ = percentile(TPOT_MS, 95)(ComparedArm(rows_of(many), rows_of(many)), 0)
    assert short is not None
    assert short.effect.chosen is None
    assert percentile(TPOT_MS, 99)(ComparedArm(rows_of(few), rows_of(few)), 0) is None, "36 requests have none"
    assert percentile(TPOT_MS, 99)(ComparedArm(rows_of(many), rows_of(many)), 0) is not None
    assert long_ is not None
    assert long_.effect.chosen is not None
    assert long_.before == long_.after == pytest.approx(np.percentile(TPOT_MS.values(rows_of(many).rows), 95), rel=0.05)


@pytest.mark.parametrize("percent", [50, 95])
@pytest.mark.parametrize("repeats", [1, 3])
def test_percentile_equals_that_of_the_runs_report(percent: int, repeats: int) -> None:
    before = rows_of(SyntheticRun(prompts=40, repeats=repeats))
    spread = numbers(before.rows, "last_token_ns") + np.arange(len(before.rows)) ** 2 * 1_000_000
    before = MeasuredArm(table(before).assign(last_token_ns=spread), None)
    found = present(percentile(TPOT_MS, percent)(ComparedArm(before, before), 0))
    assert found.before == pytest.approx(np.percentile(TPOT_MS.values(before.rows), percent), rel=1e-9)


def test_rows_without_the_figure_are_left_out_on_both_sides() -> None:
    world = SyntheticRun(prompts=6, repeats=1)
    before = rows_of(world)
    without_tokens = filled(table(before), tokens=np.nan, timed_tokens=np.nan)
    assert ratio(TPOT_MS_POOLED)(ComparedArm(before, MeasuredArm(without_tokens, None)), 0) is None


# Error rates of a gate: false alarms, missed regressions, and the smallest regression that it detects reliably.


TOLERANCE = Tolerance(metric=GateMetric.SPEEDUP)
LIMIT = float(np.log(0.95))
CONFIDENCE = 0.95


def compared_speedup(two: TwoResults, seed: int) -> FigureOnBothSides:
    return present(speedup(ComparedArm(*two.measured(seed)), seed))


def trial(two: TwoResults, seed: int) -> GateTrial:
    row = ComparisonRow(("ngram", "chat", "1"), comparable_metric(GateMetric.SPEEDUP), compared_speedup(two, seed))
    return GateTrial(row, TOLERANCE, LIMIT, row.result.effect)


def gates(two: TwoResults, cells: int, experiments: int) -> Iterator[list[GateTestOutcome]]:
    """Yield the outcomes of all cells of each gate; cells are independent of each other."""
    for number in range(experiments):
        yield gate_outcomes([trial(two, number * cells + cell) for cell in range(cells)], CONFIDENCE)


def outcome_counts(two: TwoResults, experiments: int) -> Counter[GateTestOutcome]:
    return Counter(verdict for (verdict,) in gates(two, 1, experiments))


@pytest.mark.draws
@pytest.mark.long
@pytest.mark.parametrize(
    "two",
    [TwoResults(run_noise=0.05), TwoResults(run_noise=0.0, jitter=0.1, prompts=8, own=0.05)],
    ids=["noisy", "few prompts with individual changes"],
)
def test_unchanged_gate_of_eight_cells_fails_at_most_once_in_twenty(two: TwoResults) -> None:
    alarms = sum(GateTestOutcome.FAILED in verdicts for verdicts in gates(two, cells=8, experiments=40))
    assert alarms <= 0.05 * 40


@pytest.mark.draws
@pytest.mark.long
def test_eight_cells_at_the_tolerance_fail_no_more_often_than_one() -> None:
    """This is the worst case for Holm's correction: 5 % of 60 plus two standard errors."""
    at_the_limit = TwoResults(run_noise=0.02, slower=1 / 0.95)
    alarms = sum(GateTestOutcome.FAILED in verdicts for verdicts in gates(at_the_limit, cells=8, experiments=60))
    assert alarms <= 6


@pytest.mark.draws
@pytest.mark.long
@pytest.mark.parametrize("two", [TwoResults(run_noise=0.02), TwoResults(run_noise=0.02, repeats=6)], ids=["3", "6"])
def test_regression_of_exactly_the_tolerance_keeps_both_error_rates(
    two: TwoResults,
) -> None:
    at_the_limit = TwoResults(**{**two.__dict__, "slower": 1 / 0.95})
    counts = outcome_counts(at_the_limit, 200)
    assert counts[GateTestOutcome.PASSED] <= 0.1 * 200, "wrong passes: at most 5 % plus three standard errors of 200"
    assert counts[GateTestOutcome.FAILED] <= 0.1 * 200


@pytest.mark.draws
@pytest.mark.long
@pytest.mark.parametrize(("repeats", "power"), [(3, 0.7), (5, 0.95)])
def test_regression_of_15_percent_in_one_of_eight_cells_is_detected(repeats: int, power: float) -> None:
    same, worse = (TwoResults(run_noise=0.01, repeats=repeats, slower=slower) for slower in (1.0, 1 / 0.85))
    seen: Counter[GateTestOutcome] = Counter()
    for number in range(40):
        trials = [trial(same, 8 * number + cell) for cell in range(7)]
        seen[gate_outcomes([*trials, trial(worse, 8 * number + 7)], CONFIDENCE)[-1]] += 1
    assert seen[GateTestOutcome.FAILED] >= power * 40
    assert seen[GateTestOutcome.PASSED] == 0


@pytest.mark.draws
def test_common_prompts_narrow_the_interval() -> None:
    """Without pairing, the variation between prompts (30 %) would count as noise of the comparison."""
    estimate = present(compared_speedup(TwoResults(run_noise=0.002), 1).effect)
    assert estimate.high(0.975) - estimate.low(0.975) < 0.1
