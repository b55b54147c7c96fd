"""Runs prepared conversations: their turns one after the other, with the model's own replies in the history.

The requests of a recorded session contain recorded answers instead, so they need no reply, and a failed one stops no
other. Each starts when those that it follows have ended and its wait has passed; several may be in flight at once.

Only the final text of a reply becomes part of the history, not its reasoning, as in every chat. If the client applies
the chat template, it does so in a thread: rendering and tokenizing a long history takes milliseconds, during which the
sockets of other streams must not wait. The conversation itself does wait, and this counts as its latency, as it would
if the engine rendered the template.

The answer to the last turn is parsed later, when the event loop has time; the answer to an earlier turn is parsed at
once, because the next request contains it. A failed turn ends its conversation, and its later turns become records
with the error class `skipped_after_error`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from specbench_client.chat import ChatMessage
from specbench_client.cooperative_tasks import CooperativeTask
from specbench_client.dialects.engine_answer import EngineAnswer
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.load.conversations import Conversation, think_time_ns
from specbench_client.load.request_buffer import PreparedConversation
from specbench_client.load.steady_state import InFlightRecorder
from specbench_client.load.turns import RequestConfig, Turn, TurnClient, TurnResult, skipped_after, split_reply
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpRequest, UnparsedExchange
from specbench_client.workload.chat_template.template import AppliedTemplate

REFUSED_PAUSE_NS = 100_000_000
"""Pause after a refused connection: an engine that is gone is not flooded with connection attempts."""
MAX_UNREAD = 256

OnResult = Callable[[TurnResult], None]


class _ReadJob(NamedTuple):
    work: CooperativeTask[TurnResult]
    on_result: OnResult
    urgent: bool = False
    """Whether a stream waits for the result."""


class ParsingQueue:
    """A queue of finished answers, parsed in slices on the event loop so that no send or read is delayed for long.

    `async with ParsingQueue() as queue`, then `submit` or `read`. One answer is parsed at a time, one slice in each
    iteration of the event loop; answers that a next turn waits for go first. Answers that end together are parsed after
    the last of them, or once half of `limit` are unread: their streams send first. `submit` waits while `limit` answers
    are unread, so memory does not grow with the length of the run.
    """

    def __init__(self, limit: int = MAX_UNREAD) -> None:
        self._limit = limit
        self._free_slots = asyncio.Semaphore(limit)
        self._submitted = 0
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

        self._submitted += 1
        self._jobs.append(_ReadJob(work, done))
        self._announce()

    async def read(self, work: CooperativeTask[TurnResult]) -> TurnResult:
        """Parse an answer before all submitted ones and return its result."""
        done: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._jobs.appendleft(_ReadJob(work, lambda result: None if done.done() else done.set_result(result), True))
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
            await self._let_streams_send(job)
            try:
                next(job.work)
            except StopIteration as end:
                job.on_result(end.value)
                return

    async def _let_streams_send(self, job: _ReadJob) -> None:
        """Yield once, and on while answers are still ending, unless a stream waits for this job or the next."""
        while True:
            submitted = self._submitted
            await asyncio.sleep(0)
            is_urgent = job.urgent or (bool(self._jobs) and self._jobs[0].urgent)
            if is_urgent or submitted == self._submitted or len(self._jobs) > self._limit // 2:
                return


@dataclass(frozen=True, slots=True)
class StreamSlot:
    """The stream that runs a conversation, the intended start, and whether it is the stream's first (`began`)."""

    stream: int
    intended_ns: int
    began: bool = False
    phase: RecordPhase | None = None
    """Set for a filler; None: the recorder determines the phase."""


@dataclass(frozen=True, slots=True)
class ConversationEnd:
    """When the last exchange of a conversation ended, and whether its connection was refused."""

    ended_ns: int
    refused: bool


@dataclass(frozen=True)
class ThinkingUsers:
    """Users who wait between turns. `think_ns` returns how long before a turn of a conversation, by its id."""

    think_ns: Callable[[str, int], int]
    sleep_until: Callable[[int], Awaitable[None]]


def thinking_users(config: RequestConfig, sleep_until: Callable[[int], Awaitable[None]]) -> ThinkingUsers:
    """Return the users of these requests, who may not wait."""
    if config.think_time is None:
        return ThinkingUsers(lambda *_: 0, sleep_until)
    return ThinkingUsers(partial(think_time_ns, config.think_time, config.sampling.seed, config.repeat), sleep_until)


