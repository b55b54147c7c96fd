"""Intervals of means, sums, ratios and percentiles: known values, coverage, and when there is none."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from known_truth.coverage import Coverage, truths
from known_truth.experiment import Experiment
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics import percentiles as module
from specbench_client.analysis.statistics.bootstrap import (
    ChosenInterval,
    Codes,
    IntervalBounds,
    ResamplingLayout,
    draw_resamples,
    t_bounds,
)
from specbench_client.analysis.statistics.confidence_sequence import confidence_sequence
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    VariancePair,
    bootstrap_t_interval,
    cochran,
    percentile_interval,
    ratio_influence,
    repeats_interval,
    resample_sums,
    satterthwaite,
    share_interval,
    symmetric_interval,
    two_level_interval,
    value_and_interval,
)
from specbench_client.analysis.statistics.percentiles import (
    effective,
    jeffreys,
    percentile_intervals,
    percentiles_of,
    prompts_needed,
    ranks,
)
from specbench_client.analysis.statistics.row_layout import RowLayout, layout_of
from specbench_client.documents.figure import FigureInterval
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import TextCodes, Values
from specbench_testing.present import present
from specbench_testing.tables import filled

PROMPTS = 40
ABBA = np.array([1.0, -1.0, -1.0, 1.0])
PROMPTS_ERROR = 0.95 / stats.norm.ppf(0.975) * np.sqrt(40 / 39)
"""Standard error of samples that are evenly spread from −1 to 1, between 40 prompts."""


def t(freedom: float) -> float:
    return float(stats.t.ppf(0.975, freedom))


def layout_of_intervals(*sizes: int, repeats: int = 1) -> ResamplingLayout:
    return ResamplingLayout(np.repeat(np.arange(len(sizes)), sizes), repeats, sum(sizes))


def figure_of(runs: list[float], requests: float, repeats: list[float] | None = None) -> ResampledFigure:
    """Return a figure of 40 prompts: influences of runs, of prompts, and of single requests, which alternate."""
    influence = np.add.outer(np.array(runs) / PROMPTS, np.linspace(-1, 1, PROMPTS))
    signs = np.where(np.add.outer(np.arange(len(runs)), np.arange(PROMPTS)) % 2, 1.0, -1.0)
    if len(runs) % 2:
        signs[-1] = 0
    return ResampledFigure(
        2.0, 2 + np.linspace(-1, 1, 2001), influence + requests * signs, np.array(repeats or [2.0] * len(runs))
    )


def interval_of_share(figure: ResampledFigure, layout: ResamplingLayout) -> ChosenInterval | None:
    return share_interval(figure.value, figure.samples, figure.influence, layout)


VARIANCES: list[tuple[VariancePair, VariancePair, float, float]] = [
    ((1.0, 1.0), (10.0, 10.0), t(20), t(10)),
    ((0.1, 0.3), (5.0, 2.0), t(16 / (1 / 5 + 9 / 2)), (t(5) + 3 * t(2)) / 4),
    ((0.0, 2.0), (5.0, 2.0), t(2), t(2)),
    ((0.0, 0.0), (19.0, 3.0), t(19), t(19)),
]


@pytest.mark.parametrize(("variances", "freedoms", "of_sum", "weighted"), VARIANCES)
def test_quantiles_of_a_sum_of_variances(
    variances: VariancePair, freedoms: VariancePair, of_sum: float, weighted: float
) -> None:
    assert satterthwaite(variances, freedoms) == pytest.approx(of_sum)
    assert cochran(variances, freedoms) == pytest.approx(weighted)


def variance_of_runs(runs: list[float], requests: float) -> float:
    """R / (R − 1) Σ a² − R / (R − 1) × P / (P − 1) × Σ of the requests' squares, of which an odd last run has none."""
    count, squares = len(runs), requests**2 * PROMPTS * (len(runs) // 2 * 2)
    return float(count / (count - 1) * (np.square(runs).sum() - PROMPTS / (PROMPTS - 1) * squares))


TWO_LEVELS = [([-0.3, 0.1, 0.2], 0.01), ([-0.3, 0.1, 0.1, 0.1], 0.01), ([0.1, -0.1, 0.1, -0.1], 0.5)]


@pytest.mark.parametrize(("runs", "requests"), TWO_LEVELS, ids=["three repeats", "four repeats", "noise of requests"])
def test_variances_of_prompts_and_repeats_are_added(runs: list[float], requests: float) -> None:
    figure, layout = figure_of(runs, requests), layout_of_intervals(PROMPTS, repeats=len(runs))
    variances = PROMPTS_ERROR**2, max(0.0, variance_of_runs(runs, requests))
    by_sum, weighted = (quantile(variances, (39.0, len(runs) - 1.0)) for quantile in (satterthwaite, cochran))
    error = np.sqrt(sum(variances))
    for found, reach, how in (
        (two_level_interval(figure, layout), by_sum if len(runs) == 3 else weighted, "expanded percentiles"),
        (interval_of_share(figure, layout), by_sum, "expanded percentiles"),
        (
            two_level_interval(figure, layout, IntervalBounds(2 - t(39) * PROMPTS_ERROR, 2 + t(39) * PROMPTS_ERROR)),
            by_sum if len(runs) == 3 else weighted,
            "bootstrap-t",
        ),
    ):
        assert found is not None
        assert (found.bounds.low, found.bounds.high) == pytest.approx((2 - reach * error, 2 + reach * error))
        assert found.runs_error == pytest.approx(np.sqrt(variances[1]))
        assert found.runs_share == pytest.approx(variances[1] / sum(variances))
        assert t(found.freedom) == pytest.approx(reach)
        assert (found.over_repeats, found.method) == (
            False,
            f"bootstrap, unit: prompt; 2000 resamples of 40 prompts, {how}; the variance of {len(runs)} repeats added",
        )


def test_each_side_has_its_own_error_and_freedom_is_limited() -> None:
    layout, figure = layout_of_intervals(20, 20, repeats=4), figure_of([0.0] * 4, 0.0)
    found = present(two_level_interval(figure, layout, IntervalBounds(1.9, 2.4)))
    assert astuple(found.bounds) == pytest.approx((1.9, 2.4))
    assert (found.freedom, found.runs_error) == pytest.approx((38, 0))
    assert "40 prompts within categories, bootstrap-t" in found.method
    runs_only = present(
        interval_of_share(replace(figure_of([0.1, -0.1, 0.1, -0.1], 0.0), samples=np.full(9, 2.0)), layout)
    )
    assert runs_only.freedom == pytest.approx(3)
    half = t(3) * np.sqrt(4 / 3 * 0.04)
    assert astuple(runs_only.bounds) == pytest.approx((2 - half, 2 + half))


def test_an_effect_of_the_order_of_arms_is_no_variance_between_runs() -> None:
    layout = replace(layout_of_intervals(PROMPTS, repeats=4), turns=ABBA)
    found = present(interval_of_share(replace(figure_of([0.5, -0.5, -0.5, 0.5], 0.0), samples=np.full(9, 2.0)), layout))
    assert found.bounds == IntervalBounds(2, 2)
    drifting = present(
        interval_of_share(replace(figure_of([0.3, -0.4, -0.6, 0.7], 0.0), samples=np.full(9, 2.0)), layout)
    )
    half = t(2) * np.sqrt(4 / 2 * 4 * (0.2**2 + 0.1**2 + 0.1**2 + 0.2**2) / 4)
    assert astuple(drifting.bounds) == pytest.approx((2 - half, 2 + half))
    assert drifting.freedom == pytest.approx(2)


@pytest.mark.parametrize(
    ("figure", "layout", "method"),
    [
        (
            figure_of([0.0] * 4, 0.0, [1, 3, 1, 3]),
            layout_of_intervals(PROMPTS, repeats=4),
            "wider than the bootstrap",
        ),
        (
            figure_of([0.0] * 4, 0.0, [1.9, 2.1, 1.9, 2.1]),
            layout_of_intervals(PROMPTS, repeats=4),
            "the variance of 4 repeats",
        ),
        (
            figure_of([0.0] * 4, 0.0, [1, np.nan, 1, 3]),
            layout_of_intervals(PROMPTS, repeats=4),
            "the variance of 4 repeats",
        ),
        (
            figure_of([0.0] * 2, 0.0, [0, 4]),
            layout_of_intervals(PROMPTS, repeats=2),
            "2 repeats, then of 40 prompts",
        ),
        (figure_of([0.0] * 4, 0.0, [0, 4, 0, 4]), layout_of_intervals(2, repeats=4), None),
    ],
    ids=["wider", "narrower", "one without a value", "two repeats", "too few prompts"],
)
def test_the_t_interval_over_repeats_is_used_if_it_is_wider(
    figure: ResampledFigure, layout: ResamplingLayout, method: str | None
) -> None:
    found = two_level_interval(figure, layout)
    assert (found is None) == (method is None)
    if found is not None and method is not None:
        assert method in found.method
        assert found.over_repeats == ("wider" in method)
        assert not found.over_repeats or found.bounds == t_bounds(2, figure.repeats)
        assert (found.runs_share is None) == (layout.repeats < 3), "only whole repeats can be told from prompts"
        assert (found.runs_share == 1) == found.over_repeats, "more prompts would not narrow it"


def test_shares_have_no_t_interval_over_repeats() -> None:
    figure = figure_of([0.0] * 4, 0.0, [1, 3, 1, 3])
    found, half = interval_of_share(figure, layout_of_intervals(PROMPTS, repeats=4)), t(39) * PROMPTS_ERROR
    assert found is not None
    assert astuple(found.bounds) == pytest.approx((2 - half, 2 + half))
    two = present(interval_of_share(figure_of([0.1, -0.1], 0.0), layout_of_intervals(PROMPTS, repeats=2)))
    assert (two.bounds, two.runs_error) == (found.bounds, 0)
    assert interval_of_share(figure, layout_of_intervals(2, repeats=4)) is None


REPEATS = [1.9, 2.2, 2.0, 1.9]


@pytest.mark.parametrize(
    ("turns", "shared", "repeats", "own"),
    [
        (ABBA, 0.0, REPEATS, True),
        (ABBA, 1e-9, REPEATS, False),
        (ABBA, 0.0, [np.nan, *REPEATS[1:]], False),
        (None, 0.0, REPEATS, False),
    ],
    ids=["own prompts", "one prompt is shared", "a repeat without a value", "fixed order"],
)
def test_repeats_with_their_own_prompts_have_the_t_interval_over_repeats(
    turns: Values | None, shared: float, repeats: list[float], own: bool
) -> None:
    """Servers that take turns continue through the prompts. The wider of both intervals would cover 98 %."""
    influence = np.where(np.arange(PROMPTS) % 4 == np.arange(4)[:, np.newaxis], 0.01, 0.0)
    influence[0, 1] += shared
    figure = ResampledFigure(2.0, 2 + np.linspace(-1, 1, 2001), influence, np.array(repeats))
    found = present(two_level_interval(figure, replace(layout_of_intervals(PROMPTS, repeats=4), turns=turns)))
    assert ("own prompts" in found.method) == own
    assert not own or (found.bounds, found.freedom) == (t_bounds(2.0, figure.repeats, turns), 2)


def test_a_run_that_may_stop_has_the_confidence_sequence_of_its_repeats() -> None:
    figure = figure_of([0.0] * 4, 0.0, [1.0, 3.0, 1.5, 3.5])
    plain = replace(layout_of_intervals(PROMPTS, repeats=4), turns=ABBA)
    assert value_and_interval(figure, plain) == (2.0, two_level_interval(figure, plain))
    anytime = replace(plain, anytime=True)
    own_prompts = replace(figure, influence=np.eye(4, PROMPTS))
    assert value_and_interval(own_prompts, anytime) == (2.25, confidence_sequence(figure.repeats, ABBA))
    own, shared = (present(value_and_interval(each, anytime)[1]) for each in (own_prompts, figure))
    widths = [each.bounds.high - each.bounds.low for each in (own, shared)]
    assert own.runs_share is None, "prompts are part of the repeats"
    assert shared.runs_share == pytest.approx((widths[0] / widths[1]) ** 2)
    unknown = replace(figure, repeats=np.array([1.0, np.nan, 1.5, 3.5]))
    assert value_and_interval(unknown, anytime) == (2.0, None)


@pytest.mark.parametrize(("repeats", "drawn"), [(2, 2), (3, 1)])
def test_repeats_are_drawn_only_if_there_are_two(repeats: int, drawn: int) -> None:
    matrix = np.random.default_rng(1).lognormal(size=(repeats, 8))
    blocks = draw_resamples(np.zeros(8, np.intp), drawn, 5, 2000)
    rows = matrix if drawn == 2 else matrix.sum(axis=0, keepdims=True)
    expected = [
        float(counts[0].astype(float) @ rows @ counts[1].astype(float))
        for block in blocks
        for counts in zip(*block, strict=True)
    ]
    np.testing.assert_allclose(resample_sums([matrix], layout_of_intervals(8, repeats=repeats), 5)[:, 0], expected)


def test_influence_on_a_ratio_is_its_derivative() -> None:
    over, under = np.array([[1.0, 2.0], [3.0, 6.0]]), np.array([[2.0, 2.0], [2.0, 2.0]])
    assert ratio_influence(over, under).tolist() == [[-0.25, -0.125], [0, 0.375]]


def stratified_error(ratio: float, over: Values, under: Values, strata: Codes) -> float:
    """Standard error of a ratio in a stratified sample."""
    residuals = [(over - ratio * under)[strata == each] for each in np.unique(strata)]
    return float(np.sqrt(sum(each.size * each.var(ddof=1) for each in residuals)) / under.sum())


@pytest.mark.parametrize("sizes", [(20,), (3, 9)])
def test_the_bootstrap_t_interval_is_that_of_its_resamples_one_by_one(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 200)
    rng, layout = np.random.default_rng(3), layout_of_intervals(*sizes)
    over, under = rng.lognormal(0, 0.7, (2, layout.prompts)), rng.uniform(1, 2, (2, layout.prompts))
    tops, bottoms = over.sum(axis=0), under.sum(axis=0)
    ratio, quotients = tops.sum() / bottoms.sum(), []
    error = stratified_error(ratio, tops, bottoms, layout.stratum_of)
    for _, prompts in draw_resamples(layout.stratum_of, 1, 4, 200):
        for counts in prompts:
            drawn = [np.repeat(each, counts) for each in (tops, bottoms, layout.stratum_of)]
            value = drawn[0].sum() / drawn[1].sum()
            quotients.append((value - ratio) / stratified_error(value, *drawn))
    low, high = np.percentile(quotients, [2.5, 97.5])
    found = present(bootstrap_t_interval(over, under, layout, seed=4))
    assert (found.low, found.high) == pytest.approx((ratio - high * error, ratio - low * error))


@pytest.mark.parametrize(
    ("values", "layout"),
    [
        (np.empty(0), ResamplingLayout(np.empty(0, np.intp), 1, 0)),
        (np.arange(2.0), layout_of_intervals(2)),
        (np.arange(3.0), layout_of_intervals(3)),
        (np.arange(12.0), layout_of_intervals(2, 10)),
        (np.ones(20), layout_of_intervals(20)),
    ],
    ids=["no prompt", "two prompts", "a ninth of the resamples has one prompt", "a stratum of two", "equal prompts"],
)
def test_too_few_or_equal_prompts_have_no_bootstrap_t_interval(values: Values, layout: ResamplingLayout) -> None:
    assert bootstrap_t_interval(values[np.newaxis], np.ones((1, values.size)), layout, seed=1) is None


def test_intervals_of_samples_repeats_and_half_widths() -> None:
    found = percentile_interval(np.arange(1001.0), "m")
    assert (found.low, found.high) == pytest.approx((25, 975))
    assert symmetric_interval(1, 3, "m") == FigureInterval(low=-2, high=4, level=0.95, method="m")
    assert symmetric_interval(1, 3, "m", least=0) == FigureInterval(low=0, high=4, level=0.95, method="m")
    assert symmetric_interval(5, 3, "m", least=0).low == 2
    half = t(2) / np.sqrt(3)
    whole = present(repeats_interval(9, np.array([8.0, 9.0, 10.0])))
    assert (whole.low, whole.high) == pytest.approx((9 - half, 9 + half))
    near_0 = present(repeats_interval(2, np.array([1.0, 2.0, 3.0])))
    assert (near_0.low, near_0.method) == (0, "t over 3 repeats, unit: repeat")
    assert repeats_interval(2, np.array([1.0, 3.0])) is None


FIGURES = (
    "speedup", "tpot_speedup", "acceptance_length_emitted_pooled", "acceptance_length_emitted_mean", "ttft_ms_p50",
    "e2e_ms_mean",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("prompts", "repeats"), [(6, 3), (10, 5), (20, 3), (80, 5)])
def test_intervals_have_their_nominal_coverage(prompts: int, repeats: int) -> None:
    """150 experiments, minus three standard errors of a binomial; the documentation reports thousands."""
    experiment = Experiment(prompts=prompts, repeats=repeats, run_noise=0.02, population_size=40_000)
    true = truths(experiment)
    coverage = Coverage(experiment, {name: true[name] for name in FIGURES})
    coverage.add(range(150))
    least = 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150)
    assert {name: coverage.share(name) for name in FIGURES if (coverage.share(name) or 0) < least} == {}


