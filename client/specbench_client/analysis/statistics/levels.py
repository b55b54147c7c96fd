"""Both levels of chance in one interval: which prompts were asked, and what whole runs did.

The prompts' part is bootstrapped: prompts are drawn, all repeats of a drawn one with it. The runs' part is added as a
variance, since drawing three or five repeats anew shows too little of it: a draw of R has (R − 1) / R of the variance,
and the factor is not in the expansion for prompts. What a single request adds is in both parts and is taken off once:
V = V(prompts) + V(repeats) − V(requests), the variance of a two-way crossed layout (Cameron, Gelbach and Miller 2011,
"Robust Inference With Multiway Clustering"), over each request's influence on the figure.

Student's quantile of such a sum is approximate. Satterthwaite's degrees of freedom (1946) give one that is too short
where runs decide: even of normal variables, intervals of 95 % hold the truth in 92 % to 94 %. The mean of both parts'
quantiles, each weighed by its variance (Cochran 1964, "Approximate Significance Levels of the Behrens-Fisher Test"), is
never too short: 95 % to 97 %. It is taken from four repeats on. With three, whose own quantile is 4.3, it is too long
(to 98 % of the experiments of docs/intervals.md): there it is Satterthwaite's, or the t interval over the repeats' own
values where that is wider; together they hold 95 % to 96 %. With fewer than three repeats nothing is known of runs:
repeats and prompts are both drawn, and the interval says what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import (
    LEVEL,
    Bounds,
    Chosen,
    Layout,
    expanded,
    resampled_sums,
    t_bounds,
    wider,
)
from specbench_client.metrics.frame import Values

TAIL = (1 - LEVEL) / 2
COCHRAN_FROM = 4
"""Repeats from which on Student's quantiles of both parts are weighed; below, it is Satterthwaite's."""
Pair = tuple[float, float]
"""Of prompts, and of runs."""


@dataclass(frozen=True)
class Levels:
    """A figure's value, its resamples, and how much each repeat × prompt moves it (influences; they add up to 0).

    `repeats`: the figure in each repeat alone.
    """

    value: float
    samples: Values
    influence: Values
    repeats: Values


def resampled(matrices: Sequence[Values], layout: Layout, seed: int) -> Values:
    """Return, for each resample, the sum over each repeat × prompt matrix; from three repeats on, of prompts alone."""
    if layout.repeats < REPEATS_TO_TELL:
        return resampled_sums(matrices, layout, seed)
    return resampled_sums([matrix.sum(axis=0, keepdims=True) for matrix in matrices], replace(layout, repeats=1), seed)


def interval(levels: Levels, layout: Layout, of_prompts: Bounds | None = None) -> Chosen | None:
    """Return the wider of the interval of both levels and the t interval over repeats, or None: too few prompts.

    `of_prompts`: the interval by chance in prompts alone, where it is not that of the resamples.
    """
    prompts = of_prompts or expanded(levels.value, levels.samples, layout)
    runs = t_bounds(levels.value, levels.repeats)
    if prompts is None or layout.repeats < REPEATS_TO_TELL:
        return wider(prompts, runs, layout)
    quantile = satterthwaite if layout.repeats < COCHRAN_FROM else cochran
    both = _both(levels, prompts, layout, quantile, "expanded percentiles" if of_prompts is None else "bootstrap-t")
    if runs is None or runs.high - runs.low <= both.bounds.high - both.bounds.low:
        return both
    return wider(both.bounds, runs, layout)


def share_interval(levels: Levels, layout: Layout) -> Chosen | None:
    """Return the interval of a share by both levels, or None: too few prompts.

    A run that is faster or slower as a whole moves a share beyond proportion, but never beyond 0 or 1: neither
    Cochran's quantile nor the t interval over repeats is needed, and both would be too wide.
    """
    prompts = expanded(levels.value, levels.samples, layout)
    if prompts is None or layout.repeats < REPEATS_TO_TELL:
        return wider(prompts, t_bounds(levels.value, levels.repeats), layout)
    return _both(levels, prompts, layout, satterthwaite)


def ratio_influence(over: Values, under: Values) -> Values:
    """Return how much each cell of the two matrices moves Σ over / Σ under: (over − ratio × under) / Σ under."""
    total = under.sum()
    return np.asarray((over - over.sum() / total * under) / total, dtype=np.float64)


def _both(
    levels: Levels,
    prompts: Bounds,
    layout: Layout,
    quantile: Callable[[Pair, Pair], float],
    how: str = "expanded percentiles",
) -> Chosen:
    """`quantile`: Student's, for the variances through prompts and through runs, and their degrees of freedom.

    `how`: the interval by prompts was made.
    """
    freedoms = layout.freedom, float(layout.repeats - 1)
    critical = _quantile(freedoms[0])
    below, above = ((levels.value - prompts.low) / critical, (prompts.high - levels.value) / critical)
    parts = ((below + above) / 2) ** 2, _of_runs(levels.influence)
    reach = quantile(parts, freedoms)
    runs = float(np.sqrt(parts[1]))
    low, high = levels.value - reach * np.hypot(below, runs), levels.value + reach * np.hypot(above, runs)
    within = " within categories" if layout.stratified else ""
    method = (
        f"bootstrap, unit: prompt; {bootstrap.RESAMPLES} resamples of {layout.prompts} prompts{within}, {how};"
        f" the variance of {layout.repeats} repeats added"
    )
    freedom = float(np.clip(special.stdtridf(1 - TAIL, reach), min(freedoms), sum(freedoms)))
    return Chosen(Bounds(float(low), float(high)), method, freedom, runs_error=runs)


def _of_runs(influence: Values) -> float:
    """Variance of the figure through whole repeats, without what single requests add to it; never below 0."""
    repeats, prompts = (float(size) for size in influence.shape)
    whole = influence.sum(axis=1)
    of_repeats = repeats / (repeats - 1) * float(((whole - whole.mean()) ** 2).sum())
    rest = influence - influence.mean(axis=0) - influence.mean(axis=1, keepdims=True) + influence.mean()
    of_requests = repeats / (repeats - 1) * prompts / (prompts - 1) * float((rest**2).sum())
    return max(0.0, float(of_repeats - of_requests))


def satterthwaite(variances: Pair, freedoms: Pair) -> float:
    """Return Student's quantile for a sum of two variances: that of Satterthwaite's degrees of freedom."""
    total = sum(variances)
    parts = sum(variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True))
    return _quantile(total**2 / parts if total > 0 else freedoms[0])


def cochran(variances: Pair, freedoms: Pair) -> float:
    """Return Student's quantile for a sum of two variances: those of the two, weighed by them."""
    total = sum(variances)
    each = zip(variances, freedoms, strict=True)
    weighed = sum(variance * _quantile(freedom) for variance, freedom in each)
    return weighed / total if total > 0 else _quantile(freedoms[0])


def _quantile(freedom: float) -> float:
    return float(special.stdtrit(freedom, 1 - TAIL))
