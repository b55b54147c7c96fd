"""A race of arms: which to launch next, and at which loads, from the speeds of earlier launches.

A round launches the baseline and some arms, each once. At each load the logs of speeds are a linear model of arm and
round, and all arms share its residual variance, so that an arm is judged after a single launch of its own. A difference
of two arms has the confidence sequence of `confidence_sequence`, valid however often one looks. benchmarks/search.md
has how often the rule is right, and what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbench_api.plan.estimate import contenders
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.analysis.statistics.confidence_sequence import half_width, sequence_p_value
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.numpy_columns import Values

Speeds = Mapping[tuple[str, int], float]
"""The log of the speed by (arm, round), at one load; it may lack a term that all arms of the round share."""
Place = tuple[str, Level]
"""A workload and a load."""


@dataclass(frozen=True)
class Difference:
    """The log ratio of two arms' speeds, with its confidence sequence and the p-value of "they are equal"."""

    value: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True)
class SpeedModel:
    """Least squares of the log speeds at one load on arm and round."""

    column_of: Mapping[str, int]
    coefficients: Values
    covariance: Values
    """In units of `variance`."""
    variance: float
    freedom: int

    @classmethod
    def fit(cls, speeds: Speeds) -> SpeedModel:
        """Fit the model; the first round is the reference of the others."""
        arms, rounds = sorted({arm for arm, _ in speeds}), sorted({number for _, number in speeds})
        column_of, values = {arm: column for column, arm in enumerate(arms)}, np.array(list(speeds.values()))
        design = np.zeros((len(speeds), len(arms) + len(rounds)))
        for row, (arm, number) in enumerate(speeds):
            design[row, [column_of[arm], len(arms) + rounds.index(number)]] = 1
        design = np.delete(design, len(arms), axis=1)
        covariance = np.asarray(np.linalg.pinv(design.T @ design), dtype=np.float64)
        coefficients = covariance @ design.T @ values
        freedom = len(speeds) - design.shape[1]
        left = values - design @ coefficients
        return cls(column_of, coefficients, covariance, float(left @ left) / max(freedom, 1), freedom)

    @property
    def arms(self) -> list[str]:
        """All arms but the baseline."""
        return [arm for arm in self.column_of if arm != BASELINE_NAME]

    @property
    def miss(self) -> float:
        """How often one interval may ever miss, so that all of a load together miss as often as LEVEL allows."""
        return (1 - LEVEL) / max(1, 2 * len(self.arms) - 1)

    def difference(self, arm: str, other: str, miss: float) -> Difference:
        """Compare two arms. `miss`: how often the interval may ever be wrong."""
        signs = np.zeros(len(self.coefficients))
        signs[self.column_of[arm]] += 1
        signs[self.column_of[other]] -= 1
        value, factor = float(signs @ self.coefficients), float(signs @ self.covariance @ signs)
        if arm == other:
            return Difference(0.0, 0.0, 0.0, 1.0)
        if self.freedom < 2:
            return Difference(value, -math.inf, math.inf, 1.0)
        variance, pairs = 2 * self.variance, 2 / factor  # a pair's variance is that of two launches
        half = half_width(variance, pairs, self.freedom, miss)
        return Difference(
            value, value - half, value + half, sequence_p_value(value, variance, pairs, float(self.freedom))
        )

    def gain(self, arm: str) -> Difference:
        """Compare an arm with the baseline, for all arms of the load together."""
        return self.difference(arm, BASELINE_NAME, self.miss)

    def leader(self) -> str:
        """Return the fastest arm but the baseline."""
        return max(self.arms, key=lambda arm: float(self.coefficients[self.column_of[arm]]))


def open_arms(models: Mapping[Place, SpeedModel], worth: float) -> dict[str, dict[Place, float]]:
    """Return the arms that may still change the answer, each with its loads and its log ratio to the leader.

    An arm is out where it is shown to gain less than `worth`, or to be at most `worth` better than the leader.
    `worth`: the smallest gain that matters, as a log ratio.
    """
    found: dict[str, dict[Place, float]] = {}
    for place, model in models.items():
        leader = model.leader()
        for arm in model.arms:
            gain, ahead = model.gain(arm), model.difference(arm, leader, model.miss)
            is_known = gain.low > 0 if arm == leader else ahead.high <= worth
            if not is_known and gain.high > worth:
                found.setdefault(arm, {})[place] = ahead.value
        if any(place in places for arm, places in found.items() if arm != leader):
            found.setdefault(leader, {})[place] = 0.0
    return found


def next_round(models: Mapping[Place, SpeedModel], worth: float, rounds: int) -> dict[str, list[Place]]:
    """Return the arms to launch next, the best first and then the baseline, each with its loads; empty at the end.

    `rounds`: how many were measured.
    """
    most = contenders(len({arm for model in models.values() for arm in model.arms}), rounds)
    ranked = sorted(open_arms(models, worth).items(), key=lambda each: -max(each[1].values()))
    found = {arm: list(places) for arm, places in ranked[:most]}
    used = dict.fromkeys(place for places in found.values() for place in places)
    return {**found, BASELINE_NAME: list(used)} if found else {}
