"""Work that sockets do not wait for: cooperative tasks, which yield after each slice of work, and a lower priority.

Parsing an answer of ten thousand chunks takes longer than a decode step. In one piece it would block the sockets, and a
thread would contend for the interpreter's lock at every system call. So it is done in slices, and the caller decides
what runs between them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

CooperativeTask = Generator[None, None, T]

NICENESS = 10
"""How much lower the priority of work is that is not urgent than that of the workers, whose sockets must not wait."""
CHUNKS_PER_SLICE = 128
"""Chunks read between two yields: about a quarter of a millisecond."""


def give_way_to_sockets() -> None:
    """Lower the priority of this thread. Processes that other threads start do not inherit it."""
    if sys.platform == "linux":  # Elsewhere, threads have no priority of their own.
        with suppress(OSError):  # A sandbox may forbid it: then the thread keeps the priority of the workers.
            os.nice(NICENESS)


def run_to_completion(work: CooperativeTask[T]) -> T:
    """Run a task to its end without a pause and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


@asynccontextmanager
async def first_failure() -> AsyncIterator[None]:
    """Raise the first error of the task groups inside instead of an exception group; the others follow from it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
