"""Shared memory of the workers of a point, so that no worker waits for a message from another.

The worker table has a row for each worker, which only that worker writes; the main process writes those of workers of
other clients. A cell is one aligned 64-bit word, so a
reader gets either the old or the new value. The conversation counter hands out conversation indices; it needs a lock,
which is held for a few instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Protocol

UNLIMITED = 2**62


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
    STEADY_END_NS = 3
    """When a stream of this worker found no more work, or the last measured conversation had ended."""
    MEASURED = 4
    """Measured conversations of this worker that ended."""


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
    """Hands out every `step`-th integer from a first one to a limit, each once."""

    cells: LockedIntegers

    def next(self) -> int | None:
        """Return the next number, or None at the limit."""
        with self.cells.get_lock():
            number = self.cells[0]
            if number >= self.cells[1]:
                return None
            self.cells[0] = number + self.cells[2]
            return number

    def open(self, limit: int = UNLIMITED, first: int = 0, step: int = 1) -> None:
        """Start again, with a new limit."""
        with self.cells.get_lock():
            self.cells[0], self.cells[1], self.cells[2] = first, limit, step

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


def create_shared_state(context: SpawnContext, workers: int) -> SharedState:
    """Allocate shared memory for this many workers."""
    return SharedState(context.RawArray("q", workers * len(WorkerColumn)), ConversationCounter(context.Array("q", 3)))
