"""Judges answers against JSON Schemas in a process of its own, where no send and no read waits for it.

An answer that takes too long ends that process, see `judge_child`. It is recorded as NotJudged, and the next one
gets a new process. After MAX_OVERRUNS such answers, the load's other answers are not judged either, so the end of a
load is delayed by seconds at most. Answers are judged after their turn is over: a conversation does not wait for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

from specbench_api.spec.answers import Answers
from specbench_client.dialects.engine_answer import EngineAnswer
from specbench_client.documents.record import AnswerFlaw, Record
from specbench_client.errors import ClientError
from specbench_client.load.judge_child import LIMIT_SIGNAL, JudgeStart, encode_answer

MAX_OVERRUNS = 10
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Memory of the answers of a worker that wait. More of them are not judged: they come faster than they are judged."""
_RECORD_BYTES, _CHUNK_BYTES = 2048, 80
"""Memory of a record without chunks, and of each chunk in its lists of integers."""
_BATCH = 32
_COMMAND = (sys.executable, "-P", "-m", "specbench_client.load.judge_child")


class JudgeLost(ClientError):
    """The process that judges answers ended for another reason than its limit."""


class _JudgeJob(NamedTuple):
    record: Record
    line: bytes
    """The answer, encoded."""

    @property
    def waiting_bytes(self) -> int:
        """Approximate memory until it is judged."""
        return len(self.line) + _RECORD_BYTES + _CHUNK_BYTES * len(self.record.chunk_ns or ())


class AnswerJudge:
    """`async with AnswerJudge(answers, on_record) as judge`, then `submit` each answer, and `drained` at the end.

    `answers` has a schema or tools. `on_record` gets each record once it is judged.
    """

    def __init__(self, answers: Answers, on_record: Callable[[Record], None]) -> None:
        self._answers = answers
        self._on_record = on_record
        self._waiting: asyncio.Queue[_JudgeJob | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._overruns = 0

    async def __aenter__(self) -> Self:
        await self._start(JudgeStart.NORMAL)
        self._judging = asyncio.create_task(self._judge_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._judging.cancel()
        await asyncio.wait([self._judging])
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    @property
    def pid(self) -> int:
        """Process id of the current process."""
        return self._process.pid

    def submit(self, record: Record, answer: EngineAnswer) -> None:
        """Queue an answer and its record; beyond MAX_WAITING_BYTES, it is not judged.

        Raises JudgeLost if an earlier one could not be judged.
        """
        if self._judging.done():
            self._judging.result()
        job = _JudgeJob(record, encode_answer(answer))
        if self._waiting_bytes + job.waiting_bytes > MAX_WAITING_BYTES:
            self._on_record(_not_judged(record))
        else:
            self._waiting_bytes += job.waiting_bytes
            self._waiting.put_nowait(job)

    async def drained(self) -> None:
        """Wait until all answers are judged; no more can be submitted. Raises JudgeLost."""
        self._waiting.put_nowait(None)
        await self._judging

    async def _judge_on(self) -> None:
        while True:
            jobs = [await self._waiting.get()]
            while len(jobs) < _BATCH and not self._waiting.empty():
                jobs.append(self._waiting.get_nowait())
            await self._judge([job for job in jobs if job is not None])
            if jobs[-1] is None:
                return

    async def _judge(self, jobs: Sequence[_JudgeJob]) -> None:
        """Judge a batch. The first answer without a reply is the one that ended the process."""
        unanswered = deque(jobs)
        while unanswered and self._overruns < MAX_OVERRUNS:
            await self._send([job.line for job in unanswered])
            while unanswered and (reply := await self._reply()):
                self._finish(unanswered.popleft(), reply)
            if unanswered:
                await self._restart()
                self._finish(unanswered.popleft(), None)
        for job in unanswered:
            self._finish(job, None)

    def _finish(self, job: _JudgeJob, reply: bytes | None) -> None:
        """Hand the record on. `reply`: None if the answer was not judged."""
        self._waiting_bytes -= job.waiting_bytes
        self._on_record(_not_judged(job.record) if reply is None else _judged(job.record, reply))

    async def _send(self, lines: Sequence[bytes]) -> None:
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # It has ended, which its missing reply shows.
            self._process.stdin.writelines(lines)
            await self._process.stdin.drain()

    async def _restart(self) -> None:
        exit_code = await self._process.wait()
        if exit_code != -LIMIT_SIGNAL:
            raise JudgeLost(
                f"the process that judges answers ended with exit code {exit_code}: its messages are above; if it was"
                " killed (-9), give the client more memory, then run the point again"
            )
        self._overruns += 1
        if self._overruns < MAX_OVERRUNS:
            await self._start(JudgeStart.LOW)

    async def _start(self, start: JudgeStart) -> None:
        """Start a process that imports the same modules as this one, and wait until it is ready."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = await asyncio.create_subprocess_exec(*_COMMAND, start, stdin=PIPE, stdout=PIPE, env=environment)
        await self._send([self._answers.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"])
        if not await self._reply():
            await self._process.wait()
            raise JudgeLost(f"{' '.join(_COMMAND)} did not start: its messages are above")

    async def _reply(self) -> bytes:
        """Return the next line; empty if the process has ended."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


def _judged(record: Record, reply: bytes) -> Record:
    return replace(record, judged=True, flaw=reply.decode().strip() or None)


def _not_judged(record: Record) -> Record:
    return replace(record, judged=False, flaw=str(AnswerFlaw.NOT_JUDGED))
