"""Runs the load loops of one worker in the test process, with the shared state of a worker pool."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from specbench_api.spec.answers import Answers
from specbench_client.dialects.dialect import EngineCounters, counter_difference
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.documents.summary import CounterDeltas
from specbench_client.load.conversation_runner import (
    ConversationRunner,
    ParsingQueue,
    ThinkingUsers,
)
from specbench_client.load.conversations import FillerPlan
from specbench_client.load.judge_parent import AnswerJudge
from specbench_client.load.loops import ClosedLoop, OpenLoop, PreciseTimer, sleep_until
from specbench_client.load.request_buffer import REQUESTS_AHEAD, RequestBuffer, prepare_conversations
from specbench_client.load.shared_state import SharedState, WorkerTable, create_shared_state
from specbench_client.load.steady_state import (
    ClosedLoopPhases,
    InFlightRecorder,
    LoadTimeline,
    OpenLoopPhases,
    closed_loop_bounds,
    open_loop_bounds,
)
from specbench_client.load.turns import TurnClient
from specbench_client.load.worker_shares import ClosedLoopShare, OpenLoopShare
from specbench_client.transport.control_client import ControlClient
from specbench_client.workload.chat_template.template import AppliedTemplate
from specbench_client.workload.row_parsing import Prompt


def shared(workers: int = 1) -> SharedState:
    """The shared state, as a pool creates it."""
    return create_shared_state(get_context("spawn"), workers)


@dataclass
class LoopDriver:
    """Drives loads in this process. `records` and `timeline` are those of the last load, even if it failed.

    `answers`: judged in a closed loop if they have schemas.
    """

    turn_client: TurnClient
    clock: Callable[[], int] = time.monotonic_ns
    phase: RecordPhase | None = None
    shared: SharedState = field(default_factory=shared)
    template: AppliedTemplate | None = None
    users: ThinkingUsers = field(default_factory=lambda: ThinkingUsers(lambda *_: 0, sleep_until))
    answers: Answers | None = None
    records: list[Record] = field(default_factory=list)
    timeline: LoadTimeline | None = None

    @property
    def worker_table(self) -> WorkerTable:
        return self.shared.worker_table(1)

    async def closed(
        self,
        prompts: Sequence[Prompt],
        streams: int,
        count: int | None = None,
        duration_s: float | None = None,
        *,
        filled: bool = False,
    ) -> LoadTimeline:
        """One worker's closed loop over `count` conversations (None: each prompt once)."""
        self.worker_table.wipe()
        total = len(prompts) if count is None else count
        self.shared.conversation_counter.open(total)
        begin_ns = self.clock()
        fill = FillerPlan(tuple(prompts), streams, total) if filled else None
        measured = total if filled else None
        recorder = InFlightRecorder(ClosedLoopPhases(self.worker_table, 0, measured, streams))
        answers = self.answers
        judging = AnswerJudge(answers, self.records.append) if answers and answers.has_schemas else nullcontext()
        async with judging as judge, ParsingQueue() as parsing_queue:
            runner = replace(self._runner(parsing_queue, recorder), judge_later=judge.submit if judge else None)
            counter = self.shared.conversation_counter
            buffer = RequestBuffer(
                prepare_conversations(self.turn_client, prompts, counter), REQUESTS_AHEAD, counter.is_closed
            )
            buffer.fill(streams)
            loop = ClosedLoop(ClosedLoopShare(tuple(range(streams)), duration_s, fill), runner, buffer)
            await loop.run(begin_ns)
            await parsing_queue.drained()
            if judge is not None:
                await judge.drained()
        self.timeline = LoadTimeline([recorder.log], begin_ns, closed_loop_bounds(self.worker_table, measured))
        return self.timeline

    def _runner(self, parsing_queue: ParsingQueue, recorder: InFlightRecorder) -> ConversationRunner:
        return ConversationRunner(
            self.turn_client,
            parsing_queue,
            recorder,
            self.records.append,
            self.users,
            self.phase,
            self.clock,
            self.template,
        )

    async def open(
        self, prompts: Sequence[Prompt], offsets_ns: Sequence[int], slots: int | None = None
    ) -> LoadTimeline:
        """One worker's open loop: one conversation at each offset, at most `slots` of them in flight."""
        self.worker_table.wipe()
        recorder = InFlightRecorder(OpenLoopPhases(self.worker_table, 0, None, offsets_ns[-1]))
        async with ParsingQueue() as parsing_queue, PreciseTimer() as timer:
            runner = self._runner(parsing_queue, recorder)
            buffer = RequestBuffer(
                prepare_conversations(self.turn_client, prompts, range(len(offsets_ns))), REQUESTS_AHEAD
            )
            begin_ns = self.clock()
            in_flight = nullcontext() if slots is None else asyncio.Semaphore(slots)
            share = OpenLoopShare(range(len(offsets_ns)), array("q", offsets_ns), offsets_ns[-1])
            await OpenLoop(share, runner, buffer, timer, slots=in_flight).run(begin_ns)
            await parsing_queue.drained()
        self.timeline = LoadTimeline(
            [recorder.log], begin_ns, open_loop_bounds(self.worker_table, begin_ns + offsets_ns[-1])
        )
        return self.timeline


@dataclass
class DrivenEngine:
    """A running engine: a client that sends it conversations, and another one that reads its pages."""

    context: TurnClient
    control: ControlClient

    async def drive(self, rows: Sequence[Prompt], concurrency: int = 3) -> list[Record]:
        """The records of a closed loop over these rows."""
        driver = LoopDriver(self.context)
        await driver.closed(rows, concurrency)
        return driver.records

    async def counted_drive(self, rows: Sequence[Prompt], concurrency: int = 3) -> tuple[list[Record], CounterDeltas]:
        """The same with the difference of the engine's counters."""
        before = await self.counters()
        records = await self.drive(rows, concurrency)
        return records, counter_difference(before, await self.counters())

    async def counters(self) -> EngineCounters:
        """The engine's counters now."""
        return self.context.dialect.counters(await self.control.text(self.context.dialect.metrics_path))

    async def speculating(self) -> bool | None:
        """Whether the engine reports a drafter."""
        dialect = self.context.dialect
        path = dialect.state_path or ""
        state = (await self.control.documents([path]))[path] if path else None
        return dialect.speculating(state, await self.control.text(dialect.metrics_path))
