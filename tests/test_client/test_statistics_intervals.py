"""Two-level intervals and intervals of percentiles, compared with closed forms and known truths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from known_truth.coverage import Coverage, truths
from known_truth.experiment import Experiment
from specbench_client.analysis.statistics import row_layout
from specbench_client.analysis.statistics.bootstrap import IntervalBounds, ResamplingLayout, t_bounds
from specbench_client.analysis.statistics.intervals import (
    ResampledFigure,
    VariancePair,
    cochran,
    ratio_influence,
    resample_sums,
    satterthwaite,
    two_level_interval,
)
from specbench_client.analysis.statistics.percentiles import percentile_intervals, ranks
from specbench_client.analysis.statistics.row_layout import RowLayout
from specbench_client.metrics.tidy_frame import Values

PROMPTS, REPEATS = 40, 4


def layout_of(prompts: int = PROMPTS, repeats: int = REPEATS) -> RowLayout:
    """Return a layout with each prompt once in each repeat, in one category."""
    names = np.array([f"p{number:04}" for number in range(prompts)], dtype=object)
    rows = {"repeat": np.repeat(np.arange(repeats), prompts), "prompt_id": np.tile(names, repeats), "category": None}
    return row_layout.layout_of(pd.DataFrame(rows))


def mean_bounds(values: Values) -> IntervalBounds:
    """Return the bounds of the mean over repeats × prompts."""
    layout, ones = layout_of(values.shape[1], values.shape[0]), np.ones_like(values)
    sums = resample_sums([values, ones], layout, seed=1)
    influence, repeats = ratio_influence(values, ones), values.mean(axis=1)
    chosen = two_level_interval(
        ResampledFigure(float(values.mean()), sums[:, 0] / sums[:, 1], influence, repeats), layout
    )
    assert chosen is not None
    return chosen.bounds


def half(bounds: IntervalBounds) -> float:
    return (bounds.high - bounds.low) / 2


def test_prompt_variation_alone_gives_the_t_interval_over_prompts() -> None:
    each = np.random.default_rng(1).normal(10, 1, PROMPTS)
    expected = stats.t.ppf(0.975, PROMPTS - 1) * each.std(ddof=1) / np.sqrt(PROMPTS)
    assert half(mean_bounds(np.tile(each, (REPEATS, 1)))) == pytest.approx(expected, rel=0.06)


def test_repeat_variation_alone_gives_the_t_interval_over_repeats() -> None:
    runs = np.array([9.0, 10.0, 10.5, 12.0])
    expected = stats.t.ppf(0.975, REPEATS - 1) * runs.std(ddof=1) / np.sqrt(REPEATS)
    assert half(mean_bounds(np.repeat(runs[:, np.newaxis], PROMPTS, axis=1))) == pytest.approx(expected, rel=1e-6)


def test_variances_of_prompts_and_repeats_are_added() -> None:
    """200 prompts and 12 repeats: variances of 1 / 200 and about 0.08 / 12, quantiles of 1.97 and 2.20."""
    rng = np.random.default_rng(2)
    prompts, runs = rng.normal(0, 1, 200), stats.norm.ppf((np.arange(12) + 0.5) / 12) * 0.3
    found = half(mean_bounds(10 + prompts[np.newaxis, :] + runs[:, np.newaxis]))
    of_prompts, of_runs = prompts.var(ddof=1) / 200, runs.var(ddof=1) / 12
    quantile = (of_prompts * stats.t.ppf(0.975, 199) + of_runs * stats.t.ppf(0.975, 11)) / (of_prompts + of_runs)
    assert found == pytest.approx(quantile * np.sqrt(of_prompts + of_runs), rel=0.04)


def test_repeats_with_their_own_prompts_have_the_t_interval_over_repeats() -> None:
    """Servers that take turns continue through the prompts. The wider of both intervals would cover 98 %."""
    values, noise = np.zeros((REPEATS, PROMPTS)), np.random.default_rng(8).normal(10, 1, PROMPTS)
    sent = np.arange(PROMPTS) % REPEATS == np.arange(REPEATS)[:, np.newaxis]
    values[sent] = np.broadcast_to(noise, values.shape)[sent]
    layout, influence = layout_of().taking_turns(), ratio_influence(values, sent.astype(float))
    repeats = values.sum(axis=1) / sent.sum(axis=1)
    sums = resample_sums([values, sent.astype(float)], layout, seed=1)
    figure = ResampledFigure(float(values.sum() / sent.sum()), sums[:, 0] / sums[:, 1], influence, repeats)
    for own, expected in ((figure, "own prompts"), (replace(figure, influence=influence + 1e-9), "bootstrap")):
        chosen = two_level_interval(own, layout)
        assert chosen is not None
        assert expected in chosen.method
    chosen = two_level_interval(figure, layout)
    assert chosen is not None
    assert chosen.bounds == t_bounds(figure.value, repeats, layout.turns)
    assert chosen.freedom == REPEATS - 2


@pytest.mark.parametrize(("quantile", "low", "high"), [(cochran, 0.945, 0.975), (satterthwaite, 0.925, 0.945)])
def test_cochrans_quantile_covers_if_runs_dominate_and_satterthwaites_does_not(
    quantile: Callable[[VariancePair, VariancePair], float], low: float, high: float
) -> None:
    """Normal variables, 80 prompts in 4 strata and 4 repeats; the variance of runs is five times that of prompts."""
    rng, freedoms, variances, draws = np.random.default_rng(9), (76.0, 3.0), (1.0, 5.0), 20_000
    errors = rng.normal(0, np.sqrt(sum(variances)), draws)
    seen = [each * rng.chisquare(freedom, draws) / freedom for each, freedom in zip(variances, freedoms, strict=True)]
    halves = [quantile((float(a), float(b)), freedoms) * np.sqrt(a + b) for a, b in zip(*seen, strict=True)]
    assert low < float((np.abs(errors) <= halves).mean()) < high


@given(st.lists(st.integers(5, 30), min_size=1, max_size=5), st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_equal_weights_keep_all_degrees_of_freedom(sizes: list[int], scale: float) -> None:
    strata = np.repeat(np.arange(len(sizes)), sizes)
    prompts = len(strata)
    plain = ResamplingLayout(strata, 1, prompts)
    equal_weights = replace(plain, weight_of=np.full(prompts, scale))
    assert plain.freedom == prompts - len(sizes)
    assert equal_weights.freedom == pytest.approx(plain.freedom)
    assert equal_weights.inflation == pytest.approx(plain.inflation)
    assert plain.inflation == pytest.approx(np.sqrt(prompts / (prompts - len(sizes))))
    alone = replace(plain, weight_of=np.where(strata == 0, scale, 0.0))
    assert alone.freedom == pytest.approx(sizes[0] - 1, rel=0.05)
    assert alone.inflation == pytest.approx(np.sqrt(sizes[0] / (sizes[0] - 1)))
    singles = ResamplingLayout(np.arange(len(sizes)), 1, len(sizes))
    assert singles.inflation == 1, "how prompts vary is unknown"


def test_zero_variance_gives_the_quantile_of_prompts() -> None:
    for quantile in (cochran, satterthwaite):
        assert quantile((0.0, 0.0), (19.0, 3.0)) == pytest.approx(stats.t.ppf(0.975, 19))


def test_variation_of_single_requests_is_counted_once() -> None:
    """Counted twice, the interval would be 1.41 times as wide."""
    noise = np.random.default_rng(3).normal(10, 1, (12, 400))
    assert half(mean_bounds(noise)) == pytest.approx(1.96 / np.sqrt(12 * 400), rel=0.3)


@given(st.floats(0.05, 0.95), st.floats(0.1, 1000.0))
@settings(max_examples=60, deadline=None)
def test_ranks_of_a_percentile_contain_it(share: float, many: float) -> None:
    found = ranks(share, many)
    assert 0 < found.low < share * (many + 1) < found.high < many + 1


@given(st.integers(75, 400), st.sampled_from([0.5, 0.9, 0.95]))
@settings(max_examples=40, deadline=None)
def test_fractional_ranks_are_between_exact_ranks(many: int, share: float) -> None:
    """The exact interval has whole ranks: the innermost that leave out at most 2.5 % on each side."""
    found, below = ranks(share, many), stats.binom(many, share)
    low, high = below.ppf(0.025), below.ppf(0.975) + 1
    assert low <= found.low <= low + 1
    assert high - 1 <= found.high <= high


@pytest.mark.parametrize(("percent", "enough"), [(50, 6), (95, 72), (99, 368)])
def test_minimum_number_of_prompts_for_a_percentile_is_exact(percent: int, enough: int) -> None:
    values = np.random.default_rng(6).lognormal(3, 0.5, enough)
    assert percentile_intervals(values, layout_of(enough, 1), [percent], seed=1)[0] is not None
    assert percentile_intervals(values[1:], layout_of(enough - 1, 1), [percent], seed=1)[0] is None


def test_median_of_independent_requests_has_the_textbook_interval() -> None:
    """For 100 prompts requested once, ranks 40 and 61 contain the median in 95 % of samples."""
    values = np.random.default_rng(4).permutation(np.arange(1.0, 101.0))
    (chosen,) = percentile_intervals(values, layout_of(100, 1), [50], seed=1)
    assert chosen is not None
    assert (chosen.bounds.low, chosen.bounds.high) == pytest.approx((40.0, 61.0), abs=1.5)


def test_few_prompts_have_no_interval_of_a_95th_percentile() -> None:
    values = np.tile(np.random.default_rng(5).lognormal(3, 0.5, 20), 10)
    intervals = percentile_intervals(values, layout_of(20, 10), [50, 95], seed=1)
    assert [chosen is not None for chosen in intervals] == [True, False]


FIGURES = (
    "speedup", "tpot_speedup", "acceptance_length_emitted_pooled", "acceptance_length_emitted_mean", "ttft_ms_p50",
)  # fmt: skip


@pytest.mark.draws
@pytest.mark.parametrize(("prompts", "repeats"), [(20, 3), (80, 5)])
def test_intervals_have_their_nominal_coverage(prompts: int, repeats: int) -> None:
    """150 experiments, minus three standard errors of a binomial; the documentation reports thousands."""
    experiment = Experiment(prompts=prompts, repeats=repeats, run_noise=0.02, population_size=40_000)
    true = truths(experiment)
    coverage = Coverage(experiment, {name: true[name] for name in FIGURES})
    coverage.add(range(150))
    least = 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150)
    assert {name: coverage.share(name) for name in FIGURES if (coverage.share(name) or 0) < least} == {}
