"""One log ratio with its uncertainty: Welch's own figures, bounds and p-values of one mind, what both sides share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specbench_client.analysis.compare.estimate import (
    REPEATS_MOST,
    Estimate,
    over_repeats,
    repeats_to_decide,
    wider,
)
from specbench_client.analysis.compare.figures import Measured, percentile, ratio, speedup
from specbench_client.metrics.frame import tidy
from specbench_client.metrics.pace import TPOT_MS, TPOT_MS_POOLED
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_testing.records import World
from specbench_testing.two_results import TwoResults, measured_of

LOGS = st.lists(st.floats(-1, 1), min_size=3, max_size=6)
ESTIMATES = st.builds(
    Estimate,
    value=st.floats(-1, 1),
    below=st.floats(0.001, 1),
    above=st.floats(0.001, 1),
    freedom=st.floats(1, 50),
    method=st.just(""),
)


@given(LOGS, LOGS)
def test_over_repeats_it_is_welch_as_scipy_has_him(before: list[float], after: list[float]) -> None:
    old, new = np.array(before), np.array(after)
    if old.std() < 1e-6 or new.std() < 1e-6:
        return
    found = over_repeats(float(new.mean() - old.mean()), old, new)
    theirs = stats.ttest_ind(new, old, equal_var=False)
    assert found is not None
    assert found.freedom == pytest.approx(theirs.df)
    assert found.p_two_sided() == pytest.approx(theirs.pvalue, rel=1e-6)
    assert found.p_above(0.0) == pytest.approx(stats.ttest_ind(new, old, equal_var=False, alternative="greater").pvalue)


@given(ESTIMATES, st.floats(-2, 2), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_a_bound_and_its_p_value_never_disagree(estimate: Estimate, limit: float, confidence: float) -> None:
    below, above = estimate.p_below(limit), estimate.p_above(limit)
    if min(abs(below - (1 - confidence)), abs(above - (1 - confidence))) > 1e-9:
        assert (below < 1 - confidence) == (estimate.high(confidence) < limit)
        assert (above < 1 - confidence) == (estimate.low(confidence) > limit)


@given(ESTIMATES, st.floats(-2, 2))
def test_the_inverse_ratio_is_the_same_seen_in_a_mirror(estimate: Estimate, limit: float) -> None:
    turned = estimate.mirrored()
    assert turned.mirrored() == estimate
    assert turned.p_above(-limit) == pytest.approx(estimate.p_below(limit))
    assert turned.low(0.95) == pytest.approx(-estimate.high(0.95))


def test_without_any_noise_a_difference_is_certain_and_none_is_none() -> None:
    same = over_repeats(0.125, np.zeros(3), np.full(3, 0.125))
    assert same is not None
    assert (same.p_above(0.0), same.p_below(0.0), same.p_above(0.125)) == (0.0, 1.0, 1.0)
    assert same.low(0.95) == same.high(0.95) == 0.125


def test_one_repeat_or_an_infinite_one_tells_nothing_of_runs() -> None:
    assert over_repeats(0.0, np.zeros(1), np.zeros(3)) is None
    assert over_repeats(0.0, np.array([0.0, -np.inf]), np.zeros(3)) is None


def test_the_wider_one_is_taken_and_runs_alone_say_nothing_of_other_prompts() -> None:
    narrow, wide = (Estimate(0.0, error, error, 10, "") for error in (0.1, 0.2))
    assert wider(narrow, wide) is wide
    assert wider(wide, narrow) is wide
    assert wider(narrow, None) is narrow
    assert wider(None, wide) is None


def test_repeats_to_decide_are_those_whose_interval_just_keeps_off_the_limit() -> None:
    estimate = over_repeats(0.0, np.array([-0.03, 0.0, 0.03]), np.array([-0.03, 0.0, 0.03]))
    assert estimate is not None
    limit = float(np.log(0.95))
    needed = repeats_to_decide(estimate, limit, 0.95)
    assert needed is not None

    def reach(repeats: int) -> float:
        return float(stats.t.ppf(0.95, 2 * repeats - 2) * np.sqrt(2 * 0.03**2 / repeats))

    assert reach(needed) < -limit < reach(needed - 1)
    assert repeats_to_decide(estimate, 1e-6, 0.95) is None, f"more than {REPEATS_MOST} are nothing to advise"
    assert repeats_to_decide(Estimate(0.0, 0.1, 0.1, 9, ""), limit, 0.95) is None, "prompts decide here"


def test_a_known_change_is_recovered_and_is_the_speedups_own_ratio() -> None:
    found = speedup(*TwoResults(prompts=400, slower=1.1, run_noise=0.0).measured(1), 0)
    assert found is not None
    assert found.after / found.before == pytest.approx(1 / 1.1, rel=0.005)
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(np.log(found.after / found.before))
    assert (found.repeats, found.units) == ((3, 3), 400)


def test_what_only_one_side_answered_counts_on_neither() -> None:
    prompt, repeat = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    flat = np.full(6, 10.0)
    before = measured_of(prompt, repeat, {BASELINE: flat, ARM: np.array([5.0, 5, 5, 5, 5, 5])})
    slow = np.array([5.0, 5, 900, 5, 5, 900])
    after = measured_of(np.array([0, 1, 7, 0, 1, 7]), repeat, {BASELINE: flat, ARM: slow})
    found = speedup(before, after, 0)
    assert found is not None
    assert (found.after / found.before, found.units) == (1.0, 2)


def test_a_request_that_one_side_answered_less_often_weighs_the_same_on_both() -> None:
    """The slow prompt lost a repeat to the ramp on one side: without weights that side would look faster."""
    flat, prompt, repeat = np.full(6, 10.0), np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1])
    pace = np.array([5.0, 6, 50, 5, 6, 50])
    before = measured_of(prompt, repeat, {BASELINE: flat, ARM: pace})
    after = measured_of(prompt[:-1], repeat[:-1], {BASELINE: flat[:-1], ARM: pace[:-1]})
    found = speedup(before, after, 0)
    assert found is not None
    assert found.after / found.before == pytest.approx(1.0)


def rows_of(world: World, repeat: int | None = None) -> Measured:
    points = [each for each in world.plan.points if each.arm == "ngram" and repeat in (None, each.repeat)]
    return Measured(tidy([world.records(point) for point in points], "p"), None)


def test_results_without_a_request_in_common_have_nothing_to_compare() -> None:
    before, after = rows_of(World(prompts=4)), rows_of(World(prompts=4))
    other = Measured(after.rows.assign(prompt_id="else"), None)
    assert ratio(TPOT_MS_POOLED)(before, other, 0) is None
    assert percentile(TPOT_MS, 50)(before, other, 0) is None
    assert speedup(before, other, 0) is None


def test_later_turns_are_the_same_request_only_after_the_same_replies() -> None:
    world = World(prompts=6, turns=2, repeats=1)
    before = rows_of(world)
    changed = before.rows.assign(output_sha256=before.rows["output_sha256"] + 1)
    both = ratio(TPOT_MS_POOLED)(before, before, 0)
    first_turns_alone = ratio(TPOT_MS_POOLED)(before, Measured(changed, None), 0)
    assert both is not None
    assert first_turns_alone is not None
    assert first_turns_alone.before != both.before
    firsts = Measured(before.rows[(before.rows["turn"] == 0).to_numpy(bool)].reset_index(drop=True), None)
    alone = ratio(TPOT_MS_POOLED)(firsts, firsts, 0)
    assert alone is not None
    assert first_turns_alone.before == alone.before


def test_a_percentile_with_few_requests_beyond_it_has_no_interval() -> None:
    few, many = World(prompts=12), World(prompts=60)
    short = percentile(TPOT_MS, 95)(rows_of(few), rows_of(few), 0)
    long_ = percentile(TPOT_MS, 95)(rows_of(many), rows_of(many), 0)
    assert short is not None
    assert short.estimate is None
    assert long_ is not None
    assert long_.estimate is not None
    assert long_.before == long_.after == pytest.approx(np.percentile(TPOT_MS.values(rows_of(many).rows), 95), rel=0.05)


@pytest.mark.parametrize("percent", [50, 95])
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_percentile_is_that_of_the_runs_own_report(percent: int, repeats: int) -> None:
    before = rows_of(World(prompts=40, repeats=repeats))
    spread = before.rows["last_token_ns"] + np.arange(len(before.rows)) ** 2 * 1_000_000
    before = Measured(before.rows.assign(last_token_ns=spread), None)
    found = percentile(TPOT_MS, percent)(before, before, 0)
    assert found is not None
    assert found.before == pytest.approx(np.percentile(TPOT_MS.values(before.rows), percent), rel=1e-9)


def test_rows_without_the_figure_are_left_out_on_both_sides() -> None:
    world = World(prompts=6, repeats=1)
    before = rows_of(world)
    mute = before.rows.assign(tokens=np.nan)
    assert ratio(TPOT_MS_POOLED)(before, Measured(mute, None), 0) is None
