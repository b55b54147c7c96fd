"""Requests in flight over time: each worker records timestamps; the figures are computed over all workers at the end.

A timestamp is eight bytes in an array, on the monotonic clock that all processes of a machine share, so nothing has to
be merged during the measurement. Means over time need no sorting either: the time in flight during a window is the sum
of all ends clamped to the window minus the sum of all starts clamped to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specbench_client.documents.record import RecordPhase
from specbench_client.load.phases import PhaseTracker, SteadyBounds

NS_PER_S = 1e9


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
    """A span of the monotonic clock, absolute."""

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