MANY = 72
EACH = 20
"""Requests of each prompt."""


def layout(prompts: int, repeats: int = 1, each: int = 1) -> RowLayout:
    """Return a layout with each prompt `each` times in each repeat, one prompt after the other."""
    names = np.array([f"p{number:04}" for number in range(prompts)], dtype=object)
    repeat = np.repeat(np.arange(repeats), prompts * each)
    return layout_of(
        filled(Table({"repeat": repeat, "prompt_id": TextCodes.of([*names] * (repeats * each))}), category=None)
    )


@pytest.mark.parametrize(
    ("percent", "enough"), [(50, 6), (75, 13), (10, 36), (90, 36), (5, 72), (95, 72), (1, 368), (99, 368)]
)
def test_number_of_prompts_for_a_percentile(percent: int, enough: int) -> None:
    """So many that all are on its larger side with at most 2.5 %: 0.75^13 = 2.4 %, 0.75^12 = 3.2 %."""
    assert prompts_needed(percent / 100) == enough


@pytest.mark.parametrize(("percent", "enough"), [(50, 6), (5, 72), (95, 72)])
def test_no_interval_is_given_from_fewer_prompts(percent: int, enough: int) -> None:
    values = np.random.default_rng(6).lognormal(3, 0.5, enough)
    assert percentile_intervals(values, layout(enough), [percent], seed=1)[0] is not None
    assert percentile_intervals(values[1:], layout(enough - 1), [percent], seed=1)[0] is None


