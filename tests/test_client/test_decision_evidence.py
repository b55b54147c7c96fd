"""Ratios with intervals: p-values agree with the conclusion, and quotients combine both intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.recommendation import RecommendationAnswer
from specbench_client.analysis.decision.recommendation import recommend
from specbench_client.analysis.decision.request import RecommendationRequest
from specbench_client.analysis.estimates.figure_ratios import (
    degrees_of_freedom,
    figure_ratio,
    is_larger,
    map_figure,
    ratio_p_value,
)
from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.statistics.bootstrap import t_bounds
from specbench_testing.decision_summaries import Given, figure, plan_of, summary_of
from specbench_testing.present import present
from specbench_testing.result_pairs import TwoResults

RATIOS = st.floats(0.1, 10)
HALVES = st.floats(0.001, 1)


@pytest.mark.parametrize(("run_noise", "spread"), [(0.0, 0.3), (0.1, 0.02)])
def test_p_value_is_the_one_used_for_the_conclusion(run_noise: float, spread: float) -> None:
    _, after = TwoResults(run_noise=run_noise, spread=spread, slower=1.6).measured(3)
    made = paired_speedup(SPEEDUP, present(after.pairs), 1)
    assert ratio_p_value(made.figure, degrees_of_freedom(made.figure)) == pytest.approx(present(made.p_value))


@given(RATIOS, HALVES, st.integers(1, 200))
def test_p_value_is_below_5_percent_exactly_if_the_interval_excludes_1(value: float, half: float, freedom: int) -> None:
    p = present(ratio_p_value(figure(value, half), freedom))
    if abs(abs(math.log(value)) - half) > 1e-9:
        assert (p < 0.05) == (abs(math.log(value)) > half)


def test_degrees_of_freedom_are_the_intervals_or_n_minus_1() -> None:
    unpaired = figure(1.1)
    paired = unpaired.model_copy(update={"interval": present(unpaired.interval).model_copy(update={"freedom": 2.5})})
    assert [degrees_of_freedom(paired), degrees_of_freedom(unpaired)] == [2.5, 39]


@given(RATIOS, HALVES, RATIOS, HALVES)
def test_interval_of_a_quotient_combines_both(over: float, half: float, under: float, other: float) -> None:
    found = present(figure_ratio(figure(over, half), figure(under, other), "d"))
    assert found.value == pytest.approx(over / under)
    reach = math.hypot(half, other)
    assert math.log(present(found.interval).high / present(found.interval).low) == pytest.approx(2 * reach)


def test_missing_interval_or_value_stays_missing() -> None:
    bare = present(figure_ratio(figure(2.0, None), figure(1.0), "d"))
    assert (bare.value, bare.interval) == (2.0, None)
    assert figure_ratio(figure(None), figure(1.0), "d") is None
    assert ratio_p_value(figure(2.0, None), 3) is None
    assert not is_larger(figure(9.0, None), figure(1.0))


def test_decreasing_function_swaps_the_bounds() -> None:
    found = map_figure(figure(2.0, 0.1), lambda ratio: 1 / ratio, "x", "d")
    assert found.value == 0.5
    assert present(found.interval).low < 0.5 < present(found.interval).high


@pytest.mark.draws
def test_interval_of_a_quotient_covers_the_truth() -> None:
    """Throughputs of five repeats per side with t intervals, and a known true quotient."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(2000):
        sides = [np.exp(rng.normal(math.log(mean), 0.05, 5)) for mean in (150.0, 100.0)]
        sides_with_intervals = []
        for rates in sides:
            bounds = present(t_bounds(float(rates.mean()), rates))
            made = figure(float(rates.mean()))
            interval = present(made.interval).model_copy(update={"low": bounds.low, "high": bounds.high})
            sides_with_intervals.append(made.model_copy(update={"interval": interval}))
        found = present(figure_ratio(sides_with_intervals[0], sides_with_intervals[1], "d"))
        covered += present(found.interval).low <= 1.5 <= present(found.interval).high
    assert 0.94 <= covered / 2000 <= 0.99


def drawn(rng: np.random.Generator, truth: float, arm: str, load: int) -> Given:
    """Return the mean of four log gains around the truth, with their t interval."""
    values = rng.normal(math.log(truth), 0.04, 4)
    bounds = present(t_bounds(float(values.mean()), values))
    gain = math.exp(float(values.mean()))
    return Given(arm, load, tps=100.0 * load, gain=gain, half=(bounds.high - bounds.low) / 2, repeats=4)


def recommendations_of(rng: np.random.Generator, truth: float) -> list[RecommendationAnswer]:
    """Return the recommendation at each of three loads for two arms that are `truth` times as fast."""
    arms, loads = ("eagle3", "ngram"), (1, 8, 32)
    cells = [Given("none", load, tps=100.0 * load, repeats=4) for load in loads]
    cells += [drawn(rng, truth, arm, load) for load in loads for arm in arms]
    by_repeats = [each.cell for each in cells]
    with_repeat_intervals = [
        cell
        if cell.speedup is None or cell.speedup.interval is None
        else cell.model_copy(
            update={
                "speedup": cell.speedup.model_copy(
                    update={
                        "interval": cell.speedup.interval.model_copy(
                            update={"method": "t, unit: repeat", "freedom": 3.0}
                        )
                    }
                )
            }
        )
        for cell in by_repeats
    ]
    summary = summary_of(*cells).model_copy(update={"cells": with_repeat_intervals})
    (choice,) = recommend(plan_of(), summary, RecommendationRequest()).choices
    return [each.answer for each in choice.at_each_load]


@pytest.mark.draws
def test_equal_arms_lead_to_a_recommendation_in_at_most_5_percent_of_runs() -> None:
    """A run has six comparisons; without Holm's correction it would be one run in eight."""
    rng = np.random.default_rng(11)
    wrong = sum(RecommendationAnswer.DRAFTER in recommendations_of(rng, 1.0) for _ in range(300))
    assert wrong / 300 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.draws
def test_much_faster_arms_are_recommended_nearly_always() -> None:
    rng = np.random.default_rng(12)
    right = sum(recommendations_of(rng, 1.6) == [RecommendationAnswer.DRAFTER] * 3 for _ in range(200))
    assert right / 200 >= 0.9
