"""What was in flight when: each worker keeps the moments, and their figures are made of all workers' at the end.

A moment is eight bytes in an array, on the clock that all processes of a machine share, so nothing has to be merged
while it is measured. Means over time need no order either: what was open during a window is what ended, cut to the
window, minus what began, cut to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specbench_api.outcome.record import RecordPhase
from specbench_client.load.phases import Borders, Phases

NS_PER_S = 1e9


def moments(given: Iterable[int] = ()) -> array[int]:
    """Moments as they are kept."""
    return array("q", given)


@dataclass(frozen=True)
class Log:
    """Moments of one worker (monotonic ns, absolute), each kind in the order in which it happened."""

    opened: array[int] = field(default_factory=moments)
    """Requests opened."""
    ended: array[int] = field(default_factory=moments)
    """Requests ended."""
    began: array[int] = field(default_factory=moments)
    """Conversations begun."""


@dataclass(frozen=True)
class Flight:
    """Keeps the moments of one worker's loop, and tells each request's phase."""

    phases: Phases
    log: Log = field(default_factory=Log)

    def opened(self, now_ns: int, *, stream_began: bool, conversation_began: bool) -> None:
        """A request was opened."""
        self.log.opened.append(now_ns)
        if conversation_began:
            self.log.began.append(now_ns)
        self.phases.opened(now_ns, stream_began=stream_began)

    def ended(self, opened_ns: int, ended_ns: int) -> RecordPhase:
        """It ended; the phase it belongs to."""
        self.log.ended.append(ended_ns)
        self.phases.ended(ended_ns)
        return self.phases.borders.phase(opened_ns, ended_ns)


@dataclass(frozen=True)
class Window:
    """A span of the monotonic clock, absolute."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S

    def part(self, number: int, of: int) -> Window:
        """One of its equal parts, from 0."""
        length = self.end_ns - self.start_ns
        return Window(self.start_ns + length * number // of, self.start_ns + length * (number + 1) // of)


@dataclass(frozen=True)
class Flown:
    """A load that is over: all workers' moments, and the borders of the steady state."""

    logs: Sequence[Log]
    started_ns: int
    borders: Borders
    scheduled_ns: int | None = None
    """When an open loop's schedule began, which fillers may put off; None: with the load."""

    @property
    def begins_ns(self) -> int:
        """From when a schedule counts."""
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
    def steady(self) -> Window | None:
        """The steady state; None where there was none."""
        start_ns, dry_ns = self.borders.steady_ns, self.borders.dry_ns
        if start_ns is None:
            return None
        end_ns = self.ended_ns if dry_ns is None else min(dry_ns, self.ended_ns)
        return Window(start_ns, end_ns) if end_ns > start_ns else None

    @property
    def steady_share(self) -> float | None:
        """The steady state's share of the duration; 0 where it was never reached."""
        if self.duration_s <= 0:
            return None
        return self.steady.length_s / self.duration_s if self.steady else 0.0

    @property
    def mean_in_flight(self) -> float | None:
        """Requests in flight in the steady state, averaged over time; None where there was none."""
        return self._in_flight(self.steady) if self.steady else None

    @property
    def growth(self) -> float | None:
        """Requests in flight in the steady state's last third over those of its first; None where there were none."""
        if self.steady is None:
            return None
        first, last = (self._in_flight(self.steady.part(number, of=3)) for number in (0, 2))
        return last / first if first else None

    @property
    def begun_per_s(self) -> float | None:
        """Conversations begun a second of the steady state; None where there was none."""
        steady = self.steady
        if steady is None:
            return None
        begun = sum(steady.start_ns < ns <= steady.end_ns for log in self.logs for ns in log.began)
        return begun / steady.length_s

    def _in_flight(self, window: Window) -> float:
        start_ns, end_ns = window.start_ns, window.end_ns
        if end_ns <= start_ns:
            return 0.0
        area_ns = 0
        for log in self.logs:
            area_ns += sum(min(max(ns, start_ns), end_ns) for ns in log.ended)
            area_ns -= sum(min(max(ns, start_ns), end_ns) for ns in log.opened)
            area_ns += (len(log.opened) - len(log.ended)) * end_ns  # those that never ended were open to the end
        return area_ns / (end_ns - start_ns)
