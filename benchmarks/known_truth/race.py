"""Runs the search of `spec.search` on arms of known speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.analysis.decision.request import WORTH
from specbench_client.analysis.statistics.race import SpeedModel, next_round

Truth = Callable[[str, int], float]
"""The log speed-up of an arm at a load."""
Launch = Callable[[str], Callable[[int], float]]
"""Launches an arm, and returns how to measure its log speed at a load."""


@dataclass(frozen=True)
class RaceResult:
    """`chosen`: the arm with the largest speed at each load; `pays`: where it is shown to be faster than the baseline.

    `covered`: whether the differences to the baseline were inside their intervals at every look.
    """

    chosen: Mapping[int, str]
    pays: Mapping[int, bool]
    launches: int
    points: int
    ended: bool
    covered: bool


def run_race(arms: Sequence[str], loads: Sequence[int], truth: Truth, launch: Launch, rounds: int) -> RaceResult:
    """Run a race of arms beside the baseline, of so many rounds at most."""
    speeds: dict[int, dict[tuple[str, int], float]] = {load: {} for load in loads}
    following, launches, covered = {arm: list(loads) for arm in (BASELINE_NAME, *arms)}, 0, True
    for number in range(rounds):
        for arm, used in following.items():
            measure = launch(arm)
            launches += 1
            for load in used:
                speeds[load][arm, number] = measure(load)
        models = {("simulated", Level(concurrency=load)): SpeedModel.fit(speeds[load]) for load in loads}
        for (_, level), model in models.items():
            load, gains = level.concurrency or 0, {arm: model.gain(arm) for arm in model.arms}
            covered &= all(gain.low <= truth(arm, load) <= gain.high for arm, gain in gains.items())
        found = next_round(models, math.log(WORTH), number + 1)
        following = {arm: [level.concurrency or 0 for _, level in places] for arm, places in found.items()}
        if not following:
            break
    leaders = {
        level.concurrency or 0: (model.leader(), model.gain(model.leader())) for (_, level), model in models.items()
    }
    return RaceResult(
        {load: arm if gain.value > 0 else BASELINE_NAME for load, (arm, gain) in leaders.items()},
        {load: gain.low > 0 for load, (_, gain) in leaders.items()},
        launches,
        sum(map(len, speeds.values())),
        not following,
        covered,
    )
