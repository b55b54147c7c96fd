"""A crossover as documents have it, and its sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.crossover import Crossing, Crossover, CrossoverKind, PlaceInterval
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.crossover.axis import Axis
from specbench_client.analysis.crossover.loss import loss
from specbench_client.analysis.crossover.shape import Curve, Place
from specbench_client.analysis.statistics.bootstrap import LEVEL

_LEVEL_WORDS = f"{LEVEL:.0%}"


def told(curve: Curve, kind: CrossoverKind, place: Place | None, left_out: Sequence[str]) -> Crossover:
    """The answer. `place`: None where there is none to speak of."""
    axis = curve.axis
    known = place is not None and kind is not CrossoverKind.INDISTINGUISHABLE
    interval = _interval(curve, place) if place is not None and known else None
    value = axis.unscaled(place.at) if place is not None and kind is CrossoverKind.REACHED else None
    return Crossover(
        axis=axis.name,
        kind=kind,
        at=_figure(axis, value, min(rung.ratio.prompts for rung in curve.rungs), interval),
        interval=interval,
        places=[rung.place for rung in curve.rungs],
        crossings=[Crossing(at=axis.unscaled(each.at), falls=each.falls) for each in curve.passages],
        left_out=list(left_out),
        lost=loss(curve),
        message=_sentence(curve, kind, value) + (f" ({_ends(curve, interval)})" if interval else ""),
    )


def not_told(axis: Axis, places: Sequence[float], left_out: Sequence[str]) -> Crossover:
    """The answer where fewer than two places can be used."""
    one = f"one place alone ({axis.words(places[0])})" if places else "no place"
    return Crossover(
        axis=axis.name,
        kind=CrossoverKind.NOT_TOLD,
        at=_figure(axis, None, 0, None),
        places=list(places),
        left_out=list(left_out),
        message="; ".join([f"not told: {one} has a speed-up that can be used", *left_out]),
    )


def _interval(curve: Curve, place: Place) -> PlaceInterval:
    ends = {-np.inf: curve.rungs[0].place, np.inf: curve.rungs[-1].place}
    low = None if place.low == -np.inf else ends.get(place.low, curve.axis.unscaled(place.low))
    high = None if place.high == np.inf else ends.get(place.high, curve.axis.unscaled(place.high))
    shape = "each brought to the nearest curve that never rises (isotonic regression)" if curve.falls else "as they are"
    method = (
        f"percentiles over {len(curve.samples)} joint replicates of the speed-ups at {curve.x.size} places, {shape};"
        " each place spread as its own interval is (unit: prompt or repeat, the wider)"
    )
    return PlaceInterval(low=low, high=high, level=LEVEL, method=method)


def _figure(axis: Axis, value: float | None, prompts: int, interval: PlaceInterval | None) -> Figure:
    bounds = None
    if value is not None and interval and interval.low is not None and interval.high is not None:
        bounds = FigureInterval(low=interval.low, high=interval.high, level=LEVEL, method=interval.method)
    scale = f"the log of the {axis.words()}" if axis.logarithmic else f"the {axis.words()}"
    return Figure(
        value=value,
        unit=axis.unit,
        definition=f"Where the speed-up is 1: its log joined by straight lines over {scale}",
        n=0 if value is None else prompts,
        interval=bounds,
        source="both",
    )


def _sentence(curve: Curve, kind: CrossoverKind, value: float | None) -> str:
    smallest, largest = _edges(curve)
    if value is not None:
        return f"{'rises' if curve.rises else 'falls'} to 1 at {curve.axis.words(value)}"
    match kind:
        case CrossoverKind.NOT_REACHED if curve.axis.falling:
            return f"crossover not reached up to {largest}: above 1 all the way"
        case CrossoverKind.NOT_REACHED:
            side = "above" if curve.y[0] > 0 else "below"
            return f"crossover not reached from {smallest} to {largest}: {side} 1 all the way"
        case CrossoverKind.BELOW_SMALLEST:
            return f"at 1 or below from {smallest} on, the smallest that was measured"
        case CrossoverKind.NOT_MONOTONE:
            return f"no one place: {', '.join(_passages(curve))}"
        case _:
            return f"indistinguishable from 1 between {smallest} and {largest}: it may be anywhere, or nowhere"


def _passages(curve: Curve) -> list[str]:
    return [
        f"{'falls' if each.falls else 'rises'} through 1 at {curve.axis.words(curve.axis.unscaled(each.at))}"
        for each in curve.passages
    ]


def _ends(curve: Curve, interval: PlaceInterval) -> str:
    smallest, largest = curve.rungs[0].place, curve.rungs[-1].place
    number = curve.axis.number
    if interval.low is None:
        high = smallest if interval.high is None else interval.high
        return f"{_LEVEL_WORDS}: below {number(smallest)}" + (f", or up to {number(high)}" if high > smallest else "")
    if interval.high is None:
        low = f"{number(interval.low)} or more, perhaps " if interval.low < largest else ""
        return f"{_LEVEL_WORDS}: {low}beyond {number(largest)}"
    return f"{_LEVEL_WORDS}: {number(interval.low)} to {number(interval.high)}"


def _edges(curve: Curve) -> tuple[str, str]:
    """The smallest and the largest measured place."""
    return curve.axis.words(curve.rungs[0].place), curve.axis.words(curve.rungs[-1].place)
