"""One interval for two sources of variation: which prompts were sent, and differences between whole runs.

The prompts' part is bootstrapped: prompts are drawn together with all their repeats. The runs' part is added as a
variance, because resampling three or five repeats underestimates it: a draw of R units has (R − 1) / R of the variance,
and the expansion factor for prompts does not correct that. The variation of single requests is in both parts and is
subtracted once: V = V(prompts) + V(repeats) − V(requests), the variance of a two-way crossed layout (Cameron, Gelbach
and Miller 2011, "Robust Inference With Multiway Clustering"), over each request's influence on the figure.

Student's quantile of such a sum is approximate. Satterthwaite's degrees of freedom (1946) give a quantile that is too
small if runs dominate: even for normal variables, 95 % intervals cover the true value in 92 % to 94 % of cases. The
mean of both parts' quantiles, weighted by their variances (Cochran 1964, "Approximate Significance Levels of the
Behrens-Fisher Test"), is never too small: 95 % to 97 %. It is used from four repeats on. With three, whose own quantile
is 4.3, it is too large (up to 98 % in the experiments of benchmarks/intervals.md): then Satterthwaite's is used, or
the t interval over the repeats' own values if that is wider; together they cover 95 % to 96 %. With fewer than three
repeats nothing is known about runs: repeats and prompts are both drawn, and the interval's method states what is
missing.

Running servers that take turns continue through the prompts. If no prompt occurs in two repeats, the repeats' values
are independent and vary by prompts, too: their t interval is complete (95 % to 96 % in benchmarks/intervals.md, where
the wider of both intervals covers 97 % to 98 %).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import (
    FINITE_SHARE,
    PROMPTS_MIN,
    ChosenInterval,
    IntervalBounds,
    ResamplingLayout,
    deviations,
    draw_and_sum,
    expanded_percentiles,
    interval_over_repeats,
    is_balanced,
    t_bounds,
    two_level_sums,
    wider_interval,
)
from specbench_client.analysis.statistics.confidence_sequence import confidence_sequence
from specbench_client.analysis.statistics.level import LEVEL, TAIL, t_quantile
from specbench_client.documents.figure import FigureInterval
from specbench_client.documents.minimum_samples import MIN_REPEATS_TO_COMPARE
from specbench_client.numpy_columns import Values

COCHRAN_FROM = 4
"""Number of repeats from which on the quantiles of both parts are weighted; below it, Satterthwaite's is used."""
VariancePair = tuple[float, float]
"""The variance between prompts, and between runs."""


@dataclass(frozen=True)
class ResampledFigure:
    """A figure's value, its resamples, and its influence values, shape (repeats, prompts), which add up to 0.

    `samples` has the shape (resamples,); `repeats` is the figure in each single repeat, shape (repeats,).
    """

    value: float
    samples: Values
    influence: Values
    repeats: Values


def resample_sums(matrices: Sequence[Values], layout: ResamplingLayout, seed: int) -> Values:
    """Return the sum over each (repeats, prompts) matrix in each resample, shape (resamples, matrices).

    From three repeats on only prompts are drawn.
    """
    if layout.repeats < MIN_REPEATS_TO_COMPARE:
        return two_level_sums(matrices, layout, seed)
    return two_level_sums([matrix.sum(axis=0, keepdims=True) for matrix in matrices], layout, seed)


def value_and_interval(figure: ResampledFigure, layout: ResamplingLayout) -> tuple[float, ChosenInterval | None]:
    """Return the value that is reported for a log ratio, and its interval.

    If the measurement stops when it is decided, they are the mean over repeats and the confidence sequence, widened by
    the variation of prompts unless each repeat has its own; there is no interval if a repeat has no value.
    """
    if not layout.anytime:
        return figure.value, two_level_interval(figure, layout)
    if not np.isfinite(figure.repeats).all():
        return figure.value, None
    value, runs = float(figure.repeats.mean()), confidence_sequence(figure.repeats, layout.turns)
    prompts = expanded_percentiles(figure.value, figure.samples, layout)
    return value, with_prompts(runs, value, [figure.influence], prompts, figure.value)


def with_prompts(
    runs: ChosenInterval | None,
    value: float,
    of_cells: Sequence[Values],
    prompts: IntervalBounds | None,
    value_over_prompts: float,
) -> ChosenInterval | None:
    """Return the interval over repeats, with the variation of prompts if repeats send the same.

    The prompts do not change with the number of repeats, so their part is the same at every look. `of_cells`: of each
    measurement, a number for each repeat and prompt, shape (repeats, prompts), 0 where the prompt was not sent.
    """
    if runs is None or all(map(_has_own_prompts, of_cells)):
        return runs
    return widened(runs, value, prompts, value_over_prompts) if prompts else None


