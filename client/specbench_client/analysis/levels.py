"""Both levels of chance in one interval: which prompts were asked, and what whole runs did.

The prompts' part is bootstrapped: prompts are drawn, all repeats of a drawn one with it. The runs' part is added as a
variance, since drawing three or five repeats anew shows too little of it: a draw of R has (R − 1) / R of the variance,
and the factor is not in the expansion for prompts. What a single request adds is in both parts and is taken off once:
V = V(prompts) + V(repeats) − V(requests), the variance of a two-way crossed layout (Cameron, Gelbach and Miller 2011,
"Robust Inference With Multiway Clustering"), over each request's influence on the figure. Degrees of freedom are
Satterthwaite's of the two parts.

The wider of this and a t interval over the repeats' own values is reported: where few repeats decide, Satterthwaite is
an approximation that the t interval does not need. With fewer than three repeats nothing is known of runs: repeats and
prompts are both drawn, and the interval says what it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from specbench_api.outcome.summary import REPEATS_TO_TELL
from specbench_client.analysis.bootstrap import (
    LEVEL,
    RESAMPLES,
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


def interval(levels: Levels, layout: Layout) -> Chosen | None:
    """Return the wider of the interval of both levels and the t interval over repeats, or None: too few prompts."""
    prompts, runs = expanded(levels.value, levels.samples, layout), t_bounds(levels.value, levels.repeats)
    if prompts is None or layout.repeats < REPEATS_TO_TELL:
        return wider(prompts, runs, layout)
    return _both(levels, prompts, layout)


def ratio_influence(over: Values, under: Values) -> Values:
    """Return how much each cell of the two matrices moves Σ over / Σ under: (over − ratio × under) / Σ under."""
    total = under.sum()
    return np.asarray((over - over.sum() / total * under) / total, dtype=np.float64)


def _both(levels: Levels, prompts: Bounds, layout: Layout) -> Chosen:
    freedoms = layout.prompts - layout.strata, layout.repeats - 1
    critical = float(special.stdtrit(freedoms[0], 1 - TAIL))
    below, above = ((levels.value - prompts.low) / critical, (prompts.high - levels.value) / critical)
    parts = ((below + above) / 2) ** 2, _of_runs(levels.influence)
    reach = _critical(parts, freedoms)
    runs = float(np.sqrt(parts[1]))
    low, high = levels.value - reach * np.hypot(below, runs), levels.value + reach * np.hypot(above, runs)
    within = " within categories" if layout.stratified else ""
    method = (
        f"bootstrap, unit: prompt; {RESAMPLES} resamples of {layout.prompts} prompts{within}, expanded percentiles;"
        f" the variance of {layout.repeats} repeats added"
    )
    freedom = float(special.stdtridf(1 - TAIL, reach))
    return Chosen(Bounds(float(low), float(high)), method, freedom, runs_error=runs)


def _of_runs(influence: Values) -> float:
    """Variance of the figure through whole repeats, without what single requests add to it; never below 0."""
    repeats, prompts = (float(size) for size in influence.shape)
    whole = influence.sum(axis=1)
    of_repeats = repeats / (repeats - 1) * float(((whole - whole.mean()) ** 2).sum())
    rest = influence - influence.mean(axis=0) - influence.mean(axis=1, keepdims=True) + influence.mean()
    of_requests = repeats / (repeats - 1) * prompts / (prompts - 1) * float((rest**2).sum())
    return max(0.0, float(of_repeats - of_requests))


def _critical(variances: tuple[float, float], freedoms: tuple[int, int]) -> float:
    """Student's quantile for a sum of two variances: those of the two, weighed by the variances (Cochran)."""
    quantiles = [float(special.stdtrit(freedom, 1 - TAIL)) for freedom in freedoms]
    total = sum(variances)
    if total <= 0:
        return quantiles[0]
    return sum(variance * each for variance, each in zip(variances, quantiles, strict=True)) / total