@dataclass(frozen=True)
class ConversationRunner:
    """Runs the conversations of one worker.

    `phase`: of all records; None: the recorder determines it. `template`: the chat template that the client applies to
    send token ids; None: messages are sent. `judge_later`: gets the records whose answers must still be judged against
    schemas, and hands them to `on_record`.
    """

    turn_client: TurnClient
    parsing_queue: ParsingQueue
    recorder: InFlightRecorder
    on_record: Callable[[Record], None]
    users: ThinkingUsers
    phase: RecordPhase | None = None
    clock: Callable[[], int] = time.monotonic_ns
    template: AppliedTemplate | None = None
    judge_later: Callable[[Record, EngineAnswer], None] | None = None

    async def prepare(self, conversation: Conversation) -> PreparedConversation:
        """Return a conversation with its first request, with the chat template applied in a thread."""
        turn = await self._rendered(Turn(conversation, 0, conversation.prompt.turns[0]))
        return PreparedConversation(turn, self.turn_client.build_request(turn))

    async def run(self, prepared: PreparedConversation, slot: StreamSlot) -> ConversationEnd:
        """Run all turns, or those up to the first that fails."""
        turn, request = prepared.turn, prepared.request
        conversation, turns = turn.conversation, turn.conversation.prompt.turns
        if conversation.prompt.starts:
            return await self._replay(prepared, slot)
        while True:
            unread, sent_turn = await self._exchange(turn, request, slot)
            conversation_end = ConversationEnd(unread.ended_ns, refused=unread.error_class is ErrorClass.REFUSED)
            answer = self.turn_client.read_result(sent_turn, unread)
            if turn.number == len(turns) - 1:
                await self.parsing_queue.submit(answer, self._record)
                return conversation_end
            result = await self.parsing_queue.read(answer)
            self._record(result)
            if result.reply_text is None:
                for number in range(turn.number + 1, len(turns)):
                    self.on_record(skipped_after(result, number))
                return conversation_end
            reply = self._reply(turn, result.reply_text)
            history = (*turn.messages, reply, *turns[turn.number + 1])
            turn = await self._rendered(Turn(conversation, turn.number + 1, history))
            request = self.turn_client.build_request(turn)
            intended_ns = result.ended_ns
            if think_ns := self.users.think_ns(conversation.id, turn.number):
                intended_ns += think_ns
                await self.users.sleep_until(intended_ns)
            slot = StreamSlot(slot.stream, intended_ns)

    async def _replay(self, prepared: PreparedConversation, slot: StreamSlot) -> ConversationEnd:
        """Run the requests of a recorded session."""
        requests: list[asyncio.Task[ConversationEnd]] = []
        async with asyncio.TaskGroup() as tasks:
            for number, start in enumerate(prepared.turn.conversation.prompt.starts):
                earlier = [requests[followed] for followed in start.after]
                requests.append(tasks.create_task(self._replay_request(prepared, number, slot, earlier)))
        ends = [request.result() for request in requests]
        return ConversationEnd(max(end.ended_ns for end in ends), any(end.refused for end in ends))

    async def _replay_request(
        self,
        prepared: PreparedConversation,
        number: int,
        slot: StreamSlot,
        earlier: Sequence[asyncio.Task[ConversationEnd]],
    ) -> ConversationEnd:
        turn, request, intended_ns = prepared.turn, prepared.request, slot.intended_ns
        if number:
            conversation = turn.conversation
            ends = [await request_end for request_end in earlier]
            intended_ns = max((end.ended_ns for end in ends), default=intended_ns)
            recorded_s = conversation.prompt.starts[number].wait_s
            think_ns = self.users.think_ns(conversation.id, number) if recorded_s is None else int(recorded_s * 1e9)
            intended_ns += think_ns
            if any(end.refused for end in ends):
                intended_ns = max(intended_ns, self.clock() + REFUSED_PAUSE_NS)
            turn = await self._rendered(Turn(conversation, number, conversation.prompt.turns[number]))
            request = self.turn_client.build_request(turn)
            await self.users.sleep_until(intended_ns)
        began = slot.began and number == 0
        unread, sent_turn = await self._exchange(turn, request, replace(slot, intended_ns=intended_ns, began=began))
        await self.parsing_queue.submit(self.turn_client.read_result(sent_turn, unread), self._record)
        return ConversationEnd(unread.ended_ns, refused=unread.error_class is ErrorClass.REFUSED)

    async def _exchange(self, turn: Turn, request: HttpRequest, slot: StreamSlot) -> tuple[UnparsedExchange, Turn]:
        opened_ns = self.clock()
        self.recorder.opened(opened_ns, stream_began=slot.began, conversation_began=turn.number == 0)
        unread = await self.turn_client.exchange(request)
        phase = self.recorder.ended(opened_ns, unread.ended_ns)
        return unread, replace(
            turn, stream_index=slot.stream, intended_ns=slot.intended_ns, phase=self.phase or slot.phase or phase
        )

    def _reply(self, turn: Turn, text: str) -> ChatMessage:
        """What the history holds of an answer."""
        spoken = split_reply(self.template, turn.messages, text)
        return ChatMessage("assistant", spoken.final, reasoning=spoken.reasoning)

    async def _rendered(self, turn: Turn) -> Turn:
        if self.template is None:
            return turn
        return replace(turn, messages=await asyncio.to_thread(self.template.with_token_ids, turn.messages))

    def _record(self, result: TurnResult) -> None:
        if result.unjudged is None:
            self.on_record(result.record)
        else:
            assert self.judge_later is not None, "the answers have schemas"
            self.judge_later(result.record, result.unjudged)
