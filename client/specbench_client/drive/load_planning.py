"""Plans the load of each point: streams or arrival times, the number of workers, and the tolerated failures."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.load import Arrival, Level, Load
from specbench_client.documents.record import Record
from specbench_client.drive.prompts import WorkloadPrompts
from specbench_client.errors import EngineFailed
from specbench_client.load.arrivals import (
    FillerArrivals,
    Offsets,
    ScheduledTimes,
    ScheduleLength,
    filler_arrivals,
    load_trace,
    mean_rate,
    schedule_arrivals,
)
from specbench_client.load.machine_limits import workers_for_rate, workers_for_streams
from specbench_client.load.worker_shares import (
    WorkerLoad,
    closed_loop_load,
    open_loop_load,
)
from specbench_client.transport.error_class import ErrorClass


@dataclass(frozen=True)
class ArrivalPlan:
    """The arrivals of an open loop. `trace`: the timestamps of a recording (s), if there is one.

    A schedule depends on load and repeat only, so the arms of a comparison have the same arrivals.
    """

    load: Load
    trace: Offsets | None

    @property
    def trace_fingerprint(self) -> str | None:
        """SHA-256 of the trace's timestamps."""
        return None if self.trace is None else hashlib.sha256(self.trace.astype("<f8").tobytes()).hexdigest()

    def times(self, point: Point, prompts: int) -> ScheduledTimes | None:
        """Return when the point's conversations begin (ns from the schedule's start); None for a closed loop.

        Raises BadInput.
        """
        if point.level.concurrency is not None:
            return None
        duration_s = self.load.duration_seconds
        extent = (
            ScheduleLength(count=self.load.requested(point.level) or prompts)
            if duration_s is None
            else ScheduleLength(duration_s=duration_s)
        )
        return schedule_arrivals(
            self.load.arrival or Arrival(), point.level.rate, extent, point.repeat, trace=self.trace
        )

    def mean_rate(self, level: Level) -> float | None:
        """Return the conversations per second, of a trace without a rate its own; None if all are at one moment."""
        return mean_rate(self.trace) if level.rate is None and self.trace is not None else level.rate

    def around(self, point: Point, times: ScheduledTimes) -> FillerArrivals | None:
        """Return when fillers may begin before and after these times."""
        return filler_arrivals(self.load.arrival or Arrival(), point.level.rate, point.repeat, times)


def load_arrival_plan(plan: Plan, base_dir: Path, prompts: Mapping[str, WorkloadPrompts]) -> ArrivalPlan:
    """Read the trace, if there is one.

    Raises BadInput, also if there are no arrivals for a point of the workloads that these prompts are of.
    """
    uri = plan.load.arrival.uri if plan.load.arrival else None
    arrivals = ArrivalPlan(plan.load, None if uri is None else load_trace(uri, base_dir))
    for point in plan.points:
        if point.workload in prompts:
            arrivals.times(point, len(prompts[point.workload].prompts.rows))
    return arrivals


_CONNECTION_ERRORS = (ErrorClass.REFUSED, ErrorClass.RESET)


WARMUP_STREAMS = 8
"""Streams of the warm-up of an open loop, which has no number of streams."""


