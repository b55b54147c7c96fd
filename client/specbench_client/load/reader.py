"""Reads finished answers between the sockets' turns, so that parsing never holds up a stamp or a send for long.

One answer is read at a time, one slice a round of the event loop; those for which a next turn waits go first. Who
submits waits while too many are unread, so memory is bounded by that and by what is open, not by how long the run is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Self

from specbench_client.load.turns import TurnResult
from specbench_client.slices import Slices

LIMIT = 256

OnResult = Callable[[TurnResult], None]


class _Job(NamedTuple):
    work: Slices[TurnResult]
    on_result: OnResult


class Reader:
    """`async with Reader() as reader`, then `submit` or `read`. `limit`: most submitted answers that wait unread."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._room = asyncio.Semaphore(limit)
        self._jobs: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def submit(self, work: Slices[TurnResult], on_result: OnResult) -> None:
        """Have it read in its turn; `on_result` gets what came of it. Waits while `limit` answers are unread."""
        if self._room.locked():
            await self._while_reading(self._room.acquire())
        else:
            await self._room.acquire()  # at once

        def done(result: TurnResult) -> None:
            self._room.release()
            on_result(result)

        self._jobs.append(_Job(work, done))
        self._announce()

    async def read(self, work: Slices[TurnResult]) -> TurnResult:
        """Have it read before all that were submitted."""
        done: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._jobs.appendleft(_Job(work, lambda result: None if done.done() else done.set_result(result)))
        self._announce()
        await self._while_reading(done)
        return done.result()

    async def drained(self) -> None:
        """Wait until all is read."""
        await self._while_reading(self._idle.wait())

    def _announce(self) -> None:
        self._idle.clear()
        self._arrived.set()

    async def _while_reading(self, wanted: asyncio.Future[TurnResult] | Coroutine[Any, Any, Any]) -> None:
        """Wait for it, and fail with the reading task where that fails: it would never come."""
        assert self._reading is not None, "the reader is used inside `async with`"
        task = asyncio.ensure_future(wanted)
        try:
            await asyncio.wait([task, self._reading], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._reading.result()
        finally:
            task.cancel()

    async def _read_on(self) -> None:
        while True:
            while self._jobs:
                await self._read_one(self._jobs.popleft())
            self._idle.set()
            self._arrived.clear()
            await self._arrived.wait()

    async def _read_one(self, job: _Job) -> None:
        while True:
            try:
                next(job.work)
            except StopIteration as end:
                job.on_result(end.value)
                return
            await asyncio.sleep(0)
