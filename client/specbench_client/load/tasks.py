"""Tasks that end together: the first failure is the failure, as if there had been no tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def first_failure() -> AsyncIterator[None]:
    """Raise the first error of task groups inside instead of a group of errors: the others only followed from it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
