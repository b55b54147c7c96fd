"""For how long a campaign holds GPUs, and how much of that it uses: a simulation over recorded or drawn durations.

One launch holds its GPUs from the moment its engine's pod is on a node until that pod is gone:

    load       image, weights, compilation, until the engine is ready                           used
    hand-over  the readiness probe sees it, the client's pod starts, the first completion       held for nothing
    points     each with its warm-up                                                            used
    between    from one point to the next: records are closed, the next schedule is drawn       held for nothing
    release    the client ends, the operator sees it, the engine's pod ends                     held for nothing

Between two launches nothing is held: each has a pod of its own, which is gone before the next one begins; so neither
the number of launches nor parallelism adds to it. Launches that are lost and repeated are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specbench_api.plan.plan import EngineGroup, Plan


@dataclass(frozen=True)
class LaunchTimes:
    """Seconds of one launch. `points_s`: one a point; `between_s`: from each to the next."""

    load_s: float
    hand_over_s: float
    points_s: Sequence[float]
    between_s: float
    release_s: float

    @property
    def used_s(self) -> float:
        """Loads and measured work."""
        return self.load_s + sum(self.points_s)

    @property
    def held_s(self) -> float:
        """All of it."""
        return self.used_s + self.hand_over_s + self.between_s * max(len(self.points_s) - 1, 0) + self.release_s


@dataclass(frozen=True)
class GpuTime:
    """GPU-seconds."""

    used: float = 0.0
    held: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Held over used: 1 would waste nothing. None where no GPU is asked for."""
        return self.held / self.used if self.used else None


def gpu_time(plans: Iterable[Plan], times: Callable[[Plan, EngineGroup], LaunchTimes]) -> GpuTime:
    """Of all launches of these runs; `times` says how long each takes."""
    used = held = 0.0
    for plan in plans:
        for group in plan.groups:
            launch = times(plan, group)
            used += plan.placement.engine_devices * launch.used_s
            held += plan.placement.engine_devices * launch.held_s
    return GpuTime(used, held)
