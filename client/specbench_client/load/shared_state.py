"""Shared memory of the workers of a point, so that no worker waits for a message from another.

The worker table has a row for each worker, which only that worker writes; the main process writes those of workers of
other clients. A cell is one aligned 64-bit word, so a reader gets either the old or the new value. The conversation
counter hands out conversation indices; it needs a lock, which is held for a few instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Protocol

UNLIMITED = 2**62
_COUNTER_CELLS = 5


class SharedIntegers(Protocol):
    """A shared array of 64-bit integers."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __len__(self) -> int: ...


class WorkerColumn(IntEnum):
    """The columns of the table. Times are monotonic ns; 0: not yet."""

    OPENED = 0
    """Requests that this worker opened."""
    ENDED = 1
    """Requests of this worker that ended."""
    STEADY_START_NS = 2
    """When this worker detected the end of the ramp."""
    IDLE_NS = 3
    """When a stream of this worker first found no more work."""
    MEASURED = 4
    """Measured conversations of this worker that ended."""
    MEASURED_END_NS = 5
    """When the last one of them ended."""


@dataclass(frozen=True)
class WorkerTable:
    """A table of one row per worker. `workers`: the rows in use; the memory may be larger."""

    cells: SharedIntegers
    workers: int

    def get(self, worker: int, cell: WorkerColumn) -> int:
        return self.cells[worker * len(WorkerColumn) + cell]

    def put(self, worker: int, cell: WorkerColumn, value: int) -> None:
        """Set a cell. While a load runs, only the worker may, or for another client's worker the main process."""
        self.cells[worker * len(WorkerColumn) + cell] = value

    def column(self, cell: WorkerColumn) -> Sequence[int]:
        """Return one column of all workers."""
        return [self.get(worker, cell) for worker in range(self.workers)]

    def wipe(self) -> None:
        """Reset all cells to 0. Only the main process may call this, while no load runs."""
        for index in range(len(self.cells)):
            self.cells[index] = 0


class LockedIntegers(SharedIntegers, Protocol):
    """A shared array with a lock."""

    def get_lock(self) -> AbstractContextManager[object]: ...

    def get_obj(self) -> SharedIntegers: ...


@dataclass(frozen=True)
class ConversationCounter:
    """Hands out one client's conversations of a load, each once.

    With several clients, a client gets as large a share of the conversations as it has of the streams: every lap over
    the streams gives each stream one conversation. With one client, these are all numbers from 0.
    """

    cells: LockedIntegers

    def next(self) -> int | None:
        """Return the next number, or None at the limit."""
        with self.cells.get_lock():
            number, limit, first, step, streams = (self.cells[index] for index in range(_COUNTER_CELLS))
            if number >= limit:
                return None
            lap, following = number - number % streams, number + step
            self.cells[0] = following if following < lap + streams else lap + streams + first
            return number

    def open(self, limit: int = UNLIMITED, first: int = 0, step: int = 1, streams: int = 1) -> None:
        """Start again: the numbers below `limit` of the streams `first`, `first + step`, … of `streams`."""
        with self.cells.get_lock():
            for index, value in enumerate((first, limit, first, step, streams)):
                self.cells[index] = value

    def close(self) -> None:
        """Hand out no more numbers."""
        with self.cells.get_lock():
            self.cells[1] = 0

    def is_closed(self) -> bool:
        """Return whether `close` was called since `open`. Takes no lock: it is asked before each conversation."""
        return self.cells.get_obj()[1] == 0

    def __iter__(self) -> Iterator[int]:
        """Yield numbers until the limit; other workers may take numbers in between."""
        while (number := self.next()) is not None:
            yield number


@dataclass(frozen=True)
class SharedState:
    """The memory that the processes of a pool share. It can only be passed to a process when that is started."""

    cells: SharedIntegers
    conversation_counter: ConversationCounter

    def worker_table(self, workers: int) -> WorkerTable:
        """Return the worker table with this many rows in use."""
        return WorkerTable(self.cells, workers)


def create_shared_state(context: BaseContext, workers: int) -> SharedState:
    """Allocate shared memory for this many workers."""
    return SharedState(
        context.RawArray("q", workers * len(WorkerColumn)), ConversationCounter(context.Array("q", _COUNTER_CELLS))
    )
