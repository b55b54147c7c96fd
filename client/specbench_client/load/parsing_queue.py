"""A queue of finished answers, parsed in slices on the event loop so that no send or read is delayed for long.

One answer is parsed at a time, one slice in each iteration of the event loop; answers that a next turn waits for go
first. `submit` waits while too many answers are unread, so memory does not grow with the length of the run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Self

from specbench_client.load.turns import TurnResult
from specbench_client.sliced_tasks import CooperativeTask

MAX_UNREAD = 256

OnResult = Callable[[TurnResult], None]


class _ReadJob(NamedTuple):
    work: CooperativeTask[TurnResult]
    on_result: OnResult


class ParsingQueue:
    """`async with ParsingQueue() as queue`, then `submit` or `read`. `limit`: maximum number of unread answers."""

    def __init__(self, limit: int = MAX_UNREAD) -> None:
        self._free_slots = asyncio.Semaphore(limit)
        self._jobs: deque[_ReadJob] = deque()
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

    async def submit(self, work: CooperativeTask[TurnResult], on_result: OnResult) -> None:
        """Queue an answer; `on_result` gets its result. Waits while `limit` answers are unread."""
        if self._free_slots.locked():
            await self._while_reading(self._free_slots.acquire())
        else:
            await self._free_slots.acquire()  # returns at once

        def done(result: TurnResult) -> None:
            self._free_slots.release()
            on_result(result)

        self._jobs.append(_ReadJob(work, done))
        self._announce()

    async def read(self, work: CooperativeTask[TurnResult]) -> TurnResult:
        """Parse an answer before all submitted ones and return its result."""
        done: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._jobs.appendleft(_ReadJob(work, lambda result: None if done.done() else done.set_result(result)))
        self._announce()
        await self._while_reading(done)
        return done.result()

    async def drained(self) -> None:
        """Wait until all answers are parsed."""
        await self._while_reading(self._idle.wait())

    def _announce(self) -> None:
        self._idle.clear()
        self._arrived.set()

    async def _while_reading(self, awaitable: asyncio.Future[TurnResult] | Coroutine[Any, Any, Any]) -> None:
        """Wait for an awaitable, or raise the error of the reading task, without which it would never complete."""
        assert self._reading is not None, "the queue is used inside `async with`"
        task = asyncio.ensure_future(awaitable)
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

    async def _read_one(self, job: _ReadJob) -> None:
        while True:
            try:
                next(job.work)
            except StopIteration as end:
                job.on_result(end.value)
                return
            await asyncio.sleep(0)
