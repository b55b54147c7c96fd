"""The client's single worker in virtual time, with the same loops as `load.worker`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from specbench_api.spec.answers import Answers
from specbench_client.dialects.engine_answer import EngineAnswer
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.load.answer_rules import unmet_demand
from specbench_client.load.conversation_runner import (
    MAX_UNREAD,
    ConversationRunner,
    ParsingQueue,
    thinking_users,
)
from specbench_client.load.loops import ClosedLoop, FillerSender, OpenLoop, PreciseTimer
from specbench_client.load.request_buffer import RequestBuffer, prepare_conversations
from specbench_client.load.shared_state import UNLIMITED, SharedState, WorkerTable, create_shared_state
from specbench_client.load.steady_state import InFlightRecorder, LoadTimeline
from specbench_client.load.turns import TurnClient
from specbench_client.load.worker_shares import ClosedLoopShare, OpenLoopShare, WorkerLoad
from specbench_client.workload.row_parsing import Prompt
from virtual_time.clock import NS_PER_S, VirtualClock

AHEAD = 2
"""Buffered requests: encoding one takes no virtual time."""


class VirtualAlarm(PreciseTimer):
    """Sleeps until exactly the given time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    async def sleep_until(self, ns: int) -> None:
        await asyncio.sleep(max(0, ns - self._clock()) / NS_PER_S)


def _shared() -> SharedState:
    return create_shared_state(get_context("spawn"), 1)


def _judge_at_once(
    answers: Answers | None, on_record: Callable[[Record], None]
) -> Callable[[Record, EngineAnswer], None] | None:
    """Judge answers in this process: the schemas of virtual worlds take no time."""
    if answers is None or not answers.has_schemas:
        return None

    def judge(record: Record, answer: EngineAnswer) -> None:
        on_record(replace(record, judged=True, flaw=unmet_demand(answers, None, answer)))

    return judge


@dataclass
class VirtualWorker:
    """Drives loads in sequence."""

    clock: VirtualClock
    shared: SharedState = field(default_factory=_shared)

    @property
    def worker_table(self) -> WorkerTable:
        return self.shared.worker_table(1)

    def no_more_conversations(self) -> None:
        """Stop a closed loop: it starts no new conversations and finishes the open ones."""
        self.shared.conversation_counter.close()

    async def work(
        self,
        load: WorkerLoad,
        turn_client: TurnClient,
        prompts: Sequence[Prompt],
        phase: RecordPhase | None,
        on_record: Callable[[Record], None],
    ) -> LoadTimeline:
        """Run the load to its end."""
        self.worker_table.wipe()
        self.shared.conversation_counter.open(UNLIMITED if load.conversations is None else load.conversations)
        (share,) = load.shares
        recorder = InFlightRecorder(share.phases(self.worker_table, 0))
        most = max(MAX_UNREAD, len(share.streams)) if isinstance(share, ClosedLoopShare) else MAX_UNREAD
        async with ParsingQueue(most) as parsing_queue:
            users = thinking_users(turn_client.request_config, VirtualAlarm(self.clock).sleep_until)
            runner = ConversationRunner(
                turn_client,
                parsing_queue,
                recorder,
                on_record,
                users,
                phase,
                self.clock,
                judge_later=_judge_at_once(turn_client.request_config.answers, on_record),
            )
            begin_ns = self.clock()
            await self._loop(share, runner, prompts).run(begin_ns)
            await parsing_queue.drained()
        steady_bounds, begins_ns = (
            load.steady_bounds(self.worker_table, begin_ns),
            load.begins_ns(self.worker_table, begin_ns),
        )
        return LoadTimeline([recorder.log], begin_ns, steady_bounds, begins_ns)

    def _loop(
        self, share: ClosedLoopShare | OpenLoopShare, runner: ConversationRunner, prompts: Sequence[Prompt]
    ) -> ClosedLoop | OpenLoop:
        if isinstance(share, ClosedLoopShare):
            buffer = RequestBuffer(
                prepare_conversations(runner.turn_client, prompts, self.shared.conversation_counter), AHEAD
            )
            return ClosedLoop(share, runner, buffer)
        buffer, timer = (
            RequestBuffer(prepare_conversations(runner.turn_client, prompts, share.conversations), AHEAD),
            VirtualAlarm(self.clock),
        )
        return OpenLoop(share, runner, buffer, timer, self._companions(share, runner))

    def _companions(self, share: OpenLoopShare, runner: ConversationRunner) -> FillerSender | None:
        if share.fillers is None:
            return None
        return FillerSender(share.fillers, runner, self.worker_table, VirtualAlarm(self.clock), share.last_ns)
