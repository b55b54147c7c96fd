"""A measured curve with its replicates: whether there is one place at which it is 1, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specbench_client.analysis.crossover.axis import Axis
from specbench_client.analysis.crossover.curve import Passage, fallen, first_fall, passages
from specbench_client.analysis.crossover.replicates import replicates
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.log_ratio import LogRatio
from specbench_client.metrics.frame import Values


@dataclass(frozen=True)
class Rung:
    """One measured place, and the speed-up there. Its interval holds what runs do."""

    place: float
    ratio: LogRatio


@dataclass(frozen=True)
class Place:
    """Where a curve is 1, and the interval of that, on the axis's scale.

    −inf: below the smallest measured place; +inf: beyond the largest.
    """

    at: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """Log speed-ups over an axis. `rungs`: two at least, one a place, the smallest first."""

    axis: Axis
    rungs: Sequence[Rung]
    seed: int

    @cached_property
    def x(self) -> Values:
        """The places on the axis's scale."""
        return self.axis.scaled(np.array([rung.place for rung in self.rungs], dtype=np.float64))

    @cached_property
    def y(self) -> Values:
        """The log speed-ups."""
        return np.array([rung.ratio.value for rung in self.rungs], dtype=np.float64)

    @cached_property
    def passages(self) -> Sequence[Passage]:
        """Of the curve as it was measured."""
        return passages(self.x, self.y)

    @cached_property
    def samples(self) -> Values:
        """Replicates × places; a replicate that lacks a place is left out."""
        drawn = replicates([rung.ratio for rung in self.rungs], self.seed)
        return drawn[np.isfinite(drawn).all(axis=1)]

    @cached_property
    def weights(self) -> Values:
        """Of the places: one over the variance of their replicates; alike where one has no noise at all."""
        variance = self.samples.var(axis=0)
        return np.asarray(1 / variance) if (variance > 0).all() else np.ones_like(variance)

    @cached_property
    def falls(self) -> bool:
        """Whether the nearest falling curve stands for it: assumed along this axis, and within every interval."""
        if not self.axis.falling:
            return False
        nearest = fallen(self.y[np.newaxis], self.weights)[0]
        bounds = [rung.ratio.chosen.bounds for rung in self.rungs if rung.ratio.chosen is not None]
        return all(each.low <= value <= each.high for value, each in zip(nearest, bounds, strict=True))

    @property
    def rises(self) -> bool:
        """Whether its one passage leads upwards."""
        return not self.falls and any(not each.falls for each in self.passages)

    @property
    def tangled(self) -> bool:
        """Whether there is no one place to speak of: several passages, or one upwards where it should fall."""
        return not self.falls and (len(self.passages) > 1 or (self.axis.falling and self.rises))

    @property
    def one_sided(self) -> bool:
        """Whether it lies on one side of 1 at all its places, by more than noise explains."""
        same = (np.sign(self.samples) == np.sign(self.y[0])).all(axis=1)
        return bool(same.mean() >= (1 + LEVEL) / 2)

    def crossing(self) -> Place:
        """The place, with the percentiles of the replicates' places."""
        curves = np.concatenate([self.y[np.newaxis], self.samples]) * (-1.0 if self.rises else 1.0)
        found = first_fall(self.x, fallen(curves, self.weights) if self.falls else curves)
        tail = (1 - LEVEL) / 2
        low = np.quantile(found[1:], tail, method="lower")
        high = np.quantile(found[1:], 1 - tail, method="higher")
        return Place(float(found[0]), float(low), float(high))
