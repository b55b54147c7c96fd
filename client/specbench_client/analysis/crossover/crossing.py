"""Where a speed-up is 1 along one axis, with an interval; or why that cannot be said.

The log of the speed-up is joined by straight lines over the axis's scale (of loads and lengths, the log). Along the
load a speed-up is taken to fall: the nearest curve that never rises (isotonic regression) stands for the measured one
wherever it lies within the intervals of all places, so that noise about 1 does not pass for several crossings. Where it
does not, the curve is taken as it was measured, and several crossings, or one upwards, are listed without an interval.

The interval is that of the place over joint replicates of all places' speed-ups. A replicate that never comes down to 1
lies beyond the largest place, one that begins there below the smallest: these ends stay open. That the curve is
straight between two places is not tested by anything here: only a measurement between them could tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.crossover import Crossover, CrossoverKind
from specbench_client.analysis.crossover.axis import Axis
from specbench_client.analysis.crossover.shape import Curve, Place, Rung
from specbench_client.analysis.crossover.told import not_told, told

PLACES_MIN = 2
"""Between fewer there is nothing."""


def crossover(axis: Axis, rungs: Sequence[Rung], left_out: Sequence[str], seed: int) -> Crossover:
    """Say where the speed-up is 1. `rungs`: one a place, in any order. `left_out`: places, each with the reason."""
    ordered = sorted(rungs, key=lambda rung: rung.place)
    if len(ordered) < PLACES_MIN:
        return not_told(axis, [rung.place for rung in ordered], left_out)
    curve = Curve(axis, ordered, seed)
    if curve.tangled:
        return told(curve, CrossoverKind.NOT_MONOTONE, None, left_out)
    if not axis.falling and not curve.passages:  # on which side of the measured places it might be, nothing tells
        kind = CrossoverKind.NOT_REACHED if curve.one_sided else CrossoverKind.INDISTINGUISHABLE
        return told(curve, kind, None, left_out)
    place = curve.crossing()
    return told(curve, _kind(place), place, left_out)


def _kind(place: Place) -> CrossoverKind:
    if place.low == -np.inf and place.high == np.inf:
        return CrossoverKind.INDISTINGUISHABLE
    if np.isfinite(place.at):
        return CrossoverKind.REACHED
    return CrossoverKind.NOT_REACHED if place.at > 0 else CrossoverKind.BELOW_SMALLEST
