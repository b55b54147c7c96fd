"""What was in flight when, and which phase a request belongs to because of it. Pure: times are given."""

from __future__ import annotations

from specbench_api.outcome.record import RecordPhase


class Flight:
    """Keeps count of the open requests of one loop (monotonic ns, absolute).

    The steady state lasts from the moment when all streams had a request open for the first time (`full_ns`) until the
    moment when the first stream found no more work (`dry_ns`). A request that began before it is ramp, and one that
    ended after it is drain: neither saw the engine under the load that was asked for from its beginning to its end.
    """

    def __init__(self, concurrency: int, started_ns: int) -> None:
        self.concurrency = concurrency
        self.started_ns = started_ns
        self.full_ns: int | None = None
        self.dry_ns: int | None = None
        self.ended_ns: int | None = None
        self._open = 0
        self._changes: list[tuple[int, int]] = []

    def opened(self, now_ns: int) -> bool:
        """A request was sent; whether it belongs to the ramp."""
        self._open += 1
        self._changes.append((now_ns, 1))
        if self._open == self.concurrency and self.full_ns is None:
            self.full_ns = now_ns
        return self.full_ns is None

    def closed(self, now_ns: int, *, in_ramp: bool) -> RecordPhase:
        """A request ended; the phase it belongs to."""
        self._open -= 1
        self._changes.append((now_ns, -1))
        if in_ramp:
            return RecordPhase.RAMP
        return RecordPhase.STEADY if self.dry_ns is None else RecordPhase.DRAIN

    def ran_dry(self, now_ns: int) -> None:
        """A stream found no more work."""
        if self.dry_ns is None:
            self.dry_ns = now_ns

    def ended(self, now_ns: int) -> None:
        """The loop is over."""
        self.ended_ns = now_ns

    @property
    def duration_s(self) -> float | None:
        """From the start to the end; None while it lasts."""
        return None if self.ended_ns is None else (self.ended_ns - self.started_ns) / 1e9

    @property
    def steady_share(self) -> float | None:
        """The steady state's share of the duration; 0 where it was never reached."""
        if self.ended_ns is None or self.ended_ns <= self.started_ns:
            return None
        begin_ns, end_ns = self._steady()
        return max(0, end_ns - begin_ns) / (self.ended_ns - self.started_ns)

    @property
    def mean_in_flight(self) -> float | None:
        """Requests in flight in the steady state, averaged over time; None where there was none."""
        begin_ns, end_ns = self._steady()
        if end_ns <= begin_ns:
            return None
        area = open_requests = 0
        at_ns = begin_ns
        for ns, change in sorted(self._changes):
            until_ns = min(max(ns, begin_ns), end_ns)
            area += open_requests * (until_ns - at_ns)
            at_ns = until_ns
            open_requests += change
        return (area + open_requests * (end_ns - at_ns)) / (end_ns - begin_ns)

    def _steady(self) -> tuple[int, int]:
        end_ns = self.ended_ns if self.dry_ns is None else self.dry_ns
        return (0, 0) if self.full_ns is None or end_ns is None else (self.full_ns, end_ns)
