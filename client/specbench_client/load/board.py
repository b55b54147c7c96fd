"""What the workers of a point must know of each other, in memory that they share: nobody waits for a message.

The board has a row for each worker, and each writes its own row alone; a cell is one aligned 64-bit word, which is read
old or new and never half. The turnstile gives out the numbers of conversations, one after the other, whoever asks: the
only thing that needs a lock, held for a few instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Protocol

ENDLESS = 2**62


class Cells(Protocol):
    """64-bit integers, from 0 on."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...
    def __len__(self) -> int: ...


class Cell(IntEnum):
    """The columns of a row. Times are monotonic ns; 0: not yet."""

    OPENED = 0
    """Requests that this worker opened."""
    ENDED = 1
    """Requests of this worker that ended."""
    STEADY_NS = 2
    """When this worker saw the ramp end."""
    DRY_NS = 3
    """When a stream of this worker found no more work, or saw that the last measured conversation had ended."""
    MEASURED = 4
    """Measured conversations of this worker that ended."""


@dataclass(frozen=True)
class Board:
    """`workers`: how many rows are in use; the memory may hold more."""

    cells: Cells
    workers: int

    def get(self, worker: int, cell: Cell) -> int:
        return self.cells[worker * len(Cell) + cell]

    def put(self, worker: int, cell: Cell, value: int) -> None:
        """For the worker itself, and before it works."""
        self.cells[worker * len(Cell) + cell] = value

    def column(self, cell: Cell) -> Sequence[int]:
        """A cell of every worker."""
        return [self.get(worker, cell) for worker in range(self.workers)]

    def wipe(self) -> None:
        """Everything as if nothing had happened; for the main process, while no worker works."""
        for index in range(len(self.cells)):
            self.cells[index] = 0


class Locked(Cells, Protocol):
    """Cells with a lock."""

    def get_lock(self) -> AbstractContextManager[object]: ...


@dataclass(frozen=True)
class Turnstile:
    """Numbers from 0 to a limit, each given out once."""

    cells: Locked

    def next(self) -> int | None:
        """The next number; None where the limit is reached."""
        with self.cells.get_lock():
            number = self.cells[0]
            if number >= self.cells[1]:
                return None
            self.cells[0] = number + 1
            return number

    def open(self, limit: int = ENDLESS) -> None:
        """Start at 0 again."""
        with self.cells.get_lock():
            self.cells[0], self.cells[1] = 0, limit

    def close(self) -> None:
        """Give out no more."""
        with self.cells.get_lock():
            self.cells[1] = 0

    def __iter__(self) -> Iterator[int]:
        """What is left for us."""
        while (number := self.next()) is not None:
            yield number


@dataclass(frozen=True)
class Shared:
    """All memory that the processes of a crew share; it is handed over when a process is started, and never later."""

    cells: Cells
    turnstile: Turnstile

    def board(self, workers: int) -> Board:
        """The board with so many rows in use."""
        return Board(self.cells, workers)


def shared_memory(context: SpawnContext, workers: int) -> Shared:
    """Memory for so many workers."""
    return Shared(context.RawArray("q", workers * len(Cell)), Turnstile(context.Array("q", 2)))
