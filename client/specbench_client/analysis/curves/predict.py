"""What a curve says of a place that was asked for: measured, interpolated between its neighbours, or refused.

Between two places the log of the figure is taken to be straight over the axis's scale. The interval is that of the two
neighbours' joint replicates on that line: it holds their noise, and nothing of what the curve may do between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.curves import Basis, Prediction
from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.crossover.axis import Axis
from specbench_client.analysis.crossover.replicates import replicates
from specbench_client.analysis.curves.measured import LENGTH_DEFINITION, Measured
from specbench_client.analysis.estimates.break_even import length_figure
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.log_ratio import LogRatio

SAME = 1e-9
"""Relative distance below which two places are one."""


def predicted(axis: Axis, points: Sequence[Measured], place: float) -> Prediction:
    """Answer for one place. `points`: the smallest first, at least one."""
    here = next((each for each in points if abs(each.sample.place - place) <= SAME * max(1.0, abs(place))), None)
    if here is not None:
        length = length_figure(here.length, LENGTH_DEFINITION, here.sample.drafts)
        return _of(axis, place, Basis.MEASURED, [here], (here.compared.figure, length))
    below = [each for each in points if each.sample.place < place]
    above = [each for each in points if each.sample.place > place]
    if not below or not above:
        return _refused(axis, points, place)
    ends = (below[-1], above[0])
    return _of(axis, place, Basis.INTERPOLATED, ends, _between(axis, ends, place))


def _between(axis: Axis, ends: tuple[Measured, Measured], place: float) -> tuple[Figure | None, Figure | None]:
    low, high, here = (
        float(axis.scaled(np.array([each]))[0]) for each in (ends[0].sample.place, ends[1].sample.place, place)
    )
    share = (here - low) / (high - low)
    seed = ends[0].seed
    speedups, lengths = [each.compared.ratio for each in ends], [each.length for each in ends]
    return (
        _interpolated(speedups, share, seed, ("ratio", "Speed-up")),
        _interpolated(lengths, share, seed, ("tokens/step", "Acceptance length, emitted and pooled")),
    )


def _interpolated(ends: Sequence[LogRatio | None], share: float, seed: int, what: tuple[str, str]) -> Figure | None:
    known = [each for each in ends if each is not None]
    if len(known) < len(ends):
        return None
    weights = np.array([1 - share, share])
    value = float(np.dot(weights, [each.value for each in known]))
    interval = None
    if all(each.told for each in known):
        samples = replicates(known, seed) @ weights
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(samples[np.isfinite(samples)], [tail, 1 - tail])
        method = "interpolated: percentiles of both neighbours' joint replicates on the straight line between them"
        interval = FigureInterval(low=float(np.exp(low)), high=float(np.exp(high)), level=LEVEL, method=method)
    unit, words = what
    return Figure(
        value=float(np.exp(value)),
        unit=unit,
        definition=f"{words}, interpolated: its log on the straight line between the two measured neighbours",
        n=min(each.prompts for each in known),
        interval=interval,
        source="both",
    )


def _of(
    axis: Axis, place: float, basis: Basis, ends: Sequence[Measured], figures: tuple[Figure | None, Figure | None]
) -> Prediction:
    between = [each.sample.place for each in ends]
    speedup, length = figures
    where = f"between {axis.words(between[0])} and {axis.words(between[-1])}" if len(between) > 1 else "there"
    return Prediction(
        place=place,
        basis=basis,
        between=between,
        speedup=speedup,
        acceptance_length=length if length is not None and length.value is not None else None,
        message=f"{axis.words(place)}: {basis} {where}",
    )


def _refused(axis: Axis, points: Sequence[Measured], place: float) -> Prediction:
    first, last = (axis.words(points[end].sample.place) for end in (0, -1))
    measured = f"{first} alone" if len(points) == 1 else f"{first} to {last}"
    message = f"{axis.words(place)}: refused, it lies outside of what was measured ({measured}): measure it there"
    return Prediction(place=place, basis=Basis.REFUSED, message=message)
