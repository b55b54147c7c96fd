"""Cooperative tasks: generators that yield after each slice of work and return the result; and task-group errors.

Parsing an answer of ten thousand chunks takes longer than a decode step. In one piece it would block the sockets, and a
thread would contend for the interpreter's lock at every system call. So it is done in slices, and the caller decides
what runs between them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")

CooperativeTask = Generator[None, None, T]

CHUNKS_PER_SLICE = 128
"""Chunks read between two yields: about a quarter of a millisecond."""


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
