"""Effects: log ratios of sums, intervals and p-values that agree, verdicts, and quotients of figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.statistics import bootstrap as module
from specbench_client.analysis.statistics.bootstrap import (
    ChosenInterval,
    IntervalBounds,
    ResamplingLayout,
    describe_bootstrap,
    deviations,
    draw_and_sum,
    draw_counts,
    draw_resamples,
    expanded_percentiles,
    expansion_factor,
    number_strata,
    order_note,
    runs_freedom,
    runs_variance,
    t_bounds,
    wider_interval,
)
from specbench_client.analysis.statistics.confidence_sequence import anytime_p_value, confidence_sequence
from specbench_client.analysis.statistics.effects import (
    Effect,
    LogRatioInputs,
    figure_effect,
    figure_ratio,
    is_larger,
    log_of_product,
    log_ratio,
    map_figure,
)
from specbench_client.analysis.statistics.intervals import ratio_influence
from specbench_client.analysis.statistics.level import LEVEL, t_quantile
from specbench_client.analysis.statistics.row_layout import CellSums, layout_of
from specbench_client.analysis.statistics.significance import holm_rejections, verdicts
from specbench_client.documents.figure import Verdict
from specbench_client.numpy_columns import Values
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


def stopped(a: Values, b: Values) -> Effect:
    """The effect of a run that may stop after any repeat."""
    inputs = inputs_of(a, b)
    return present(replace(inputs, layout=replace(inputs.layout, anytime=True)).log_ratio(SIGNS))


def test_a_run_that_may_stop_reports_the_mean_of_its_repeats() -> None:
    """Each repeat has its own prompts, so the values of repeats vary by prompts, too."""
    own = np.kron(np.eye(4), np.ones(PROMPTS))
    a, b = ((own * np.tile(matrix, 4)).astype(np.float64) for matrix in drawn(4))
    found = stopped(a, b)
    runs = present(found.draws).runs
    assert found.value == approx(np.log(a.sum(axis=1) / b.sum(axis=1)).mean())
    assert (found.chosen, found.p_value) == (confidence_sequence(runs), anytime_p_value(runs))
    assert found.figure("d").definition == "d; geometric mean over repeats"


def test_a_run_that_may_stop_adds_the_variation_of_prompts_that_its_repeats_share() -> None:
    a, b = drawn(4)
    found, sequence = stopped(a, b), present(confidence_sequence(present(stopped(a, b).draws).runs))
    spread = np.percentile(present(found.draws).samples, [2.5, 97.5]) - found.value
    low, high = spread * t_quantile(inputs_of(a, b).layout.freedom) / stats.norm.ppf(0.975)
    bounds = present(found.chosen).bounds
    assert bounds.low == approx(found.value - np.hypot(found.value - sequence.bounds.low, low))
    assert bounds.high == approx(found.value + np.hypot(sequence.bounds.high - found.value, high))
    assert present(found.p_value) >= anytime_p_value(present(found.draws).runs)
    few = stopped(*(matrix[:, :FEW] for matrix in (a, b)))
    assert (few.chosen, few.p_value) == (None, None)


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.4, 0.6])
def test_the_p_value_of_a_run_that_may_stop_rejects_what_its_interval_excludes(shift: float) -> None:
    a, b = drawn(6)
    found = stopped(a * np.exp(1 + shift), b)
    bounds = present(found.chosen).bounds
    assert (present(found.p_value) < 0.05) == (not bounds.low <= 0 <= bounds.high)


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
    assert figure.interval == (effect.interval(10) if verdict.is_claim else None)
    assert bool(figure.missing) is not verdict.is_claim
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
    assert figure_ratio(figure(0.0), figure(1.0), "d") is None
    assert map_figure(figure(2.0, None), lambda ratio: 1 / ratio, "x", "d").interval is None


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


STRATA = np.repeat([0, 1, 2], [5, 6, 9])
DRAWS = 50
ABBA = np.array([1.0, -1.0, -1.0, 1.0])


def layout_of_values(*sizes: int, repeats: int = 1, weights: Values | None = None) -> ResamplingLayout:
    return ResamplingLayout(np.repeat(np.arange(len(sizes)), sizes), repeats, sum(sizes), weights)


def matrices(repeats: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.lognormal(size=(repeats, STRATA.size)) for _ in range(3)]


def direct_counts(rng: np.random.Generator, units: int, size: int) -> list[list[int]]:
    return [[list(picks).count(unit) for unit in range(units)] for picks in rng.integers(0, units, size=(size, units))]


def test_draws_are_those_of_the_generator_stratum_by_stratum_then_repeats() -> None:
    rng = np.random.default_rng(7)
    strata = [direct_counts(rng, size, DRAWS) for size in (5, 6, 9)]
    repeats = direct_counts(rng, 4, DRAWS)
    ((found_repeats, found_prompts),) = draw_resamples(STRATA, 4, 7, DRAWS)
    assert found_prompts.tolist() == np.concatenate(strata, axis=1).tolist()
    assert found_repeats.tolist() == repeats
    assert draw_counts(np.random.default_rng(7), 5, DRAWS).tolist() == strata[0]


@pytest.mark.parametrize(("values", "sizes"), [(20 * 30, [30, 20]), (20 * 50, [50]), (19, [1] * 50)])
def test_draws_are_made_in_blocks(values: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_VALUES", values)
    found = list(draw_resamples(STRATA, 4, 7, DRAWS))
    assert [(len(repeats), len(prompts)) for repeats, prompts in found] == [(size, size) for size in sizes]
    assert {int(row.sum()) for _, prompts in found for row in prompts} == {20}


@pytest.mark.parametrize("repeats", [1, 2])
def test_sums_are_those_of_the_drawn_cells(repeats: int) -> None:
    expected = [
        [(matrix * drawn[0][:, np.newaxis] * drawn[1]).sum() for matrix in matrices(repeats)]
        for block in draw_resamples(STRATA, repeats, 1, DRAWS)
        for drawn in zip(*(each.astype(float) for each in block), strict=True)
    ]
    np.testing.assert_allclose(draw_and_sum(matrices(repeats), STRATA, 1, DRAWS), expected)


@pytest.mark.parametrize("name", ["PIECE_VALUES", "CACHED_VALUES"])
def test_piece_and_cache_sizes_do_not_change_the_draws(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw_and_sum(matrices(2), STRATA, 7, DRAWS)
    monkeypatch.setattr(module, name, 33)
    module._cached_draws.cache_clear()
    np.testing.assert_allclose(draw_and_sum(matrices(2), STRATA, 7, DRAWS), whole)


@pytest.mark.parametrize(
    ("strata", "numbered"),
    [
        ([4] * 5 + [2] * 5, [1] * 5 + [0] * 5),
        ([4] * 5 + [2] * 4, [0] * 9),
        ([-1] * 6 + [3] * 5, [0] * 6 + [1] * 5),
        ([], []),
    ],
    ids=["without gaps", "one too small", "without a category", "no prompt"],
)
def test_strata_are_numbered_unless_one_is_too_small(strata: list[int], numbered: list[int]) -> None:
    assert number_strata(np.array(strata, dtype=np.intp)).tolist() == numbered


W = np.repeat([2.0, 1.0], [5, 10])
ONE_STRATUM = np.repeat([3.0, 0.0], [5, 10])


@pytest.mark.parametrize(
    ("layout", "freedom", "squared_inflation"),
    [
        (layout_of_values(20), 19, 20 / 19),
        (layout_of_values(5, 15), 18, 20 / (4 + 14)),
        (layout_of_values(5, 10, weights=np.full(15, 0.3)), 13, 15 / 13),
        # Σ w² = 30, Σ w² (n − 1) / n = 16 + 9; 13 × 30² / (80 × 5/4 + 10 × 10/9) ÷ 15² / (5 × 5/4 + 10 × 10/9)
        (layout_of_values(5, 10, weights=W), 13 * 8.1 / 12.96, 30 / 25),
        (layout_of_values(5, 10, weights=ONE_STRATUM), 13 * 20 / 12.96 / 5, 5 / 4),
    ],
    ids=["one stratum", "two strata", "equal weights", "unequal weights", "one stratum weighs"],
)
def test_intervals_from_few_prompts_are_widened(
    layout: ResamplingLayout, freedom: float, squared_inflation: float
) -> None:
    assert layout.freedom == pytest.approx(freedom)
    assert layout.inflation**2 == pytest.approx(squared_inflation)
    expected = stats.t.ppf(0.975, freedom) / stats.norm.ppf(0.975) * np.sqrt(squared_inflation)
    assert expansion_factor(layout) == pytest.approx(expected)


def test_layouts_of_few_prompts() -> None:
    none, singles = ResamplingLayout(np.empty(0, np.intp), 1, 0), layout_of_values(1, 1, 1)
    assert (none.strata, none.stratified, singles.strata, singles.stratified) == (0, False, 3, True)
    assert singles.inflation == 1, "how prompts vary is unknown"
    assert not layout_of_values(9).stratified
    ((repeats, prompts),) = draw_resamples(none.stratum_of, 2, 1, 3)
    assert (repeats.shape, prompts.shape) == ((3, 2), (3, 0))


def test_a_layout_of_some_prompts_keeps_their_weights_and_the_repeats() -> None:
    whole = replace(layout_of_values(5, 10, repeats=4, weights=np.arange(15.0)), turns=ABBA, anytime=True)
    some = whole.among(np.arange(15) > 4)
    assert some.stratum_of.tolist() == [0] * 10
    assert (some.repeats, some.prompts, some.turns, some.anytime) == (4, 10, whole.turns, True)
    assert present(some.weight_of).tolist() == list(range(5, 15))
    assert whole.among(np.ones(15, np.bool_)).stratum_of.tolist() == whole.stratum_of.tolist()
    assert layout_of_values(5, 10).among(np.arange(15) > 4).weight_of is None


@pytest.mark.parametrize(
    ("prompts", "missing", "half"),
    [
        (3, 0, 0.95 * 4.302653 / 1.959964 * 1.5**0.5),
        (2, 0, None),
        (21, 100, 0.95 * 2.085963 / 1.959964 * 1.05**0.5),
        (21, 101, None),
    ],
)
def test_the_expanded_interval_needs_three_prompts_and_95_percent_of_the_resamples(
    prompts: int, missing: int, half: float | None
) -> None:
    """The samples are evenly spread from −1 to 1, so that their percentiles are −0.95 and 0.95."""
    samples = np.concatenate([np.linspace(-1, 1, 2000 - missing), np.full(missing, np.inf)])
    found = expanded_percentiles(0.1, 0.1 + samples, layout_of_values(prompts))
    assert (found and astuple(found)) == (half and pytest.approx((0.1 - half, 0.1 + half)))


NOT_BALANCED = [None, np.array([1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0, 1.0]), np.ones(4)]


@pytest.mark.parametrize("turns", NOT_BALANCED)
def test_an_effect_of_order_is_not_removed_if_the_orders_are_not_equally_frequent(turns: Values | None) -> None:
    values = np.array([1.0, 4.0, 4.0, 7.0, 9.0])[: 4 if turns is None else turns.size]
    assert deviations(values, turns).tolist() == (values - values.mean()).tolist()
    assert runs_freedom(values.size, turns) == values.size - 1
    assert runs_variance(values, turns) == pytest.approx(values.var(ddof=1))
    assert order_note(turns) == ""


def test_an_effect_of_order_is_removed_and_costs_a_degree_of_freedom() -> None:
    """1, 2, 5, 8 have the mean 4 and, in the turns ABBA, the effect (−3 + 2 − 1 + 4) / 4 = 0.5."""
    values = np.array([1.0, 2.0, 5.0, 8.0])
    assert deviations(values, ABBA).tolist() == [-3.5, -1.5, 1.5, 3.5]
    assert runs_freedom(4, ABBA) == 2
    assert runs_variance(values, ABBA) == 29 / 2
    assert order_note(ABBA) == ", without the drift between their two orders"
    half = 4.302653 * np.sqrt(29 / 2 / 4)
    found = present(t_bounds(4.5, values, ABBA))
    assert astuple(found) == pytest.approx((4.5 - half, 4.5 + half))


@pytest.mark.parametrize(
    ("repeats", "half"),
    [
        ([1.0, 2.0, 3.0], 4.302653 / np.sqrt(3)),
        ([1.0, 2.0], None),
        ([1.0, 2.0, np.nan], None),
        ([1.0, np.inf, 2.0], None),
    ],
)
def test_the_t_interval_needs_three_finite_repeats(repeats: list[float], half: float | None) -> None:
    found = t_bounds(5.0, np.array(repeats))
    assert (found and astuple(found)) == (half and pytest.approx((5 - half, 5 + half)))


BOOTSTRAP_NARROW, BOOTSTRAP_WIDE = IntervalBounds(1.0, 2.0), IntervalBounds(0.0, 3.0)
CATEGORIES, PLAIN = layout_of_values(5, 10, repeats=3), layout_of_values(15, repeats=3)


BY_PROMPTS = ChosenInterval(BOOTSTRAP_NARROW, describe_bootstrap(CATEGORIES), 13)
OVER_REPEATS = "t, unit: repeat; over the values of 3 repeats; wider than the bootstrap over prompts"


@pytest.mark.parametrize(
    ("prompts", "runs", "expected"),
    [
        (None, BOOTSTRAP_WIDE, None),
        (BOOTSTRAP_NARROW, None, BY_PROMPTS),
        (BOOTSTRAP_WIDE, BOOTSTRAP_NARROW, replace(BY_PROMPTS, bounds=BOOTSTRAP_WIDE)),
        (BOOTSTRAP_NARROW, IntervalBounds(5.0, 6.0), BY_PROMPTS),
        (BOOTSTRAP_NARROW, BOOTSTRAP_WIDE, ChosenInterval(BOOTSTRAP_WIDE, OVER_REPEATS, 2, over_repeats=True)),
    ],
    ids=["too few prompts", "too few repeats", "wider", "equal", "narrower"],
)
def test_the_wider_interval_is_chosen(
    prompts: IntervalBounds | None, runs: IntervalBounds | None, expected: ChosenInterval | None
) -> None:
    assert wider_interval(prompts, runs, CATEGORIES) == expected


# The confidence sequence is the mixture test of a linear model, inverted, and is valid at every look.


MANY_TURNS = np.tile([1.0, -1.0], 50)
LOOKS = range(4, 51, 2)
"""As `--until-sure` looks: after every second repeat from the fourth on."""
BLOCKS = [0.9, 1.4, 1.1, 1.6, 0.8, 1.5]


def turns_of(count: int, *, alternating: bool) -> Values | None:
    return MANY_TURNS[:count] if alternating else None


@pytest.mark.parametrize(("count", "alternating"), [(6, True), (6, False), (2, False)])
@pytest.mark.parametrize("shift", [0.0, -0.9])
def test_p_value_is_that_of_the_mixture_test_of_a_linear_model(shift: float, count: int, alternating: bool) -> None:
    """Its e-value is the ratio of marginal likelihoods with the variance, and the drift if any, integrated out."""
    blocks, growth, drift = (
        np.array(BLOCKS[:count]) + shift,
        1 + count * 10.0,
        [MANY_TURNS[:count]] if alternating else [],
    )
    rest, without = (
        float(np.linalg.lstsq(np.stack(columns, axis=1), blocks, rcond=None)[1][0]) if columns else blocks @ blocks
        for columns in ([np.ones(count), *drift], drift)
    )
    shrunk = rest + (without - rest) / growth
    expected = growth**0.5 * (without / shrunk) ** (-(count - len(drift)) / 2)
    assert anytime_p_value(blocks, turns_of(count, alternating=alternating)) == pytest.approx(min(1.0, expected))


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=40), st.floats(-2, 2), st.booleans())
@settings(max_examples=50, deadline=None)
def test_values_at_the_bounds_have_a_p_value_of_5_percent(values: list[float], shift: float, alternating: bool) -> None:
    blocks = np.array(values) + shift
    turns = turns_of(blocks.size, alternating=alternating)
    assume(np.abs(deviations(blocks, turns)).max() > 1e-3)
    chosen = confidence_sequence(blocks, turns)
    if chosen is None:  # So few blocks exclude no mean, however far away.
        assert anytime_p_value(blocks + 1e6, turns) > 1 - LEVEL
        return
    assert chosen.bounds.low < blocks.mean() < chosen.bounds.high
    for bound in (chosen.bounds.low, chosen.bounds.high):
        assert anytime_p_value(blocks - bound, turns) == pytest.approx(1 - LEVEL, rel=1e-3)


@pytest.mark.parametrize(
    ("blocks", "p_value", "freedom"),
    [
        ([], 1.0, None),
        ([1.0], 1.0, None),
        ([1.0, np.nan, 1.1, 1.2], 1.0, None),
        ([1.0, 1.1], None, None),
        ([1.0, 1.1, 1.2], None, 2),
        ([2.0] * 8, 1.0, 7),  # no noise at all
    ],
)
def test_few_or_missing_blocks_give_no_sequence(
    blocks: list[float], p_value: float | None, freedom: float | None
) -> None:
    chosen = confidence_sequence(np.array(blocks))
    assert (chosen.freedom if chosen else None) == freedom
    assert p_value is None or anytime_p_value(np.array(blocks)) == p_value


SHAPES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Values]] = {
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "heavy tails": lambda rng, shape: rng.standard_t(5, shape),
    "skewed": lambda rng, shape: rng.lognormal(0, 0.3, shape) - np.exp(0.3**2 / 2),
}


@pytest.mark.long
@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("blocks", SHAPES)
def test_a_sequence_ever_excludes_the_truth_in_at_most_5_percent(blocks: str, alternating: bool) -> None:
    """1,000 sequences: at most 5 % and three standard errors. An ordinary interval would exclude it in a third."""
    many = 1000
    drawn = SHAPES[blocks](np.random.default_rng(11), (many, LOOKS[-1]))
    ever = sum(
        any(anytime_p_value(each[:count], turns_of(count, alternating=alternating)) < 1 - LEVEL for count in LOOKS)
        for each in drawn
    )
    assert 0 < ever / many < 0.05 + 3 * np.sqrt(0.05 * 0.95 / many)
