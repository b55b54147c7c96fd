"""A line fitted to a series of window averages over time; the slope's interval respects autocorrelation.

The noise of neighbouring windows is modelled as AR(1). A short series hardly shows its coefficient, and an interval
that takes one estimate of it for the truth is too narrow. Here the line is fitted by generalised least squares with
each coefficient from 0 to 1, and the t distributions of the slope are averaged, weighted by the coefficients'
restricted likelihood (REML): the posterior with a flat prior (Zellner and Tiao 1964, "Bayesian Analysis of the
Regression Model with Autocorrelated Errors"). Coverage: `benchmarks/intervals.md`.

A series may consist of parts, such as the times between restarts of an engine. Each part has its own level, and its
noise is independent of that of the others; the slope is common. So a saw-tooth has the slope of its teeth, and a step
between two parts is no slope. Whether time restarts with each part makes no difference: its level takes that up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from specbench_client.analysis.statistics.bootstrap import IntervalBounds
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.documents.summary import MIN_WINDOWS
from specbench_client.numpy_columns import Values

_COEFFICIENTS = (np.arange(50) + 0.5) / 50
_MAGNITUDE_MAX = 1e100
"""Largest size of values and of their time; the smallest one is its inverse. Squares of others have no float."""
_ROUNDING = 1e-12
"""Relative error of values that are on the line except for rounding."""


@dataclass(frozen=True)
class FittedLine:
    """A straight line: its slope per unit of time with an interval, and its longest part, which has the most values.

    `start`, `end`: values at the first and last time of that part. `duration`: the time between them.
    """

    slope: float
    bounds: IntervalBounds
    start: float
    end: float
    duration: float
    freedom: float


def fit_line(
    values: Values, times: Values, level: float = LEVEL, parts: NDArray[np.intp] | None = None
) -> FittedLine | None:
    """Return the line through a series, shapes (windows,); missing values are left out.

    `parts`: ascending number of the part that each value belongs to; None: the series is one part. Returns None if too
    few values are left, if all of a part have the same time, or if their sizes are too extreme to compute with.
    """
    known = np.isfinite(values) & np.isfinite(times)
    parts = np.zeros(values.size, dtype=np.intp) if parts is None else parts
    values, times, numbers = values[known], times[known], np.unique(parts[known], return_inverse=True)[1]
    sizes = np.bincount(numbers)
    freedom = values.size - sizes.size - 1
    if freedom < MIN_WINDOWS - 2:
        return None
    longest = int(sizes.argmax())
    first, last = times[numbers == longest][[0, -1]]
    duration = float(last - first)
    if not _is_computable(duration):
        return None
    if np.ptp(values) == 0:  # rounding errors would be a slope with a narrow interval
        constant = float(values[0])
        return FittedLine(0.0, IntervalBounds(0.0, 0.0), constant, constant, duration, freedom)
    if not _is_computable(np.abs(values).max()):
        return None
    lines, errors, weights = _fits(values, times - first, numbers)
    estimates = weights @ lines
    start, slope = float(estimates[longest]), float(estimates[-1])
    tails = (1 - level) / 2, (1 + level) / 2
    low, high = (_quantile(tail, lines[:, -1], errors, weights, freedom) for tail in tails)
    return FittedLine(slope, IntervalBounds(low, high), start, start + slope * duration, duration, freedom)


def _is_computable(size: float) -> bool:
    return 1 / _MAGNITUDE_MAX < size < _MAGNITUDE_MAX


def _fits(values: Values, times: Values, parts: NDArray[np.intp]) -> tuple[Values, Values, Values]:
    """Return levels and slope with each coefficient, errors of the slopes, and weights.

    `parts`: numbers from 0 without gaps. Shape of the levels and slope: (coefficients, parts + 1).
    """
    levels = parts[:, None] == np.arange(parts[-1] + 1)
    columns, each = np.column_stack([levels, times, values]), _COEFFICIENTS[:, None, None]
    begins = np.diff(parts, prepend=-1) > 0
    # Prais-Winsten: noise of this coefficient becomes independent.
    whitened = np.where(begins[:, None], columns * np.sqrt(1 - each**2), columns - each * np.roll(columns, 1, axis=0))
    design, targets = whitened[..., :-1], whitened[..., -1:]
    transposed = design.transpose(0, 2, 1)
    inverse = np.linalg.inv(transposed @ design)
    lines = inverse @ transposed @ targets
    least = values.size * (_ROUNDING * np.abs(values).max()) ** 2
    noise = np.maximum(((targets - design @ lines) ** 2).sum(axis=(1, 2)), least)
    freedom = values.size - levels.shape[1] - 1
    logs = (begins.sum() * np.log(1 - _COEFFICIENTS**2) + np.linalg.slogdet(inverse)[1] - freedom * np.log(noise)) / 2
    weights = np.exp(logs - logs.max())
    return lines[..., 0], np.sqrt(noise / freedom * inverse[:, -1, -1]), weights / weights.sum()


def _quantile(share: float, slopes: Values, errors: Values, weights: Values, freedom: float) -> float:
    """Return the quantile of the average of t distributions."""
    reach = 2 * abs(float(scipy.special.stdtrit(freedom, share))) * errors.max()

    def excess(slope: float) -> float:
        return float(weights @ scipy.special.stdtr(freedom, (slope - slopes) / errors)) - share

    return float(scipy.optimize.brentq(excess, slopes.min() - reach, slopes.max() + reach))