def widened(runs: ChosenInterval, value: float, prompts: IntervalBounds, value_over_prompts: float) -> ChosenInterval:
    """Return the interval over repeats with the variation of prompts: errors are squared and added."""
    below = math.hypot(value - runs.bounds.low, value_over_prompts - prompts.low)
    above = math.hypot(runs.bounds.high - value, prompts.high - value_over_prompts)
    method = f"{runs.method}; with that of prompts, which repeats share"
    squares = [(each.high - each.low) ** 2 for each in (runs.bounds, prompts)]
    share = squares[0] / sum(squares) if sum(squares) else None
    return ChosenInterval(IntervalBounds(value - below, value + above), method, runs.freedom, runs_share=share)


def two_level_interval(
    figure: ResampledFigure, layout: ResamplingLayout, prompts_interval: IntervalBounds | None = None
) -> ChosenInterval | None:
    """Return the wider of the two-level interval and the t interval over repeats; None for too few prompts.

    `prompts_interval` is the interval for the variation of prompts, if it is not that of the resamples.
    """
    prompts = prompts_interval or expanded_percentiles(figure.value, figure.samples, layout)
    runs = t_bounds(figure.value, figure.repeats, layout.turns)
    if prompts is None or layout.repeats < MIN_REPEATS_TO_COMPARE:
        return wider_interval(prompts, runs, layout)
    if runs is not None and is_balanced(layout.turns) and _has_own_prompts(figure.influence):
        return interval_over_repeats(runs, layout, "each repeat has its own prompts")
    quantile = satterthwaite if layout.repeats < COCHRAN_FROM else cochran
    how = "expanded percentiles" if prompts_interval is None else "bootstrap-t"
    two_level = _two_level(figure.value, figure.influence, prompts, layout, quantile, how=how)
    if runs is None or runs.high - runs.low <= two_level.bounds.high - two_level.bounds.low:
        return two_level
    by_repeats = interval_over_repeats(runs, layout, "wider than the bootstrap over prompts")
    return replace(by_repeats, runs_share=1.0)  # Only what differs between repeats is in it.


def _has_own_prompts(of_cells: Values) -> bool:
    """Return whether no prompt occurs in two repeats: then the repeats' values vary by prompts, too."""
    return bool((of_cells != 0).sum(axis=0).max() <= 1)


def share_interval(value: float, samples: Values, influence: Values, layout: ResamplingLayout) -> ChosenInterval | None:
    """Return the two-level interval of a share, or None if there are too few prompts.

    The first arguments are those of `ResampledFigure`. A run that is faster or slower as a whole changes a share more
    than proportionally, but never beyond 0 or 1: neither Cochran's quantile nor the t interval over repeats is needed,
    and both would be too wide.
    """
    prompts = expanded_percentiles(value, samples, layout)
    if prompts is None or layout.repeats < MIN_REPEATS_TO_COMPARE:
        return wider_interval(prompts, None, layout)
    return _two_level(value, influence, prompts, layout, satterthwaite, how="expanded percentiles")


def ratio_influence(over: Values, under: Values) -> Values:
    """Return the influence of each matrix entry on Σ over / Σ under: (over − ratio × under) / Σ under."""
    total = under.sum()
    return np.asarray((over - over.sum() / total * under) / total, dtype=np.float64)


def _two_level(
    value: float,
    influence: Values,
    prompts: IntervalBounds,
    layout: ResamplingLayout,
    quantile: Callable[[VariancePair, VariancePair], float],
    *,
    how: str,
) -> ChosenInterval:
    """Combine the variances between prompts and between runs.

    `quantile` returns Student's quantile for these variances and their degrees of freedom; `how` names the method
    of the prompts' interval.
    """
    freedoms = layout.freedom, float(layout.runs_freedom)
    critical = t_quantile(freedoms[0])
    below, above = ((value - prompts.low) / critical, (prompts.high - value) / critical)
    parts = ((below + above) / 2) ** 2, _runs_variance(influence, layout)
    reach = quantile(parts, freedoms)
    runs, share = float(np.sqrt(parts[1])), parts[1] / sum(parts) if sum(parts) else None
    low, high = value - reach * np.hypot(below, runs), value + reach * np.hypot(above, runs)
    within = " within categories" if layout.stratified else ""
    method = (
        f"bootstrap, unit: prompt; {bootstrap.RESAMPLES} resamples of {layout.prompts} prompts{within}, {how};"
        f" the variance of {layout.repeats} repeats added"
    )
    freedom = float(np.clip(scipy.special.stdtridf(1 - TAIL, reach), min(freedoms), sum(freedoms)))
    return ChosenInterval(IntervalBounds(float(low), float(high)), method, freedom, runs_error=runs, runs_share=share)


def _runs_variance(influence: Values, layout: ResamplingLayout) -> float:
    """Variance of the figure between whole repeats, without the contribution of single requests; never below 0."""
    repeats, prompts = (float(size) for size in influence.shape)
    whole = influence.sum(axis=1)
    of_repeats = repeats / layout.runs_freedom * float((deviations(whole, layout.turns) ** 2).sum())
    rest = influence - influence.mean(axis=0) - influence.mean(axis=1, keepdims=True) + influence.mean()
    of_requests = repeats / (repeats - 1) * prompts / (prompts - 1) * float((rest**2).sum())
    return max(0.0, float(of_repeats - of_requests))


