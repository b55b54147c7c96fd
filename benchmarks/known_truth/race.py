"""A race of arms: which to launch next, and at which loads, from the speeds of earlier launches.

This is the rule that `spec.search` is to use, tried on arms of known speed; no run uses it yet. A round launches the
baseline and some arms, each once. At each load the logs of speeds are a linear model of arm and round, and all arms
share its residual variance, so that an arm is judged after a single launch of its own. A difference of two arms has the
confidence sequence of `analysis.statistics.confidence_sequence`, valid however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_client.analysis.statistics.confidence_sequence import half_width
from specbench_client.analysis.statistics.level import LEVEL

Values = NDArray[np.float64]
Speeds = Mapping[tuple[int, int], float]
"""The log of the speed by (arm, round), at one load. Arm 0 is the baseline."""
BASELINE = 0
CONTENDERS_MIN = 3
"""Arms of a round at least: fewer would leave nothing to compare the leader with."""


@dataclass(frozen=True)
class Difference:
    """The log ratio of two arms' speeds, with its confidence sequence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeedModel:
    """Least squares of the log speeds at one load on arm and round."""

    column_of: Mapping[int, int]
    coefficients: Values
    covariance: Values
    """In units of `variance`."""
    variance: float
    freedom: int

    @classmethod
    def fit(cls, speeds: Speeds) -> SpeedModel:
        """Fit the model; the first round is the reference of the others."""
        arms, rounds = (sorted({key[part] for key in speeds}) for part in (0, 1))
        column_of, values = {arm: column for column, arm in enumerate(arms)}, np.array(list(speeds.values()))
        design = np.zeros((len(speeds), len(arms) + len(rounds)))
        for row, (arm, round_) in enumerate(speeds):
            design[row, [column_of[arm], len(arms) + rounds.index(round_)]] = 1
        design = np.delete(design, len(arms), axis=1)
        covariance = np.asarray(np.linalg.pinv(design.T @ design), dtype=np.float64)
        coefficients = covariance @ design.T @ values
        freedom = len(speeds) - design.shape[1]
        left = values - design @ coefficients
        return cls(column_of, coefficients, covariance, float(left @ left) / max(freedom, 1), freedom)

    def difference(self, arm: int, other: int, miss: float) -> Difference:
        """Compare two arms. `miss`: how often the interval may ever be wrong."""
        signs = np.zeros(len(self.coefficients))
        signs[self.column_of[arm]] += 1
        signs[self.column_of[other]] -= 1
        value, factor = float(signs @ self.coefficients), float(signs @ self.covariance @ signs)
        half = math.inf
        if arm == other:
            half = 0.0
        elif self.freedom > 1:  # a pair's variance is that of two launches
            half = half_width(2 * self.variance, 2 / factor, self.freedom, miss)
        return Difference(value, value - half, value + half)

    def leader(self) -> int:
        """Return the fastest arm but the baseline."""
        return max(self.column_of.keys() - {BASELINE}, key=lambda arm: float(self.coefficients[self.column_of[arm]]))


@dataclass(frozen=True)
class Race:
    """`worth`: the smallest gain that matters, as a log ratio."""

    arms: int
    """Their number, without the baseline."""
    loads: Sequence[int]
    worth: float = math.log(1.05)

    @property
    def miss(self) -> float:
        """How often one interval may ever miss, so that all of a load together miss as often as LEVEL allows."""
        return (1 - LEVEL) / max(1, 2 * self.arms - 1)

    def open_arms(self, models: Mapping[int, SpeedModel]) -> dict[int, dict[int, float]]:
        """Return the arms that may still change the answer, each with its loads and its log ratio to the leader.

        An arm is out where it is shown to gain less than `worth`, or to be no more than `worth` better than the leader.
        """
        found: dict[int, dict[int, float]] = {}
        for load, model in models.items():
            leader = model.leader()
            for arm in model.column_of.keys() - {BASELINE}:
                gain, ahead = (model.difference(arm, other, self.miss) for other in (BASELINE, leader))
                is_known = gain.low > 0 if arm == leader else ahead.high <= self.worth
                if not is_known and gain.high > self.worth:
                    found.setdefault(arm, {})[load] = ahead.value
            if any(load in loads for arm, loads in found.items() if arm != leader):
                found.setdefault(leader, {})[load] = 0.0
        return found

    def next_round(self, models: Mapping[int, SpeedModel], most: int) -> dict[int, list[int]]:
        """Return at most so many arms to launch next, the best first, each with its loads; empty at the end."""
        ranked = sorted(self.open_arms(models).items(), key=lambda each: -max(each[1].values()))
        return {arm: list(loads) for arm, loads in ranked[:most]}


@dataclass(frozen=True)
class RaceResult:
    """`chosen`: the arm with the largest speed at each load; `pays`: where it is shown to be faster than the baseline.

    `covered`: whether the differences to the baseline were inside their intervals at every look.
    """

    chosen: Mapping[int, int]
    pays: Mapping[int, bool]
    launches: int
    points: int
    ended: bool
    covered: bool


def run_race(
    race: Race, truth: Callable[[int, int], float], measure: Callable[[int], Callable[[int], float]], rounds: int
) -> RaceResult:
    """Run a race. `truth`: log speed-up of an arm at a load. `measure`: launches an arm, and returns log speeds."""
    speeds: dict[int, dict[tuple[int, int], float]] = {load: {} for load in race.loads}
    to_launch = {arm: list(race.loads) for arm in range(1, race.arms + 1)}
    launches, covered = 0, True
    for number in range(rounds):
        used = {load: None for loads in to_launch.values() for load in loads}
        for arm, loads in {BASELINE: list(used), **to_launch}.items():
            launch = measure(arm)
            launches += 1
            for load in loads:
                speeds[load][arm, number] = launch(load)
        models = {load: SpeedModel.fit(speeds[load]) for load in race.loads}
        for load, model in models.items():
            gains = {arm: model.difference(arm, BASELINE, race.miss) for arm in model.column_of.keys() - {BASELINE}}
            covered &= all(gain.low <= truth(arm, load) <= gain.high for arm, gain in gains.items())
        to_launch = race.next_round(models, max(CONTENDERS_MIN, math.ceil(race.arms / 2 ** (number + 1))))
        if not to_launch:
            break
    leads = {load: model.difference(model.leader(), BASELINE, race.miss) for load, model in models.items()}
    return RaceResult(
        {load: model.leader() if leads[load].value > 0 else BASELINE for load, model in models.items()},
        {load: lead.low > 0 for load, lead in leads.items()},
        launches,
        sum(map(len, speeds.values())),
        not to_launch,
        covered,
    )
