"""The slope of a series of window averages over time, with an interval that respects autocorrelation.

The noise of neighbouring windows is modelled as AR(1). A short series hardly shows its coefficient, and an interval
that takes one estimate of it for the truth is too narrow. Here the line is fitted by generalised least squares with
each coefficient from 0 to 1, and the t distributions of the slope are averaged, weighted by the coefficients'
restricted likelihood (REML): the posterior with a flat prior (Zellner and Tiao 1964, "Bayesian Analysis of the
Regression Model with Autocorrelated Errors"). Coverage: `benchmarks/intervals.md`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from specbench_api.outcome.summary import MIN_WINDOWS
from specbench_client.analysis.statistics.bootstrap import LEVEL, IntervalBounds
from specbench_client.metrics.tidy_frame import Values

_COEFFICIENTS = (np.arange(50) + 0.5) / 50
_MAGNITUDE_MAX = 1e100
"""Largest size of values and of their time; the smallest one is its inverse. Squares of others have no float."""
_ROUNDING = 1e-12
"""Relative error of values that are on the line except for rounding."""


@dataclass(frozen=True)
class FittedLine:
    """A straight line: its slope per unit of time with an interval, and its values at the first and last time."""

    slope: float
    bounds: IntervalBounds
    start: float
    end: float
    freedom: float


def fit_line(values: Values, times: Values, level: float = LEVEL) -> FittedLine | None:
    """Return the line through a series, shapes (windows,); missing values are left out.

    None if too few are left, if all have the same time, or if their sizes are too extreme to compute with.
    """
    known = np.isfinite(values) & np.isfinite(times)
    values, times = values[known], times[known]
    if values.size < MIN_WINDOWS or not _is_computable(np.ptp(times)):
        return None
    freedom = float(values.size - 2)
    if np.ptp(values) == 0:  # rounding errors would be a slope with a narrow interval
        constant = float(values[0])
        return FittedLine(0.0, IntervalBounds(0.0, 0.0), constant, constant, freedom)
    if not _is_computable(np.abs(values).max()):
        return None
    lines, errors, weights = _fits(values, times - times.mean())
    level_mean, slope = (float(each) for each in weights @ lines)
    tails = (1 - level) / 2, (1 + level) / 2
    low, high = (_quantile(tail, lines[:, 1], errors, weights, freedom) for tail in tails)
    start, end = (level_mean + slope * (time - times.mean()) for time in (times[0], times[-1]))
    return FittedLine(slope, IntervalBounds(low, high), float(start), float(end), freedom)


def _is_computable(size: float) -> bool:
    return 1 / _MAGNITUDE_MAX < size < _MAGNITUDE_MAX


def _fits(values: Values, times: Values) -> tuple[Values, Values, Values]:
    """Return level and slope with each coefficient, shape (coefficients, 2), errors of the slopes, and weights."""
    columns, each = np.column_stack([np.ones(values.size), times, values]), _COEFFICIENTS[:, None, None]
    # Prais-Winsten: noise of this coefficient becomes independent.
    whitened = np.concatenate([columns[:1] * np.sqrt(1 - each**2), columns[1:] - each * columns[:-1]], axis=1)
    design, targets = whitened[..., :2], whitened[..., 2:]
    transposed = design.transpose(0, 2, 1)
    inverse = np.linalg.inv(transposed @ design)
    lines = inverse @ transposed @ targets
    least = values.size * (_ROUNDING * np.abs(values).max()) ** 2
    noise = np.maximum(((targets - design @ lines) ** 2).sum(axis=(1, 2)), least)
    freedom = values.size - 2
    logs = (np.log(1 - _COEFFICIENTS**2) + np.linalg.slogdet(inverse)[1] - freedom * np.log(noise)) / 2
    weights = np.exp(logs - logs.max())
    return lines[..., 0], np.sqrt(noise / freedom * inverse[:, 1, 1]), weights / weights.sum()


def _quantile(share: float, slopes: Values, errors: Values, weights: Values, freedom: float) -> float:
    """Return the quantile of the average of t distributions."""
    reach = 2 * abs(float(special.stdtrit(freedom, share))) * errors.max()

    def excess(slope: float) -> float:
        return float(weights @ special.stdtr(freedom, (slope - slopes) / errors)) - share

    return float(optimize.brentq(excess, slopes.min() - reach, slopes.max() + reach))
