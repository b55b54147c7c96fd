"""Ramp, steady state and drain of a load, and its requests in flight over time. Only the steady state is reported.

A request is ramp if it began before the steady state, and drain if it ended after it: in both cases the engine was not
under the requested load for the whole request. The bounds are times on one clock in shared memory, so a record's phase
is known as soon as its exchange has ended, without a message to another worker. A write becomes visible to the other
workers within a microsecond; a request that ends in that microsecond may count as steady.

Each worker records timestamps of its requests; the figures are computed over all workers at the end. A timestamp is
eight bytes in an array, on the monotonic clock that all processes of a machine share, so nothing has to be merged
during the measurement. Means over time need no sorting either: the time in flight during a window is the sum of all
ends clamped to the window minus the sum of all starts clamped to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from specbench_client.documents.record import RecordPhase
from specbench_client.load.shared_state import WorkerColumn, WorkerTable

NS_PER_S, NS_PER_MS = 1e9, 1e6
SCHEDULE_NOTICE_NS = 100_000_000
"""Time between the moment at which an open loop is steady and its schedule's start: long enough for every worker to
read the same start."""


class SteadyBounds(NamedTuple):
    """When the steady state began and ended (monotonic ns, absolute); None: not yet."""

    steady_start_ns: int | None
    steady_end_ns: int | None
    by_opening: bool = False
    """Whether requests that were opened after the end are drain (open loop), or those that ended after it."""

    def phase(self, opened_ns: int, ended_ns: int) -> RecordPhase:
        """Return the phase of a request that has ended."""
        if self.steady_start_ns is None or opened_ns < self.steady_start_ns:
            return RecordPhase.RAMP
        last_ns = opened_ns if self.by_opening else ended_ns
        return RecordPhase.STEADY if self.steady_end_ns is None or last_ns <= self.steady_end_ns else RecordPhase.DRAIN


def closed_loop_bounds(worker_table: WorkerTable, measured: int | None = None) -> SteadyBounds:
    """Return the bounds of a closed loop: from the first request of the last stream until a stream becomes idle.

    A stream that has begun sends without a pause, so from that moment on the requested number of requests is open,
    until the first stream of any worker stays idle. With fillers, no stream stays idle before the last of `measured`
    conversations has ended, and the steady state ends then.
    """
    full = worker_table.column(WorkerColumn.STEADY_START_NS)
    idle_ns, measured_ns = _earliest(worker_table, WorkerColumn.IDLE_NS), measured_end(worker_table, measured)
    return SteadyBounds(
        max(full) if all(full) else None, min((each for each in (idle_ns, measured_ns) if each), default=None)
    )


def open_loop_bounds(worker_table: WorkerTable, last_ns: int) -> SteadyBounds:
    """Return the bounds of an open loop without fillers: from when as many requests have ended as are in flight.

    An open loop has no number of streams to reach; it is full after one turnover. At rate r and with a latency of R,
    r R requests are in flight after R, and as many have ended after 2 R: by then, every request in flight began with
    as many others in flight as are left when it ends.

    After the last scheduled arrival (`last_ns`: of all workers, absolute) the load only falls, so a turn that is opened
    later is drain. A request that was opened before and ends later is not: excluding it would exclude long answers more
    often than short ones. The end of such a request runs under less load; this affects as many requests as were in
    flight.
    """
    return SteadyBounds(_earliest(worker_table, WorkerColumn.STEADY_START_NS), last_ns, by_opening=True)


def filled_loop_bounds(worker_table: WorkerTable, measured: int) -> SteadyBounds:
    """Like `open_loop_bounds`, with fillers: the steady state ends with the last of `measured` conversations."""
    return SteadyBounds(_earliest(worker_table, WorkerColumn.STEADY_START_NS), measured_end(worker_table, measured))


def measured_end(worker_table: WorkerTable, measured: int | None) -> int | None:
    """Return when the last measured conversation of all workers ended; None if some have not, or without fillers.

    Derived from the rows, not recorded by the worker of the last one: of two that end at one moment, none knows it is.
    """
    if measured is None or sum(worker_table.column(WorkerColumn.MEASURED)) < measured:
        return None
    return max(worker_table.column(WorkerColumn.MEASURED_END_NS))


def schedule_start(worker_table: WorkerTable, begin_ns: int, lead_most_ns: int) -> int:
    """Return when the schedule of an open loop with fillers starts: SCHEDULE_NOTICE_NS after the load became steady.

    An overloaded engine never becomes steady, so the schedule starts after `lead_most_ns` at the latest.
    """
    latest_ns, steady_start_ns = begin_ns + lead_most_ns, _earliest(worker_table, WorkerColumn.STEADY_START_NS)
    return latest_ns if steady_start_ns is None else min(latest_ns, steady_start_ns + SCHEDULE_NOTICE_NS)


@dataclass
class PhaseTracker:
    """Reports the events of one worker to the `WorkerTable`, and reads the bounds of the steady state from it.

    Each kind of loop overrides the events that change its phases.
    """

    worker_table: WorkerTable
    worker: int
    measured_of_all: int | None
    """Number of measured conversations of all workers; None for a load without fillers."""

    def started(self, begin_ns: int) -> None:
        """Report that the load begins."""

    def opened(self, now_ns: int, *, stream_began: bool) -> None:
        """Report an opened request; `stream_began`: whether it is the first one of its stream."""

    def ended(self, now_ns: int) -> None:
        """Report that a request ended."""

    def stream_idle(self, now_ns: int) -> None:
        """Report that a stream found no more work."""

    def measured(self, now_ns: int) -> None:
        """Report that a measured conversation ended."""
        self.worker_table.put(self.worker, WorkerColumn.MEASURED_END_NS, now_ns)
        self._count(WorkerColumn.MEASURED)

    def all_measured(self) -> bool:
        """Return whether all measured conversations of all workers have ended."""
        return measured_end(self.worker_table, self.measured_of_all) is not None

    @property
    def steady_bounds(self) -> SteadyBounds:
        """The bounds as far as they are known."""
        raise NotImplementedError

    def _count(self, cell: WorkerColumn) -> None:
        self.worker_table.put(self.worker, cell, self.worker_table.get(self.worker, cell) + 1)


@dataclass
class ClosedLoopPhases(PhaseTracker):
    """Phases of a worker with `streams` streams of a closed loop, see `closed_loop_bounds`."""

    streams: int

    def __post_init__(self) -> None:
        self._not_begun = self.streams

    def started(self, begin_ns: int) -> None:
        """Report a worker without streams as full at once."""
        if not self.streams:
            self.worker_table.put(self.worker, WorkerColumn.STEADY_START_NS, begin_ns)

    def opened(self, now_ns: int, *, stream_began: bool) -> None:
        if stream_began:
            self._not_begun -= 1
            if not self._not_begun:
                self.worker_table.put(self.worker, WorkerColumn.STEADY_START_NS, now_ns)

    def stream_idle(self, now_ns: int) -> None:
        if not self.worker_table.get(self.worker, WorkerColumn.IDLE_NS):
            self.worker_table.put(self.worker, WorkerColumn.IDLE_NS, now_ns)

    @property
    def steady_bounds(self) -> SteadyBounds:
        return closed_loop_bounds(self.worker_table, self.measured_of_all)


@dataclass
class OpenLoopPhases(PhaseTracker):
    """Phases of a worker with a share of an open loop, see `open_loop_bounds`, and with fillers `filled_loop_bounds`.

    `last_ns` counts from the load's start.
    """

    last_ns: int

    def __post_init__(self) -> None:
        self._steady_end_ns = self.last_ns
        self._is_steady = False

    def started(self, begin_ns: int) -> None:
        self._steady_end_ns = begin_ns + self.last_ns

    def opened(self, now_ns: int, *, stream_began: bool) -> None:  # noqa: ARG002 -- required by the base class
        self._count(WorkerColumn.OPENED)

    def ended(self, now_ns: int) -> None:
        self._count(WorkerColumn.ENDED)
        if self._is_steady:
            return
        ended = sum(self.worker_table.column(WorkerColumn.ENDED))
        self._is_steady = ended >= sum(self.worker_table.column(WorkerColumn.OPENED)) - ended
        if self._is_steady:
            self.worker_table.put(self.worker, WorkerColumn.STEADY_START_NS, now_ns)

    @property
    def steady_bounds(self) -> SteadyBounds:
        if self.measured_of_all is None:
            return open_loop_bounds(self.worker_table, self._steady_end_ns)
        return filled_loop_bounds(self.worker_table, self.measured_of_all)


def _earliest(worker_table: WorkerTable, cell: WorkerColumn) -> int | None:
    return min(filter(None, worker_table.column(cell)), default=None)


def timestamp_array(values: Iterable[int] = ()) -> array[int]:
    """Return an array of 64-bit timestamps."""
    return array("q", values)


@dataclass(frozen=True)
class LoadTimestamps:
    """Timestamps of one worker (monotonic ns, absolute), in the order of their events."""

    opened: array[int] = field(default_factory=timestamp_array)
    """When requests were opened."""
    ended: array[int] = field(default_factory=timestamp_array)
    """When requests ended."""
    began: array[int] = field(default_factory=timestamp_array)
    """When conversations began."""


@dataclass(frozen=True)
class InFlightRecorder:
    """Records the timestamps of one worker's loop and returns each request's phase."""

    phases: PhaseTracker
    log: LoadTimestamps = field(default_factory=LoadTimestamps)

    def opened(self, now_ns: int, *, stream_began: bool, conversation_began: bool) -> None:
        """Record that a request was opened."""
        self.log.opened.append(now_ns)
        if conversation_began:
            self.log.began.append(now_ns)
        self.phases.opened(now_ns, stream_began=stream_began)

    def ended(self, opened_ns: int, ended_ns: int) -> RecordPhase:
        """Record that a request ended; return its phase."""
        self.log.ended.append(ended_ns)
        self.phases.ended(ended_ns)
        return self.phases.steady_bounds.phase(opened_ns, ended_ns)


@dataclass(frozen=True)
class TimeSpan:
    """A span of time in ns, on the monotonic clock or since the start of a point."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S

    def part(self, number: int, of: int) -> TimeSpan:
        """Return one of `of` equal parts, numbered from 0."""
        length = self.end_ns - self.start_ns
        return TimeSpan(self.start_ns + length * number // of, self.start_ns + length * (number + 1) // of)


@dataclass(frozen=True)
class LoadTimeline:
    """The timestamps of all workers of a finished load, and the bounds of its steady state."""

    logs: Sequence[LoadTimestamps]
    started_ns: int
    steady_bounds: SteadyBounds
    scheduled_ns: int | None = None
    """When an open loop's schedule began, which is after the fillers; None: with the load."""

    @property
    def begins_ns(self) -> int:
        """Start of the schedule, or of the load if it has none."""
        return self.started_ns if self.scheduled_ns is None else self.scheduled_ns

    @property
    def ended_ns(self) -> int:
        """When the last request ended."""
        return max((max(log.ended) for log in self.logs if log.ended), default=self.started_ns)

    @property
    def duration_s(self) -> float:
        """From the start to the last request's end."""
        return (self.ended_ns - self.started_ns) / NS_PER_S

    @property
    def steady(self) -> TimeSpan | None:
        """The steady state; None if there was none."""
        start_ns, steady_end_ns = self.steady_bounds.steady_start_ns, self.steady_bounds.steady_end_ns
        if start_ns is None:
            return None
        end_ns = self.ended_ns if steady_end_ns is None else min(steady_end_ns, self.ended_ns)
        return TimeSpan(start_ns, end_ns) if end_ns > start_ns else None

    @property
    def steady_share(self) -> float | None:
        """The steady state's share of the duration; 0 if it was never reached."""
        if self.duration_s <= 0:
            return None
        return self.steady.length_s / self.duration_s if self.steady else 0.0

    @property
    def mean_in_flight(self) -> float | None:
        """Requests in flight in the steady state, averaged over time; None without a steady state."""
        return self._in_flight(self.steady) if self.steady else None

    @property
    def growth(self) -> float | None:
        """Mean requests in flight in the last third of the steady state over that in its first; None if undefined."""
        if self.steady is None:
            return None
        first, last = (self._in_flight(self.steady.part(number, of=3)) for number in (0, 2))
        return last / first if first else None

    @property
    def begun_per_s(self) -> float | None:
        """Conversations begun per second of the steady state; None without a steady state."""
        steady = self.steady
        if steady is None:
            return None
        begun = sum(steady.start_ns < ns <= steady.end_ns for log in self.logs for ns in log.began)
        return begun / steady.length_s

    def _in_flight(self, window: TimeSpan) -> float:
        start_ns, end_ns = window.start_ns, window.end_ns
        if end_ns <= start_ns:
            return 0.0
        area_ns = 0
        for log in self.logs:
            area_ns += sum(min(max(ns, start_ns), end_ns) for ns in log.ended)
            area_ns -= sum(min(max(ns, start_ns), end_ns) for ns in log.opened)
            area_ns += (len(log.opened) - len(log.ended)) * end_ns  # Requests that never ended were open to the end.
        return area_ns / (end_ns - start_ns)
