"""A measured curve with joint replicates of its speed-ups, and the places where it crosses 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize, special

from specbench_client.analysis.curves.axes import CurveAxis
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.log_ratio import LogRatio
from specbench_client.metrics.tidy_frame import Values

# Joint replicates of several speed-ups.
#
# The replicates of each speed-up have the spread of its reported interval: resamples of prompts plus the variance of
# whole repeats, or t about the value where the repeats alone determine the interval. Dependence between the speed-ups
# of a curve is preserved. Prompts: resamples with the same seed draw the same prompts at every place. Runs: the
# deviations of the repeats are used repeat by repeat, so that a mean of several places has the spread of a t interval
# over that mean (multivariate t): an engine that was slow in one repeat was slow at every load of this launch.

_PURPOSE = 20_1
"""Makes these draws independent of the resamples from the same seed."""


def joint_replicates(ratios: Sequence[LogRatio], seed: int) -> Values:
    """Return joint replicates of log ratios, shape (resamples, places). Each ratio needs an interval over runs."""
    rng = np.random.default_rng((seed, _PURPOSE))
    known = np.unique(np.concatenate([each.repeats for each in ratios]))
    count = bootstrap.RESAMPLES
    normals, uniform = rng.standard_normal((count, known.size)), rng.random(count)
    return np.stack([_of(each, normals[:, np.isin(known, each.repeats)], uniform) for each in ratios], axis=1)


def _of(ratio: LogRatio, normals: Values, uniform: Values) -> Values:
    """Return value + standard error × t, shape (resamples,).

    t uses one normal per repeat (`normals`, shape (resamples, repeats)), one chi-square for all places (`uniform`), and
    the resampled prompts.
    """
    assert ratio.chosen is not None
    deviations = ratio.runs - ratio.runs.mean()
    length = float(np.linalg.norm(deviations))
    whole = normals @ (deviations / length) if length else np.zeros(len(normals))
    if ratio.chosen.over_repeats:
        count = ratio.runs.size
        spread = whole * length / np.sqrt(count * (count - 1))
    else:
        spread = whole * ratio.chosen.runs_error + ratio.samples - ratio.value
    freedom = ratio.chosen.freedom
    shrunk = np.sqrt(special.chdtri(freedom, uniform) / freedom)
    return np.asarray(ratio.value + spread / shrunk, dtype=np.float64)


@dataclass(frozen=True)
class ZeroCrossing:
    """One place at which a curve crosses 0."""

    at: float
    falls: bool


def zero_crossings(x: Values, y: Values) -> list[ZeroCrossing]:
    """Return every sign change of a piecewise linear curve in order; 0 counts as negative. `x`, `y`: (places,)."""
    turns = np.flatnonzero((y[:-1] > 0) != (y[1:] > 0))
    return [
        ZeroCrossing(float(x[left] + (x[left + 1] - x[left]) * y[left] / (y[left] - y[left + 1])), bool(y[left] > 0))
        for left in turns
    ]


def first_fall_to_zero(x: Values, curves: Values) -> Values:
    """Return where each curve first falls to 0, shape (curves,). `curves`: shape (curves, places).

    −inf if it begins at or below 0, +inf if it never falls to 0.
    """
    below = curves <= 0
    here = np.argmax(below, axis=1)
    before = np.maximum(here - 1, 0)
    rows = np.arange(len(curves))
    upper, lower = curves[rows, before], curves[rows, here]
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x[before] + (x[here] - x[before]) * upper / (upper - lower)
    return np.where(~below.any(axis=1), np.inf, np.where(below[:, 0], -np.inf, at))


def nearest_falling(curves: Values, weights: Values) -> Values:
    """Return the nearest curves that never rise, by weighted least squares (isotonic regression).

    `curves` and the result: shape (curves, places). `weights`: shape (places,).
    """
    rising = (np.diff(curves, axis=1) > 0).any(axis=1)
    found = curves.copy()
    for row in np.flatnonzero(rising):
        found[row] = optimize.isotonic_regression(curves[row], weights=weights, increasing=False).x
    return found


@dataclass(frozen=True)
class MeasuredPlace:
    """One measured place and its speed-up, whose interval includes the variation between runs."""

    place: float
    ratio: LogRatio


@dataclass(frozen=True)
class CrossingPlace:
    """Where a speed-up is 1, with its interval, on the axis's scale.

    −inf: below the smallest measured place; +inf: beyond the largest.
    """

    at: float
    low: float
    high: float


@dataclass(frozen=True)
class MeasuredCurve:
    """Log speed-ups over an axis. `places`: at least two, each once, the smallest first."""

    axis: CurveAxis
    places: Sequence[MeasuredPlace]
    seed: int

    @cached_property
    def x(self) -> Values:
        """The places on the axis's scale, shape (places,)."""
        return self.axis.scaled(np.array([each.place for each in self.places], dtype=np.float64))

    @cached_property
    def y(self) -> Values:
        """The log speed-ups, shape (places,)."""
        return np.array([each.ratio.value for each in self.places], dtype=np.float64)

    @cached_property
    def zero_crossings(self) -> Sequence[ZeroCrossing]:
        """Crossings of the curve as measured."""
        return zero_crossings(self.x, self.y)

    @cached_property
    def samples(self) -> Values:
        """Joint replicates, shape (replicates, places), without those that are not finite at every place."""
        drawn = joint_replicates([each.ratio for each in self.places], self.seed)
        return drawn[np.isfinite(drawn).all(axis=1)]

    @cached_property
    def weights(self) -> Values:
        """Weights of the places, shape (places,): 1 / variance of their replicates; all 1 if a variance is 0."""
        variance = self.samples.var(axis=0)
        return np.asarray(1 / variance) if (variance > 0).all() else np.ones_like(variance)

    @cached_property
    def falls(self) -> bool:
        """Whether the nearest falling curve replaces it: the axis assumes falling, and all intervals contain it."""
        if not self.axis.falling:
            return False
        nearest = nearest_falling(self.y[np.newaxis], self.weights)[0]
        bounds = [each.ratio.chosen.bounds for each in self.places if each.ratio.chosen is not None]
        return all(each.low <= value <= each.high for value, each in zip(nearest, bounds, strict=True))

    @property
    def rises(self) -> bool:
        """Whether it crosses upwards."""
        return not self.falls and any(not each.falls for each in self.zero_crossings)

    @property
    def tangled(self) -> bool:
        """Whether there is no single crossing: several, or one upwards where it should fall."""
        return not self.falls and (len(self.zero_crossings) > 1 or (self.axis.falling and self.rises))

    @property
    def one_sided(self) -> bool:
        """Whether it is on one side of 1 at all places, by more than noise explains."""
        same = (np.sign(self.samples) == np.sign(self.y[0])).all(axis=1)
        return bool(same.mean() >= (1 + LEVEL) / 2)

    def crossing(self) -> CrossingPlace:
        """Return the crossing, with percentiles of the replicates' crossings as its interval."""
        curves = np.concatenate([self.y[np.newaxis], self.samples]) * (-1.0 if self.rises else 1.0)
        found = first_fall_to_zero(self.x, nearest_falling(curves, self.weights) if self.falls else curves)
        tail = (1 - LEVEL) / 2
        low = np.quantile(found[1:], tail, method="lower")
        high = np.quantile(found[1:], 1 - tail, method="higher")
        return CrossingPlace(float(found[0]), float(low), float(high))
