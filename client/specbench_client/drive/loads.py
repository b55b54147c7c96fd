"""How each point of a plan is driven: over which streams or at which moments, and by how many workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.plan.plan import Plan, Point
from specbench_client.drive.arrivals import Arrivals
from specbench_client.load.cores import workers_for_rate, workers_for_streams
from specbench_client.load.schedule import Times, mean_rate
from specbench_client.load.shares import Load, closed_load, open_load

WARMUP_STREAMS = 8
"""Streams that warm up for an open loop: it has none of its own, and warm is warm."""


@dataclass(frozen=True)
class Loads:
    """`workers`: how many were asked for; None: as many as a load needs, and the `cores` bear."""

    plan: Plan
    arrivals: Arrivals
    cores: int
    workers: int | None = None

    def of(self, point: Point, prompts: int) -> Load:
        """The point's load, over so many prompts. Raises BadInput."""
        times = self.arrivals.times(point, prompts)
        if times is not None:
            workers = self.workers or workers_for_rate(_rate(point, times), self.cores)
            return open_load(times, workers, self.arrivals.around(point, times))
        wanted = self.plan.load
        conversations = None if wanted.duration_seconds is not None else wanted.requests or prompts
        return self._closed(point.level.concurrency or 1, conversations, wanted.duration_seconds)

    def warm_up(self, point: Point, most: int) -> Load:
        """A closed loop of at most so many conversations, at the point's own level where that is one."""
        return self._closed(self.warmup_streams(point), most, None)

    def warmup_streams(self, point: Point) -> int:
        """Streams that warm up for the point."""
        return point.level.concurrency or min(self.plan.slots, WARMUP_STREAMS)

    def crew_size(self, points: Sequence[Point], prompts: Mapping[str, int]) -> int:
        """Workers that the most demanding of the points needs; `prompts`: by workload. Raises BadInput."""
        driven = (self.of(point, prompts[point.workload]).workers for point in points)
        warming = (self.warm_up(point, 1).workers for point in points)
        return max([*driven, *warming], default=1)

    def _closed(self, streams: int, conversations: int | None, duration_s: float | None) -> Load:
        workers = self.workers or workers_for_streams(streams, self.cores)
        return closed_load(streams, workers, conversations, duration_s)


def _rate(point: Point, times: Times) -> float:
    """What was asked for, or what a trace has of itself; of a single moment, all at once."""
    if point.level.rate is not None:
        return point.level.rate
    return mean_rate(times / 1e9) or float(times.size)