def satterthwaite(variances: VariancePair, freedoms: VariancePair) -> float:
    """Return Student's quantile for a sum of two variances, with Satterthwaite's degrees of freedom."""
    total = sum(variances)
    parts = sum(variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True))
    return t_quantile(total**2 / parts if total > 0 else freedoms[0])


def cochran(variances: VariancePair, freedoms: VariancePair) -> float:
    """Return Student's quantile for a sum of two variances: the mean of their quantiles, weighted by the variances."""
    total = sum(variances)
    each = zip(variances, freedoms, strict=True)
    weighed = sum(variance * t_quantile(freedom) for variance, freedom in each)
    return weighed / total if total > 0 else t_quantile(freedoms[0])


# The bootstrap-t interval of a ratio of sums, for means over requests with a long tail.
#
# Twenty draws from a long tail seldom contain its far end, and draws without it have both a small mean and a small
# spread. So the error divided by its estimated standard error is skewed and does not have Student's distribution. Its
# quantiles are bootstrapped instead: each resample of prompts has its own ratio and standard error, and
#
#     t* = (ratio* − ratio) / error*,   the interval: ratio − t*(97.5 %) × error  to  ratio − t*(2.5 %) × error
#
# (Efron 1982; Hall 1988, "Theoretical Comparison of Bootstrap Confidence Intervals": second-order correct on both
# sides). The standard error is that of a ratio in a stratified sample:
#
#     √(Σ n / (n − 1) × (Σ e² − (Σ e)² / n)) / Σ under
#
# summed over the strata of n prompts, with e = over − ratio × under of a prompt.


def bootstrap_t_interval(over: Values, under: Values, layout: ResamplingLayout, seed: int) -> IntervalBounds | None:
    """Return the interval of Σ over / Σ under for the variation of prompts, or None if there are too few.

    Both matrices have the shape (repeats, prompts).
    """
    sizes = np.bincount(layout.stratum_of).astype(np.float64)
    if layout.prompts < PROMPTS_MIN or sizes.min() < PROMPTS_MIN:
        return None
    moments = _moments(over.sum(axis=0), under.sum(axis=0), layout)
    drawn = draw_and_sum([each[np.newaxis] for each in moments], layout.stratum_of, seed, bootstrap.RESAMPLES)
    found, errors = _ratio_and_error(drawn.reshape(len(drawn), -1, _MOMENTS), sizes)
    value, error = (float(each[0]) for each in _ratio_and_error(moments.sum(axis=1).reshape(1, -1, _MOMENTS), sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = (found - value) / errors
    known = quotients[np.isfinite(quotients)]
    if known.size < FINITE_SHARE * len(drawn):
        return None
    low, high = (float(each) for each in np.percentile(known, [100 * TAIL, 100 * (1 - TAIL)]))
    return IntervalBounds(value - high * error, value - low * error)


_MOMENTS = 5


def _moments(over: Values, under: Values, layout: ResamplingLayout) -> Values:
    """Sums needed for a standard error, shape (strata × moments, prompts); 0 for the prompts of other strata."""
    each = np.stack([over, under, over**2, over * under, under**2])
    within = layout.stratum_of == np.arange(layout.strata)[:, np.newaxis]
    return np.asarray((within[:, np.newaxis] * each).reshape(-1, layout.prompts), dtype=np.float64)


def _ratio_and_error(moments: Values, sizes: Values) -> tuple[Values, Values]:
    """Ratio and standard error, shape (rows,), from moments of shape (rows, strata, moments).

    `sizes` is the number of prompts in each stratum.
    """
    over, under, over_over, over_under, under_under = np.moveaxis(moments, 2, 0)
    total = under.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = over.sum(axis=1) / total
        rate = ratio[:, np.newaxis]
        residuals = over - rate * under
        squares = over_over - 2 * rate * over_under + rate**2 * under_under
        spread = (sizes / (sizes - 1) * (squares - residuals**2 / sizes)).sum(axis=1)
        return ratio, np.sqrt(np.maximum(spread, 0.0)) / total


# Intervals of figures, from samples or from a half-width.


def percentile_interval(samples: Values, method: str) -> FigureInterval:
    """Return the central LEVEL of the samples. `samples`: shape (resamples,), all finite."""
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return FigureInterval(low=float(low), high=float(high), level=LEVEL, method=method)


def repeats_interval(value: float, repeats: Values) -> FigureInterval | None:
    """Return the t interval over repeats of a figure that is never below 0; None for fewer than three repeats.

    `repeats`: the figure in each single repeat, shape (repeats,).
    """
    bounds = t_bounds(value, repeats)
    if bounds is None:
        return None
    method = f"t over {repeats.size} repeats, unit: repeat"
    return FigureInterval(low=max(0.0, bounds.low), high=bounds.high, level=LEVEL, method=method)


def symmetric_interval(value: float, half_width: float, method: str, least: float = -np.inf) -> FigureInterval:
    """Return value ± half-width. `least`: what the lower bound is cut at, for quantities that are never below it."""
    return FigureInterval(low=max(least, value - half_width), high=value + half_width, level=LEVEL, method=method)