def test_repeats_of_few_prompts_are_not_more_prompts() -> None:
    """Two or three prompts have no interval of any percentile, and twenty none of an outer one, however often sent."""
    for prompts, expected in ((2, []), (3, []), (20, [50])):
        values = np.random.default_rng(5).lognormal(3, 0.5, prompts * 10 * EACH)
        found = percentile_intervals(values, layout(prompts, 10, EACH), [1, 5, 50, 95, 99], seed=1)
        assert [percent for percent, each in zip([1, 5, 50, 95, 99], found, strict=True) if each] == expected


@pytest.mark.parametrize("many", [5, 72, 400.5])
@pytest.mark.parametrize(("tail", "end"), [(0.025, "high"), (0.975, "low")])
def test_the_outer_ranks_have_closed_forms(many: float, tail: float, end: str) -> None:
    """I_p(n, 1) = p^n, and I_p(1, n) = 1 − (1 − p)^n."""
    assert getattr(ranks(tail ** (1 / many), many), end) == pytest.approx(many)
    assert getattr(ranks(1 - (1 - tail) ** (1 / many), many), end) == pytest.approx(1)


@given(st.integers(75, 400), st.sampled_from([0.5, 0.9, 0.95]))
@settings(max_examples=20, deadline=None)
def test_fractional_ranks_are_between_exact_ranks(many: int, share: float) -> None:
    """The exact interval has whole ranks: the innermost that leave out at most 2.5 % on each side."""
    found, below = ranks(share, many), stats.binom(many, share)
    low, high = below.ppf(0.025), below.ppf(0.975) + 1
    assert low <= found.low <= low + 1
    assert high - 1 <= found.high <= high


