"""How long a campaign holds GPUs and how much of that it uses: a simulation with recorded or random durations.

One launch holds its GPUs from the moment its engine's pod is on a node until that pod is gone:

    load       image, weights, compilation, until the engine is ready                           used
    hand-over  the readiness probe sees it, the client's pod starts, the first completion       idle
    points     each with its warm-up                                                            used
    between    from one point to the next: records are closed, the next schedule is drawn       idle
    release    the client ends, the operator sees it, the engine's pod ends                     idle

No GPUs are held between two launches: each has its own pod, which is gone before the next one starts. So neither the
number of launches nor parallelism adds to it. Lost and repeated launches are not included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specbench_api.plan.plan import EngineGroup, Plan


@dataclass(frozen=True)
class LaunchTimes:
    """Seconds of one launch. `points_s`: per point; `between_s`: between two points."""

    load_s: float
    hand_over_s: float
    points_s: Sequence[float]
    between_s: float
    release_s: float

    @property
    def used_s(self) -> float:
        """Seconds of loading and measuring."""
        return self.load_s + sum(self.points_s)

    @property
    def held_s(self) -> float:
        """All seconds in which GPUs are held."""
        return self.used_s + self.hand_over_s + self.between_s * max(len(self.points_s) - 1, 0) + self.release_s


@dataclass(frozen=True)
class GpuTime:
    """GPU-seconds."""

    used: float = 0.0
    held: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Held over used: 1 is no waste. None if no GPU is requested."""
        return self.held / self.used if self.used else None


def gpu_time(plans: Iterable[Plan], times: Callable[[Plan, EngineGroup], LaunchTimes]) -> GpuTime:
    """GPU time of all launches of these runs; `times` returns the durations of a launch."""
    used = held = 0.0
    for plan in plans:
        for group in plan.groups:
            launch = times(plan, group)
            used += plan.placement.engine_devices * launch.used_s
            held += plan.placement.engine_devices * launch.held_s
    return GpuTime(used, held)
