"""Finds where a speed-up crosses 1 along one axis, with an interval, or reports why there is no single place.

The log of the speed-up is connected by straight lines over the axis's scale (logarithmic for loads and lengths). Along
the load a speed-up is assumed to fall: the nearest curve that never rises (isotonic regression) replaces the measured
one if it is within the intervals of all places, so that noise about 1 does not count as several crossings. Otherwise
the curve is used as measured, and several crossings, or one upwards, are listed without an interval.

The interval is that of the crossing over joint replicates of all speed-ups. A replicate that never falls to 1 has its
crossing beyond the largest place, one that starts below 1 has it below the smallest: these ends stay open. Whether the
curve is straight between two places is not tested: only a measurement between them could show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from specbench_client.analysis.curves.axes import CurveAxis
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import deviations
from specbench_client.analysis.statistics.effects import Effect, EffectDraws
from specbench_client.analysis.statistics.intervals import percentile_interval
from specbench_client.analysis.statistics.level import LEVEL, TAIL, t_quantile
from specbench_client.documents.curves import Crossing, Crossover, CrossoverInterval, CrossoverKind
from specbench_client.documents.figure import Figure, FigureInterval
from specbench_client.numpy_columns import Values

PLACES_MIN = 2
"""Fewest places for a crossover."""


def find_crossover(axis: CurveAxis, places: Sequence[MeasuredPlace], left_out: Sequence[str], seed: int) -> Crossover:
    """Find where the speed-up is 1.

    `places`: measured places in any order, each once. `left_out`: other places, each with the reason.
    """
    ordered = sorted(places, key=lambda each: each.place)
    if len(ordered) < PLACES_MIN:
        return crossover_unknown(axis, [each.place for each in ordered], left_out)
    curve = MeasuredCurve(axis, ordered, seed)
    if curve.tangled:
        return crossover_of(curve, CrossoverKind.NOT_MONOTONE, None, left_out)
    if not axis.falling and not curve.zero_crossings:  # the crossing may be on either side
        kind = CrossoverKind.NOT_REACHED if curve.one_sided else CrossoverKind.INDISTINGUISHABLE
        return crossover_of(curve, kind, None, left_out)
    place = curve.crossing()
    return crossover_of(curve, _kind(place), place, left_out)


def _kind(place: CrossingPlace) -> CrossoverKind:
    if place.low == -np.inf and place.high == np.inf:
        return CrossoverKind.INDISTINGUISHABLE
    if np.isfinite(place.at):
        return CrossoverKind.REACHED
    return CrossoverKind.NOT_REACHED if place.at > 0 else CrossoverKind.BELOW_SMALLEST


def speedup_loss(curve: MeasuredCurve) -> Figure:
    """Return 1 − speed-up at the largest place / speed-up at the smallest, from the measured values.

    It is below 0 if the speed-up grows. The interval is that of joint replicates of both places, so that the prompts
    and launches that they share do not count twice.
    """
    first, last = curve.places[0], curve.places[-1]
    drawn = _lost(curve.samples[:, -1] - curve.samples[:, 0])
    method = f"percentiles over {len(curve.samples)} joint replicates of both speed-ups"
    return Figure(
        value=float(_lost(curve.y[-1] - curve.y[0])),
        unit="ratio",
        definition=(
            f"Share of the speed-up that is lost from {curve.axis.words(first.place)} to"
            f" {curve.axis.words(last.place)}: 1 - the last speed-up / the first"
        ),
        n=min(first.effect.units, last.effect.units),
        interval=percentile_interval(drawn, method),
        source="both",
    )


def _lost(difference: Values) -> Values:
    """Convert differences of log speed-ups (last − first) to losses; the shape stays the same."""
    return np.asarray(1 - np.exp(difference), dtype=np.float64)


_LEVEL_WORDS = f"{LEVEL:.0%}"


def crossover_of(
    curve: MeasuredCurve, kind: CrossoverKind, place: CrossingPlace | None, left_out: Sequence[str]
) -> Crossover:
    """Return the crossover of a curve as a document. `place`: None if there is no single place."""
    axis = curve.axis
    known = place is not None and kind is not CrossoverKind.INDISTINGUISHABLE
    interval = _interval(curve, place) if place is not None and known else None
    value = axis.unscaled(place.at) if place is not None and kind is CrossoverKind.REACHED else None
    return Crossover(
        axis=axis.name,
        kind=kind,
        at=_figure(axis, value, min(each.effect.units for each in curve.places), interval),
        interval=interval,
        places=[each.place for each in curve.places],
        crossings=[Crossing(at=axis.unscaled(each.at), falls=each.falls) for each in curve.zero_crossings],
        left_out=list(left_out),
        lost=speedup_loss(curve),
        message=_sentence(curve, kind, value) + (f" ({_ends(curve, interval)})" if interval else ""),
    )


def crossover_unknown(axis: CurveAxis, places: Sequence[float], left_out: Sequence[str]) -> Crossover:
    """Return the document for fewer than two usable points of the curve."""
    one = f"only {axis.words(places[0])}" if places else "no load"
    return Crossover(
        axis=axis.name,
        kind=CrossoverKind.INSUFFICIENT_DATA,
        at=_figure(axis, None, 0, None),
        places=list(places),
        left_out=list(left_out),
        message="; ".join([f"no crossover: {one} has a usable speed-up", *left_out]),
    )


def _interval(curve: MeasuredCurve, place: CrossingPlace) -> CrossoverInterval:
    ends = {-np.inf: curve.places[0].place, np.inf: curve.places[-1].place}
    low = None if place.low == -np.inf else ends.get(place.low, curve.axis.unscaled(place.low))
    high = None if place.high == np.inf else ends.get(place.high, curve.axis.unscaled(place.high))
    shape = "each replaced by the nearest curve that never rises (isotonic regression)" if curve.falls else "as drawn"
    method = (
        f"percentiles over {len(curve.samples)} joint replicates of the speed-ups at {curve.x.size} places, {shape};"
        " each place is spread as its own interval (unit: prompt or repeat, the wider)"
    )
    return CrossoverInterval(low=low, high=high, level=LEVEL, method=method)


def _figure(axis: CurveAxis, value: float | None, prompts: int, interval: CrossoverInterval | None) -> Figure:
    bounds = None
    if value is not None and interval and interval.low is not None and interval.high is not None:
        bounds = FigureInterval(low=interval.low, high=interval.high, level=LEVEL, method=interval.method)
    scale = f"the log of the {axis.words()}" if axis.logarithmic else f"the {axis.words()}"
    return Figure(
        value=value,
        unit=axis.unit,
        definition=f"Where the speed-up is 1: its log is connected by straight lines over {scale}",
        n=0 if value is None else prompts,
        interval=bounds,
        source="both",
    )


def _sentence(curve: MeasuredCurve, kind: CrossoverKind, value: float | None) -> str:
    smallest, largest = (curve.axis.words(curve.places[at].place) for at in (0, -1))
    if value is not None:
        return f"{'rises' if curve.rises else 'falls'} to 1 at {curve.axis.words(value)}"
    match kind:
        case CrossoverKind.NOT_REACHED if curve.axis.falling:
            return f"crossover not reached up to {largest}: above 1 all the way"
        case CrossoverKind.NOT_REACHED:
            side = "above" if curve.y[0] > 0 else "below"
            return f"crossover not reached from {smallest} to {largest}: {side} 1 all the way"
        case CrossoverKind.BELOW_SMALLEST:
            return f"at 1 or below from {smallest} on, the smallest measured place"
        case CrossoverKind.NOT_MONOTONE:
            passages = [
                f"{'falls' if each.falls else 'rises'} through 1 at {curve.axis.words(curve.axis.unscaled(each.at))}"
                for each in curve.zero_crossings
            ]
            return f"no single place: {', '.join(passages)}"
        case _:
            return f"indistinguishable from 1 between {smallest} and {largest}: it may be anywhere, or nowhere"


def _ends(curve: MeasuredCurve, interval: CrossoverInterval) -> str:
    smallest, largest = curve.places[0].place, curve.places[-1].place
    number = curve.axis.number
    if interval.low is None:
        high = smallest if interval.high is None else interval.high
        return f"{_LEVEL_WORDS}: below {number(smallest)}" + (f", or up to {number(high)}" if high > smallest else "")
    if interval.high is None:
        low = f"{number(interval.low)} or more, perhaps " if interval.low < largest else ""
        return f"{_LEVEL_WORDS}: {low}beyond {number(largest)}"
    return f"{_LEVEL_WORDS}: {number(interval.low)} to {number(interval.high)}"


# Joint replicates of several speed-ups.
#
# The replicates of each speed-up have the spread of its reported interval: resamples of prompts plus the variance of
# whole repeats, or t about the value where the repeats alone determine the interval. Dependence between the speed-ups
# of a curve is preserved. Prompts: resamples with the same seed draw the same prompts at every place. Runs: the
# deviations of the repeats are used repeat by repeat, so that a mean of several places has the spread of a t interval
# over that mean (multivariate t): an engine that was slow in one repeat was slow at every load of this launch.

_PURPOSE = 20_1
"""Makes these draws independent of the resamples from the same seed."""


def joint_replicates(effects: Sequence[Effect], seed: int) -> Values:
    """Return joint replicates of log ratios, shape (resamples, places). Each needs an interval over runs, and draws."""
    rng = np.random.default_rng((seed, _PURPOSE))
    drawn = [each.draws for each in effects if each.draws is not None]
    known = np.unique(np.concatenate([each.repeats for each in drawn]))
    count = bootstrap.RESAMPLES
    normals, uniform = rng.standard_normal((count, known.size)), rng.random(count)
    each = zip(effects, drawn, strict=True)
    return np.stack([_of(one, own, normals[:, np.isin(known, own.repeats)], uniform) for one, own in each], axis=1)


def _of(effect: Effect, draws: EffectDraws, normals: Values, uniform: Values) -> Values:
    """Return value + standard error × t, shape (resamples,).

    t uses one normal per repeat (`normals`, shape (resamples, repeats)), one chi-square for all places (`uniform`), and
    the resampled prompts.
    """
    assert effect.chosen is not None
    moved, freedom = deviations(draws.runs, draws.turns), effect.chosen.freedom
    length = float(np.linalg.norm(moved))
    whole = normals @ (moved / length) if length else np.zeros(len(normals))
    if effect.chosen.over_repeats:
        spread = whole * (effect.chosen.bounds.high - effect.chosen.bounds.low) / 2 / t_quantile(freedom)
    else:
        spread = whole * effect.chosen.runs_error + draws.samples - effect.value
    shrunk = np.sqrt(scipy.special.chdtri(freedom, uniform) / freedom)
    return np.asarray(effect.value + spread / shrunk, dtype=np.float64)


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
        found[row] = scipy.optimize.isotonic_regression(curves[row], weights=weights, increasing=False).x
    return found


@dataclass(frozen=True)
class MeasuredPlace:
    """One measured place and its speed-up, whose interval includes the variation between runs."""

    place: float
    effect: Effect


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
        return np.array([each.effect.value for each in self.places], dtype=np.float64)

    @cached_property
    def zero_crossings(self) -> Sequence[ZeroCrossing]:
        """Crossings of the curve as measured."""
        return zero_crossings(self.x, self.y)

    @cached_property
    def samples(self) -> Values:
        """Joint replicates, shape (replicates, places), without those that are not finite at every place."""
        drawn = joint_replicates([each.effect for each in self.places], self.seed)
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
        bounds = [each.effect.chosen.bounds for each in self.places if each.effect.chosen is not None]
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
        low = np.quantile(found[1:], TAIL, method="lower")
        high = np.quantile(found[1:], 1 - TAIL, method="higher")
        return CrossingPlace(float(found[0]), float(low), float(high))