@pytest.mark.parametrize(
    ("share", "many", "low", "high"),
    [
        (0.5, 1.0, 0.025, 0.975),
        (0.25, 2.0, 1 - 0.975**0.5, 1 - 0.025**0.5),
        (0.75, 2.0, 0.025**0.5, 0.975**0.5),
        (0.3, 0.0, np.sin(np.pi * 0.0125) ** 2, np.sin(np.pi * 0.4875) ** 2),
    ],
    ids=["uniform", "beta (1, 2)", "beta (2, 1)", "arcsine"],
)
def test_jeffreys_bounds_are_quantiles_of_a_beta_distribution(
    share: float, many: float, low: float, high: float
) -> None:
    found = jeffreys(share, many)
    assert (found.low, found.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("half", "requests", "expected"),
    [(1.959964 * (0.21 / 40) ** 0.5, 100, 40), (1.959964 * (0.21 / 40) ** 0.5, 30, 30), (0.0, 30, 30)],
    ids=["as uncertain as 40", "at most all of them", "no uncertainty"],
)
def test_effective_number_of_requests(half: float, requests: int, expected: float) -> None:
    chosen = ChosenInterval(IntervalBounds(0.5 - half, 0.5 + half), "", 1)
    assert effective(0.3, chosen, requests) == pytest.approx(expected)