@dataclass(frozen=True)
class LoadPlanner:
    """Plans loads.

    `cores`: usable ones. `workers`: the requested number; None: as many as a load needs, at most one per core.
    """

    plan: Plan
    arrivals: ArrivalPlan
    cores: int
    workers: int | None = None

    def of(self, point: Point, prompts: int) -> WorkerLoad:
        """Return the point's load over this many prompts. Raises BadInput."""
        times = self.arrivals.times(point, prompts)
        if times is not None:
            workers = self.workers or workers_for_rate(_rate(point, times), self.cores)
            slots = (self.plan.load.arrival or Arrival()).max_in_flight
            return open_loop_load(times, workers, self.arrivals.around(point, times), slots)
        load = self.plan.load
        conversations = None if load.duration_seconds is not None else load.requested(point.level) or prompts
        return self._closed(point.level.concurrency or 1, conversations, load.duration_seconds)

    def warm_up(self, point: Point, most: int) -> WorkerLoad:
        """Return a closed loop of at most `most` conversations, with the point's own concurrency if it has one."""
        return self._closed(self.warmup_streams(point), most, None)

    def warmup_streams(self, point: Point) -> int:
        """Return the number of streams of the point's warm-up."""
        return point.level.concurrency or min(self.plan.slots, WARMUP_STREAMS)

    def pool_size(self, points: Sequence[Point], prompts: Mapping[str, int]) -> int:
        """Return the maximum number of workers of these points. `prompts`: counts by workload. Raises BadInput."""
        driven = (self.of(point, prompts[point.workload]).workers for point in points)
        warming = (self.warm_up(point, 1).workers for point in points)
        return max([*driven, *warming], default=1)

    def _closed(self, streams: int, conversations: int | None, duration_s: float | None) -> WorkerLoad:
        workers = self.workers or workers_for_streams(streams, self.cores)
        return closed_loop_load(streams, workers, conversations, duration_s)


def _rate(point: Point, times: ScheduledTimes) -> float:
    """Return the requested rate, or the trace's own; if all arrivals are at one moment, their number."""
    if point.level.rate is not None:
        return point.level.rate
    return mean_rate(times / 1e9) or float(times.size)


# How many failed requests a load tolerates before it is given up.
#
# A point with many failed requests is Invalid in any case, and an engine that is gone fails all remaining requests
# within milliseconds. Both are ended early, so that the other arms can be measured. Only an engine that no longer
# answers is lost, and launched again: one that answers would reject the same prompts, or limit the same rate, again.

FAILED_SHARE_MAX = 0.5
"""A load is given up if more than this share of at least FAILED_SHARE_AFTER requests failed."""
FAILED_SHARE_AFTER = 8
_WAYS_OUT: Mapping[str | None, str] = {
    ErrorClass.RATE_LIMITED: ": lower the load",
    ErrorClass.HTTP_4XX: ": remove the prompts that it rejects, or correct what it names (extraBody, output.maxTokens)",
    ErrorClass.HTTP_5XX: ": read the server's log, or lower the load",
}
"""Error class of an answer → what to do about it, to follow the server's words."""
CONNECTION_FAILURES_MAX = 5
"""A load is given up if so many connections failed in a row, and the engine does not answer."""


class FailureCounter:
    """Counts failed requests of one load, over all workers. `alive` checks the engine's health route."""

    def __init__(self, alive: Callable[[], Awaitable[bool]], share_max: float = FAILED_SHARE_MAX) -> None:
        self._alive = alive
        self._share_max = share_max
        self._requests = 0
        self._failed = 0
        self._connection_failures = 0

    async def add(self, record: Record) -> None:
        """Count a record. Raises EngineFailed (LOST or REQUESTS_FAILED) if the load is given up."""
        if record.error_class == ErrorClass.SKIPPED_AFTER_ERROR:
            return
        self._requests += 1
        if record.error_class is None:
            self._connection_failures = 0
            return
        self._failed += 1
        self._connection_failures = self._connection_failures + 1 if record.error_class in _CONNECTION_ERRORS else 0
        too_many = self._requests >= FAILED_SHARE_AFTER and self._failed > self._share_max * self._requests
        if not too_many and self._connection_failures < CONNECTION_FAILURES_MAX:
            return
        self._connection_failures = 0
        failed = f"{self._failed} of {self._requests} requests failed, fillers included"
        last = f"the last one, of prompt {record.prompt_id}: {record.error_class}: {str(record.error).rstrip('.')}"
        last += _WAYS_OUT.get(record.error_class, "")
        if not await self._alive():
            raise EngineFailed(f"{failed} and the engine does not answer; {last}", EngineReason.LOST)
        if too_many:
            raise EngineFailed(f"{failed}; {last}", EngineReason.REQUESTS_FAILED)
