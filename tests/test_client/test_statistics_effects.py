"""Effects: log ratios of sums, intervals and p-values that agree, verdicts, and quotients of figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.statistics.bootstrap import ChosenInterval, IntervalBounds, draw_and_sum
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value
from specbench_client.analysis.statistics.effects import (
    Effect,
    LogRatioInputs,
    figure_effect,
    figure_ratio,
    holm_rejections,
    is_larger,
    log_of_product,
    log_ratio,
    map_figure,
    verdicts,
)
from specbench_client.analysis.statistics.intervals import ratio_influence
from specbench_client.analysis.statistics.row_layout import CellSums, layout_of
from specbench_client.columns import Values
from specbench_client.documents.figure import Verdict
from specbench_testing.decision_summaries import figure
from specbench_testing.present import present
from specbench_testing.result_pairs import TwoResults
from specbench_testing.tables import table_of

approx: Any = pytest.approx
"""Of type Any, because it stands for a float in tuples and intervals."""

PROMPTS = 8
FEW = 2
SIGNS = {"a": 1, "b": -1}
RUNS = np.array([1.0, 1.3, 0.9, 1.1])


def sums_of(a: Values, b: Values) -> CellSums:
    """Sums of two parts, shape (repeats, prompts), each from one row."""
    repeats, prompts = a.shape
    names = np.array([f"p{number}" for number in range(prompts)], dtype=object)
    rows = {"repeat": np.repeat(np.arange(repeats), prompts), "prompt_id": np.tile(names, repeats), "category": "c"}
    sums = CellSums(layout_of(table_of(pd.DataFrame(rows))), 2)
    sums.add([a.ravel(), b.ravel()])
    return sums


def inputs_of(a: Values, b: Values) -> LogRatioInputs:
    return LogRatioInputs.of(SIGNS, sums_of(a, b), seed=4)


def drawn(repeats: int, prompts: int = PROMPTS) -> tuple[Values, Values]:
    rng = np.random.default_rng(2)
    return rng.lognormal(-6, 0.4, (repeats, prompts)), rng.lognormal(-5, 0.4, (repeats, prompts))


@pytest.mark.parametrize(("repeats", "prompts"), [(1, PROMPTS), (2, PROMPTS), (3, PROMPTS), (3, FEW)])
def test_a_log_ratio_has_its_value_resamples_and_repeats(repeats: int, prompts: int) -> None:
    a, b = drawn(repeats, prompts)
    found, summed = inputs_of(a, b).log_ratio(SIGNS), [a, b] if repeats < 3 else [a.sum(0)[None], b.sum(0)[None]]
    assert found is not None
    assert found.value == approx(np.log(a.sum() / b.sum()))
    draws = present(found.draws)
    assert draws.runs == approx(np.log(a.sum(axis=1) / b.sum(axis=1)))
    assert (draws.repeats.tolist(), found.repeats, found.units) == (list(range(repeats)), repeats, prompts)
    logs = np.log(draw_and_sum(summed, np.zeros(prompts, np.intp), 4, 2000))
    inflation = np.sqrt(prompts / (prompts - 1)) if found.chosen else 1
    np.testing.assert_allclose(draws.samples, found.value + (logs[:, 0] - logs[:, 1] - found.value) * inflation)
    assert (found.chosen is None) == (prompts == FEW)
    inverse = present(inputs_of(a, b).log_ratio({"b": 1, "a": -1}))
    assert inverse.value == approx(-found.value)
    plain = present(log_ratio(sums_of(a, b), [1, -1], seed=4))
    assert (plain.value, plain.chosen) == (found.value, found.chosen)


def test_equal_prompts_leave_only_the_variation_of_runs() -> None:
    a = np.repeat(RUNS[:, np.newaxis], PROMPTS, axis=1)
    found = present(inputs_of(a, np.ones_like(a)).log_ratio(SIGNS))
    whole = found.value
    by_influence = (a.sum(axis=1) / a.sum() - 1 / 4).std(ddof=1) * np.sqrt(4)
    over_repeats = np.log(RUNS).std(ddof=1) / np.sqrt(4)
    half = stats.t.ppf(0.975, 3) * max(by_influence, over_repeats)
    assert (present(found.chosen).bounds.low, present(found.chosen).bounds.high) == approx((whole - half, whole + half))


def test_a_ratio_of_sums_has_the_influences_of_the_delta_method() -> None:
    a, b = drawn(4)
    figure = inputs_of(a, b).ratio("a", "b")
    assert figure.value == approx(a.sum() / b.sum())
    assert figure.repeats == approx(a.sum(axis=1) / b.sum(axis=1))
    np.testing.assert_allclose(figure.influence, ratio_influence(a, b))


ZEROS = np.zeros((3, PROMPTS))


def test_sums_that_are_not_positive_have_no_logarithm() -> None:
    a, _ = drawn(3)
    assert inputs_of(a, ZEROS).log_ratio(SIGNS) is None
    assert log_ratio(sums_of(np.full_like(a, np.nan), a), [1, -1], seed=4) is None
    assert log_ratio(sums_of(a, a), [1, -1], seed=4) is not None
    assert log_of_product(np.array([[2.0, 4.0], [0.0, 1.0]]), [1, -1]).tolist() == [approx(-np.log(2)), -np.inf]


def test_a_run_that_may_stop_reports_the_mean_of_its_repeats() -> None:
    a, b = drawn(4)
    inputs = inputs_of(a, b)
    found = present(replace(inputs, layout=replace(inputs.layout, anytime=True)).log_ratio(SIGNS))
    assert found.value == approx(np.log(a.sum(axis=1) / b.sum(axis=1)).mean())
    assert found.p_value == anytime_p_value(present(found.draws).runs)
    assert found.figure("d").definition == "d; geometric mean over repeats"


BOUNDS = ChosenInterval(IntervalBounds(np.log(2), np.log(8)), "m", 5)


@pytest.mark.parametrize(
    ("repeats", "chosen", "verdict"),
    [
        (3, BOUNDS, Verdict.FASTER),
        (2, BOUNDS, Verdict.TOO_FEW_REPEATS),
        (2, None, Verdict.TOO_FEW_REPEATS),
        (3, None, Verdict.NO_INTERVAL),
    ],
)
def test_a_claim_needs_an_interval_and_three_repeats(
    repeats: int, chosen: ChosenInterval | None, verdict: Verdict
) -> None:
    effect = Effect(np.log(4), 7, repeats, chosen)
    assert verdicts([effect]) == [verdict]
    assert (effect.supports_claim, effect.p_value is not None) == (verdict.is_claim, verdict.is_claim)
    figure = effect.figure("d", "tokens", 10)
    assert (figure.value, figure.n, figure.unit, figure.definition, figure.source) == (
        approx(40), 7, "tokens", "d", "both",
    )  # fmt: skip
    assert figure.interval == effect.interval(10)
    if figure.interval is not None:
        assert (figure.interval.low, figure.interval.high, figure.interval.freedom) == (approx(20), approx(80), 5)
        assert figure.interval.method == "m, on the log ratio"


def effect(value: float, low: float, high: float, freedom: float = 10) -> Effect:
    return Effect(value, 20, 3, ChosenInterval(IntervalBounds(low, high), "m", freedom))


CLEAR, NARROW, WIDE = effect(0.1, 0.05, 0.15), effect(0.1, 0.01, 0.19), effect(0.1, -0.01, 0.21)


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ([CLEAR, CLEAR.inverted(), None], [Verdict.BETTER, Verdict.WORSE, Verdict.NOT_COMPARABLE]),
        ([NARROW, WIDE], [Verdict.UNCLEAR, Verdict.INDISTINGUISHABLE]),
        ([effect(1e-17, 1e-17, 1e-17)], [Verdict.INDISTINGUISHABLE]),  # equal, but for the rounding of logarithms
        ([], []),
    ],
)
def test_verdicts_are_corrected_over_their_family(family: list[Effect | None], expected: list[Verdict]) -> None:
    assert verdicts(family, Verdict.BETTER, Verdict.WORSE) == expected


T = float(stats.t.ppf(0.975, 10))


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (2.0, 1.0, 9.0, 2 * stats.t.sf(2 * T, 10)),
        (-2.0, -9.0, -1.0, 2 * stats.t.sf(2 * T, 10)),
        (2.0, 0.0, 3.0, 0.05),
        (-2.0, -3.0, 0.0, 0.05),
        (0.5, -1.0, 1.0, 2 * stats.t.sf(T / 3, 10)),
        (-0.5, -0.75, 0.25, 2 * stats.t.sf(T / 1.5, 10)),
        (0.0, -1.0, 1.0, 1.0),
        (0.0, 0.0, 0.0, 1.0),
        (2.0, 2.0, 2.0, 0.0),
        (-2.0, -2.0, -2.0, 0.0),
    ],
)
def test_p_value_matches_the_side_of_the_interval_that_is_nearer_to_0(
    value: float, low: float, high: float, expected: float
) -> None:
    assert effect(value, low, high).p_value == pytest.approx(expected)


EFFECTS = st.builds(
    Effect(0.0, 20, 3).with_errors,
    below=st.floats(0.001, 1),
    above=st.floats(0.001, 1),
    freedom=st.floats(1, 50),
    method=st.just(""),
)


@given(EFFECTS, st.floats(-2, 2), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_bounds_and_p_values_agree(effect: Effect, limit: float, confidence: float) -> None:
    below, above = effect.p_below(limit), effect.p_above(limit)
    if min(abs(below - (1 - confidence)), abs(above - (1 - confidence))) > 1e-9:
        assert (below < 1 - confidence) == (effect.high(confidence) < limit)
        assert (above < 1 - confidence) == (effect.low(confidence) > limit)
    turned = effect.inverted()
    assert turned.inverted() == effect
    assert turned.p_above(-limit) == pytest.approx(below)
    assert turned.low(confidence) == pytest.approx(-effect.high(confidence))


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [True, False, False, True]),  # 0.005 ≤ 0.0125, 0.01 ≤ 0.0167, 0.03 > 0.025
        ([0.025, 0.05], [True, True]),
        ([0.026, 0.05], [False, False]),
        ([0.05, None], [True, False]),
        ([None], [False]),
        ([], []),
    ],
)
def test_holm_rejects_the_smallest_until_one_is_too_large(p_values: list[float | None], rejected: list[bool]) -> None:
    assert holm_rejections(p_values, 0.05) == rejected


# Effects of figures in documents.

RATIOS = st.floats(0.1, 10)
HALVES = st.floats(0.001, 1)


@pytest.mark.parametrize(("run_noise", "spread"), [(0.0, 0.3), (0.1, 0.02)])
def test_a_figure_has_the_p_value_of_the_effect_that_made_it(run_noise: float, spread: float) -> None:
    _, after = TwoResults(run_noise=run_noise, spread=spread, slower=1.6).measured(3)
    made = paired_speedup(SPEEDUP, present(after.pairs), 1)
    assert present(figure_effect(made.figure, 3)).p_value == pytest.approx(present(made.effect).p_value)


@given(RATIOS, HALVES, st.integers(1, 200))
def test_p_value_is_below_5_percent_exactly_if_the_interval_excludes_1(value: float, half: float, freedom: int) -> None:
    given = figure(value, half)
    given = given.model_copy(update={"interval": present(given.interval).model_copy(update={"freedom": freedom})})
    found = present(figure_effect(given, 3))
    assert present(found.chosen).freedom == freedom
    if abs(abs(math.log(value)) - half) > 1e-9:
        assert (present(found.p_value) < 0.05) == (abs(math.log(value)) > half)
    assert present(present(figure_effect(figure(value, half), 3)).chosen).freedom == 39, "n − 1 where there is none"


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
    assert present(figure_effect(figure(2.0, None), 3)).p_value is None
    assert not is_larger(figure(9.0, None), figure(1.0))


def test_decreasing_function_swaps_the_bounds() -> None:
    found = map_figure(figure(2.0, 0.1), lambda ratio: 1 / ratio, "x", "d")
    assert found.value == 0.5
    assert present(found.interval).low < 0.5 < present(found.interval).high
