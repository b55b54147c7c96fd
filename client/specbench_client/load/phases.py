"""Ramp, steady state and drain: which part of a point a request belongs to. Only the steady state is reported.

A request is ramp where it began before the steady state, drain where it ended after it: neither saw the engine under
the load that was asked for from its beginning to its end. Both borders are moments on one clock, written into shared
memory, so a record's phase can be fixed as soon as its exchange has ended, without asking another worker. What a
worker writes is seen by the others within a microsecond; a request that ended in just that microsecond may be taken
for steady, which is as true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from specbench_api.outcome.record import RecordPhase
from specbench_client.load.board import Board, Cell

NOTICE_NS = 100_000_000
"""Between the moment at which an open loop is steady and its first measured arrival."""


class Borders(NamedTuple):
    """When the steady state began and ended (monotonic ns, absolute); None: not yet."""

    steady_ns: int | None
    dry_ns: int | None
    by_opening: bool = False
    """Whether a request is drain because it was opened after the end (open loop), or because it ended after it."""

    def phase(self, opened_ns: int, ended_ns: int) -> RecordPhase:
        """The phase of a request that has ended."""
        if self.steady_ns is None or opened_ns < self.steady_ns:
            return RecordPhase.RAMP
        last_ns = opened_ns if self.by_opening else ended_ns
        return RecordPhase.STEADY if self.dry_ns is None or last_ns <= self.dry_ns else RecordPhase.DRAIN


def closed_borders(board: Board) -> Borders:
    """Steady from the moment at which every stream of every worker has had a request open, until one has no more work.

    A stream that has begun sends on without a pause, so from that moment on as many requests are open as were asked
    for; when the first stream of any worker stays idle, fewer are. Where fillers hold the load (`fillers`), none stays
    idle before the last measured conversation has ended, and that is the border.
    """
    full = board.column(Cell.STEADY_NS)
    return Borders(max(full) if all(full) else None, _earliest(board, Cell.DRY_NS))


def open_borders(board: Board, last_ns: int) -> Borders:
    """Steady from the moment at which as many requests have ended as are in flight, until the last one is to begin.

    An open loop has no number of streams to be reached: it is full when what it was filled with has gone through once.
    With a rate r and an engine that keeps a request for R, r R are in flight after R, and as many have ended after
    2 R: by then every request in flight began in the company of as many others as it leaves behind.

    Without fillers, after the last scheduled beginning (`last_ns`: of all workers, absolute) the load only falls, so a
    turn that is opened then is drain. What was opened before and ends after it is not: to leave it out would leave out
    long answers more often than short ones. Its last part saw less load; of n requests that is true of as many as were
    in flight.
    """
    return Borders(_earliest(board, Cell.STEADY_NS), last_ns, by_opening=True)


def held_borders(board: Board) -> Borders:
    """As `open_borders`, where fillers arrive before and after: the load falls when the last measured one has ended."""
    return Borders(_earliest(board, Cell.STEADY_NS), _earliest(board, Cell.DRY_NS))


def schedule_start(board: Board, begin_ns: int, lead_most_ns: int) -> int:
    """When the measured conversations of an open loop in company begin: a moment after the load has become steady.

    The moment is long enough for every worker to see it, so all come to the same; an engine that is asked for more than
    it can do never becomes steady, and is not waited for longer than `lead_most_ns`.
    """
    latest_ns, steady_ns = begin_ns + lead_most_ns, _earliest(board, Cell.STEADY_NS)
    return latest_ns if steady_ns is None else min(latest_ns, steady_ns + NOTICE_NS)


class Phases(Protocol):
    """What one worker tells the board, and what it reads there."""

    def started(self, begin_ns: int) -> None:
        """The load begins."""
        ...

    def opened(self, now_ns: int, *, stream_began: bool) -> None:
        """A request was opened; whether it is the first one of its stream."""
        ...

    def ended(self, now_ns: int) -> None:
        """A request ended."""
        ...

    def ran_dry(self, now_ns: int) -> None:
        """A stream found no more work."""
        ...

    def measured(self, now_ns: int, of: int) -> None:
        """A measured conversation ended, one of so many of all workers: after the last one only fillers are left."""
        ...

    def all_measured(self, of: int) -> bool:
        """Whether that was the last one."""
        ...

    @property
    def borders(self) -> Borders:
        """As far as they are known."""
        ...


@dataclass
class ClosedPhases:
    """A worker with so many streams of a closed loop, see `closed_borders`."""

    board: Board
    worker: int
    streams: int

    def __post_init__(self) -> None:
        self._to_begin = self.streams

    def started(self, begin_ns: int) -> None:
        """A worker without streams holds up nobody."""
        if not self.streams:
            self.board.put(self.worker, Cell.STEADY_NS, begin_ns)

    def opened(self, now_ns: int, *, stream_began: bool) -> None:
        if stream_began:
            self._to_begin -= 1
            if not self._to_begin:
                self.board.put(self.worker, Cell.STEADY_NS, now_ns)

    def ended(self, now_ns: int) -> None:
        """It tells nothing here."""

    def ran_dry(self, now_ns: int) -> None:
        if not self.board.get(self.worker, Cell.DRY_NS):
            self.board.put(self.worker, Cell.DRY_NS, now_ns)

    def measured(self, now_ns: int, of: int) -> None:
        self.board.put(self.worker, Cell.MEASURED, self.board.get(self.worker, Cell.MEASURED) + 1)
        if self.all_measured(of):
            self.ran_dry(now_ns)

    def all_measured(self, of: int) -> bool:
        return sum(self.board.column(Cell.MEASURED)) >= of

    @property
    def borders(self) -> Borders:
        return closed_borders(self.board)


@dataclass
class OpenPhases:
    """A worker with its share of an open loop, see `open_borders`. `last_ns` counts from the load's start.

    `held`: fillers hold the load, see `held_borders`.
    """

    board: Board
    worker: int
    last_ns: int
    held: bool = False

    def __post_init__(self) -> None:
        self._dry_ns = self.last_ns
        self._is_steady = False

    def started(self, begin_ns: int) -> None:
        self._dry_ns = begin_ns + self.last_ns

    def opened(self, now_ns: int, *, stream_began: bool) -> None:  # noqa: ARG002 -- only that it happened
        self._count(Cell.OPENED)

    def ended(self, now_ns: int) -> None:
        self._count(Cell.ENDED)
        if self._is_steady:
            return
        ended = sum(self.board.column(Cell.ENDED))
        self._is_steady = ended >= sum(self.board.column(Cell.OPENED)) - ended
        if self._is_steady:
            self.board.put(self.worker, Cell.STEADY_NS, now_ns)

    def ran_dry(self, now_ns: int) -> None:
        """The schedule has told it before."""

    def measured(self, now_ns: int, of: int) -> None:
        self._count(Cell.MEASURED)
        if self.all_measured(of):
            self.board.put(self.worker, Cell.DRY_NS, now_ns)

    def all_measured(self, of: int) -> bool:
        return sum(self.board.column(Cell.MEASURED)) >= of

    @property
    def borders(self) -> Borders:
        return held_borders(self.board) if self.held else open_borders(self.board, self._dry_ns)

    def _count(self, cell: Cell) -> None:
        self.board.put(self.worker, cell, self.board.get(self.worker, cell) + 1)


def _earliest(board: Board, cell: Cell) -> int | None:
    return min(filter(None, board.column(cell)), default=None)
