"""Shared memory of the workers of a point, so that no worker waits for a message from another.

The worker table has a row for each worker, which only that worker writes. A cell is one aligned 64-bit word, so a
reader gets either the old or the new value. The conversation counter hands out conversation indices; it needs a lock,
which is held for a few instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Protocol

UNLIMITED = 2**62
_NEXT, _LIMIT, _COUNTER_CELLS = 0, 1, 2
"""Cells of the conversation counter, and their number."""


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
        """Set a cell. While a load runs, only the worker may."""
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
    """Hands out the conversations of a load, each once: all numbers from 0."""

    cells: LockedIntegers

    def next(self) -> int | None:
        """Return the next number, or None at the limit."""
        with self.cells.get_lock():
            number = self.cells[_NEXT]
            if number >= self.cells[_LIMIT]:
                return None
            self.cells[_NEXT] = number + 1
            return number

    def open(self, limit: int = UNLIMITED) -> None:
        """Start again, with the numbers below `limit`."""
        with self.cells.get_lock():
            self.cells[_NEXT], self.cells[_LIMIT] = 0, limit

    def close(self) -> None:
        """Hand out no more numbers."""
        with self.cells.get_lock():
            self.cells[_LIMIT] = 0

    def is_closed(self) -> bool:
        """Return whether `close` was called since `open`. Takes no lock: it is asked before each conversation."""
        return self.cells.get_obj()[_LIMIT] == 0

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
    cells = context.RawArray("q", workers * len(WorkerColumn))
    return SharedState(cells, ConversationCounter(context.Array("q", _COUNTER_CELLS)))