def test_percentiles_are_interpolated_and_leave_the_values_in_their_order() -> None:
    values = np.array([4.0, 1.0, 2.0])
    assert percentiles_of(values, [0, 25, 50, 100]) == [1.0, 1.5, 2.0, 4.0]
    assert values.tolist() == [4.0, 1.0, 2.0]


@pytest.mark.parametrize("piece", [1_000_000, 100])
def test_intervals_of_equally_distributed_prompts_are_those_of_independent_requests(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values are 0 to 1439, and each prompt has the same share below each percentile, so no share is uncertain."""
    monkeypatch.setattr(module, "NUMBERS_TOGETHER", piece)
    many = MANY * EACH
    found = percentile_intervals(np.arange(float(many)), layout(MANY, 1, EACH), [5, 10, 90, 95, 11, 50, 89], seed=1)
    bounds = [(each.bounds.low, each.bounds.high) for each in found if each]
    for (low, high), share in zip(bounds[:4], (0.05, 0.10, 0.90, 0.95), strict=True):
        assert stats.beta(low + 1, many - low).cdf(share) == pytest.approx(0.975)
        assert stats.beta(high + 1, many - high).cdf(share) == pytest.approx(0.025)
    for found_bounds, share in zip(bounds[4:], (0.11, 0.5, 0.89), strict=True):
        beta = stats.beta(share * many + 0.5, (1 - share) * many + 0.5)
        assert found_bounds == pytest.approx(tuple((many - 1) * beta.ppf([0.025, 0.975])))
    assert {each.freedom for each in found if each} == {MANY - 1}


def shares_by_repeat(counts: list[int]) -> tuple[Values, RowLayout]:
    """Values of 72 prompts, 20 requests each a repeat: in each repeat so many of them are 0, the others 1 and more."""
    rows = [np.repeat((np.arange(EACH) >= count) * (1.0 + np.arange(EACH)), MANY) for count in counts]
    return np.concatenate(rows), layout(MANY, len(counts), EACH)


def test_variation_between_repeats_makes_a_percentile_less_certain() -> None:
    """The value 11 is at or below in 12, 10, 11 and 11 of 20 requests: a variance of 0.05² × 2 / 3 between repeats."""
    values, rows = shares_by_repeat([12, 10, 11, 11])
    _, chosen, _ = percentile_intervals(values, rows, [25, 50, 75], seed=1)
    half = stats.t.ppf(0.975, 3) * np.sqrt(0.05**2 * 2 / 3 / 4)
    independent = 0.25 * (stats.norm.ppf(0.975) / half) ** 2
    beta = stats.beta(0.5 * independent + 0.5, 0.5 * independent + 0.5)
    assert chosen is not None
    assert chosen.freedom == pytest.approx(3)
    assert [chosen.bounds.low, chosen.bounds.high] == percentiles_of(
        values, [100 * beta.ppf(at) for at in (0.025, 0.975)]
    )


def test_bounds_beyond_the_values_are_the_outermost_values() -> None:
    """The share varies so much between repeats that the percentiles are as uncertain as those of 40 requests."""
    for counts, percent, end in (([18, 20, 19, 19], 95, "high"), ([2, 0, 1, 1], 5, "low")):
        values, rows = shares_by_repeat(counts)
        (chosen,) = percentile_intervals(values, rows, [percent], seed=1)
        assert chosen is not None
        assert getattr(chosen.bounds, end) == (values.max() if end == "high" else values.min())


def test_repeats_with_hardly_any_common_prompts_have_no_interval() -> None:
    """One of 16 draws of two repeats has neither of its repeats' prompts, and more have only one."""
    table = Table({"repeat": np.array([0, 1, 1, 1, 1, 1]), "prompt_id": TextCodes.of(list("abcdef"))})
    rows = layout_of(filled(table, category=None))
    assert percentile_intervals(np.arange(6.0), rows, [50], seed=1) == [None]
