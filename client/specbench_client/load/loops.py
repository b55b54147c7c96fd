"""The two kinds of load: the closed loop of C streams, and the open loop of scheduled conversations."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from types import TracebackType
from typing import Any, Self

from specbench_client.cooperative_tasks import first_failure
from specbench_client.documents.record import RecordPhase
from specbench_client.load.conversation_runner import (
    REFUSED_PAUSE_NS,
    ConversationRunner,
    StreamSlot,
)
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.load.request_buffer import PreparedConversation, RequestBuffer, UpcomingConversation
from specbench_client.load.shared_state import WorkerTable
from specbench_client.load.steady_state import NS_PER_S, SCHEDULE_NOTICE_NS, schedule_start
from specbench_client.load.worker_shares import ClosedLoopShare, FillerShare, OpenLoopShare

# The closed loop: C streams, each of which sends its next request when its previous exchange has ended.
#
# Conversations are started in order, each by the next free stream. The intended time of a request is the moment at
# which its stream became free, so time that the client loses between two requests counts as latency. A stream that gets
# no connection pauses, so that an engine that is gone is not flooded with connection attempts. A stream waits with its
# user between the turns of a conversation, and after a filler for as long as a turn of the workload waits on average.


FILLER_POLL_NS = 100_000_000
"""Interval of checking during the wait after a filler whether the last measured conversation has ended."""


@dataclass(frozen=True)
class ClosedLoop:
    """The streams of one worker."""

    share: ClosedLoopShare
    runner: ConversationRunner
    buffer: RequestBuffer

    async def run(self, begin_ns: int) -> None:
        """Run all streams to their end. Cancelling abandons the open requests, which leave no record."""
        self.runner.recorder.phases.started(begin_ns)
        end_ns = None if self.share.duration_s is None else begin_ns + int(self.share.duration_s * NS_PER_S)
        async with first_failure(), asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(self.buffer.keep_filled())
            async with asyncio.TaskGroup() as streams:
                for number in self.share.streams:
                    streams.create_task(self._stream(number, begin_ns, end_ns))
            filling.cancel()

    async def _stream(self, number: int, begin_ns: int, end_ns: int | None) -> None:
        """Run conversations until there are no more."""
        upcoming = UpcomingConversation(self.buffer, lambda: end_ns is None or self.runner.clock() < end_ns)
        free_ns, began = begin_ns, True
        if self.share.fill is not None:
            first = StreamSlot(number, free_ns, began=True, phase=RecordPhase.RAMP)
            free_ns, began = await self._filler(self.share.fill, first, 0, upcoming), False
        while (prepared := upcoming.take()) is not None:
            free_ns, began = await self._run_conversation(prepared, StreamSlot(number, free_ns, began=began)), False
            if self.share.fill is not None:
                self.runner.recorder.phases.measured(free_ns)
        if self.share.fill is not None:
            await self._run_drain_fillers(self.share.fill, number, free_ns)
        self.runner.recorder.phases.stream_idle(self.runner.clock())

    async def _run_drain_fillers(self, fill: FillerPlan, number: int, free_ns: int) -> None:
        """Keep up the load until the last measured conversation of all workers has ended."""
        for lap in count(1):
            if self.runner.recorder.phases.all_measured():
                return
            free_ns = await self._filler(fill, StreamSlot(number, free_ns, phase=RecordPhase.DRAIN), lap)

    async def _filler(
        self, fill: FillerPlan, slot: StreamSlot, lap: int, upcoming: UpcomingConversation | None = None
    ) -> int:
        """Run a filler, and wait like a user after it. `upcoming`: what is sent after it at once if no user waits."""
        conversation, users = filler_conversation(fill, slot.stream, lap), self.runner.users
        prepared = await self.runner.prepare(conversation)
        if upcoming is not None and not self._wait_ns(conversation.id):
            upcoming.send_after(prepared)
        free_ns = await self._run_conversation(prepared, slot)
        next_ns = free_ns + self._wait_ns(conversation.id)
        while not self.runner.recorder.phases.all_measured() and (now_ns := self.runner.clock()) < next_ns:
            await users.sleep_until(min(next_ns, now_ns + FILLER_POLL_NS))
        return next_ns

    def _wait_ns(self, filler: str) -> int:
        """How long a stream waits after this filler: as long as a turn of the workload waits on average."""
        return int(self._later_turns * self.runner.users.think_ns(filler, 1)) + self._recorded_wait_ns

    @cached_property
    def _later_turns(self) -> float:
        """Share of the workload's turns that are not the first of their conversation."""
        prompts = self.share.fill.prompts if self.share.fill else ()
        return 1 - len(prompts) / sum(len(prompt.turns) for prompt in prompts)

    @cached_property
    def _recorded_wait_ns(self) -> int:
        """Mean recorded wait before a request of the workload."""
        prompts = self.share.fill.prompts if self.share.fill else ()
        waited_s = sum(start.wait_s or 0.0 for prompt in prompts for start in prompt.starts)
        return int(waited_s / sum(len(prompt.turns) for prompt in prompts) * NS_PER_S)

    async def _run_conversation(self, prepared: PreparedConversation, slot: StreamSlot) -> int:
        """Run a conversation and return when the stream is free again (monotonic ns)."""
        conversation_end = await self.runner.run(prepared, slot)
        if not conversation_end.refused:
            return conversation_end.ended_ns
        await asyncio.sleep(REFUSED_PAUSE_NS / NS_PER_S)
        return self.runner.clock()


# asyncio's timers round up to a millisecond. A Linux timerfd is exact: the event loop waits for it as for a socket. The
# os module has timerfd from Python 3.13 on; until then it is called through the C library. Systems without it use
# asyncio's timers, and the measured lateness of the sends shows the difference.

_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1  # TFD_TIMER_ABSTIME
_NS_PER_S = 1_000_000_000


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: the interval (none), then the expiration."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("repeat_s", "repeat_ns", "at_s", "at_ns"))


class PreciseTimer:
    """`async with PreciseTimer() as timer: await timer.sleep_until(ns)`. Supports one waiter at a time."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = -1
        self._expired: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        create: Any = getattr(self._libc, "timerfd_create", None)
        self._timer = create(time.CLOCK_MONOTONIC, _TFD_FLAGS) if create else -1
        if self._timer >= 0:
            asyncio.get_running_loop().add_reader(self._timer, self._on_readable)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer >= 0:
            asyncio.get_running_loop().remove_reader(self._timer)
            os.close(self._timer)
            self._timer = -1

    async def sleep_until(self, ns: int) -> None:
        """Return at this time (monotonic ns). If it has passed, yield once, so that a late loop starves no task."""
        left_ns = ns - time.monotonic_ns()
        if left_ns <= 0:
            await asyncio.sleep(0)
            return
        self._expired = asyncio.get_running_loop().create_future()
        if not self._set(ns):
            await asyncio.sleep(left_ns / _NS_PER_S)
            return
        await self._expired

    def _set(self, ns: int) -> bool:
        spec = _TimerSpec(0, 0, *divmod(ns, _NS_PER_S))
        return (
            self._timer >= 0
            and self._libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) == 0
        )

    def _on_readable(self) -> None:
        try:
            os.read(self._timer, 8)
        except BlockingIOError:
            return
        if self._expired is not None and not self._expired.done():
            self._expired.set_result(None)


async def sleep_until(ns: int) -> None:
    """Return at this time (monotonic ns). Supports any number of waiters."""
    async with PreciseTimer() as timer:
        await timer.sleep_until(ns)


# The open loop: conversations begin at scheduled times, regardless of how fast the engine answers.
#
# A slow engine gets no relief: requests do not wait for it, and their latency counts from the intended time, even if
# the client itself was late. The intended time of a later turn is the end of the previous answer and of the user's
# think time after it, since a user reads an answer before the next question.
#
# With a limit of conversations in flight, a conversation waits for a slot in the order of arrival, and a filler too.
# Its intended time remains that of the schedule, so the wait counts as latency.
#
# Fillers arrive before and after the measured conversations, by the same arrival process (see `conversations`). The
# schedule starts when the load is steady, and fillers continue until the last measured conversation has ended.

POLL_INTERVAL_NS = 20_000_000
"""Interval of checking whether another worker's requests made the load steady or were the last ones."""


@dataclass(frozen=True)
class FillerSender:
    """Sends the fillers of one worker."""

    fillers: FillerShare
    runner: ConversationRunner
    worker_table: WorkerTable
    timer: PreciseTimer
    last_ns: int
    """When the last measured conversation of all workers begins, from the schedule's start."""
    slots: AbstractAsyncContextManager[Any] = field(default_factory=nullcontext)
    """See `OpenLoop`."""
    _numbers: count[int] = field(default_factory=count)

    async def lead(self, begin_ns: int, conversations: asyncio.TaskGroup) -> int:
        """Send lead fillers until the load is steady; return the schedule's start (monotonic ns)."""
        for offset_ns in self.fillers.lead_ns:
            due_ns = begin_ns + offset_ns
            while (start_ns := self._start_ns(begin_ns)) > due_ns and not await self._wait_until(due_ns):
                pass
            if start_ns <= due_ns:
                break
            conversations.create_task(self._fill(due_ns, RecordPhase.RAMP))
        while (agreed_ns := self._start_ns(begin_ns) - SCHEDULE_NOTICE_NS // 2) > self.runner.clock():
            await self._wait_until(agreed_ns)
        return self._start_ns(begin_ns)

    async def tail(self, start_ns: int, conversations: asyncio.TaskGroup) -> None:
        """Send tail fillers until the last measured conversation of all workers has ended."""
        for offset_ns in self.fillers.tail_ns:
            due_ns = start_ns + self.last_ns + offset_ns
            while not self._all_measured() and not await self._wait_until(due_ns):
                pass
            if self._all_measured():
                return
            conversations.create_task(self._fill(due_ns, RecordPhase.DRAIN))

    def _start_ns(self, begin_ns: int) -> int:
        return schedule_start(self.worker_table, begin_ns, self.fillers.lead_most_ns)

    def _all_measured(self) -> bool:
        return self.runner.recorder.phases.all_measured()

    async def _wait_until(self, due_ns: int) -> bool:
        """Wait until `due_ns`, but at most POLL_INTERVAL_NS; return whether the time has come."""
        await self.timer.sleep_until(min(due_ns, self.runner.clock() + POLL_INTERVAL_NS))
        return self.runner.clock() >= due_ns

    async def _fill(self, due_ns: int, phase: RecordPhase) -> None:
        conversation = filler_conversation(self.fillers.fill, self.fillers.worker, next(self._numbers))
        slot = StreamSlot(conversation.index, due_ns, phase=phase)
        prepared = await self.runner.prepare(conversation)
        async with self.slots:
            if phase is not RecordPhase.DRAIN or not self._all_measured():  # it may have waited beyond the end
                await self.runner.run(prepared, slot)


@dataclass(frozen=True)
class OpenLoop:
    """The conversations of one worker, in the order of the buffer."""

    share: OpenLoopShare
    runner: ConversationRunner
    buffer: RequestBuffer
    timer: PreciseTimer
    filler_sender: FillerSender | None = None
    slots: AbstractAsyncContextManager[Any] = field(default_factory=nullcontext)
    """Entered for each conversation and filler: a semaphore of the conversations in flight, or no limit."""

    async def run(self, begin_ns: int) -> None:
        """Begin all conversations on time and wait for their ends. Cancelling abandons the open requests."""
        self.runner.recorder.phases.started(begin_ns)
        async with first_failure(), asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(self.buffer.keep_filled())
            async with asyncio.TaskGroup() as conversations:
                start_ns = await self.filler_sender.lead(begin_ns, conversations) if self.filler_sender else begin_ns
                for offset_ns in self.share.offsets_ns:
                    intended_ns = start_ns + offset_ns
                    await self.timer.sleep_until(intended_ns)
                    prepared = self.buffer.take()
                    assert prepared is not None, "there is a conversation for each time"
                    conversations.create_task(self._run_conversation(prepared, intended_ns))
                if self.filler_sender:
                    await self.filler_sender.tail(start_ns, conversations)
            filling.cancel()

    async def _run_conversation(self, prepared: PreparedConversation, intended_ns: int) -> None:
        async with self.slots:
            slot = StreamSlot(prepared.turn.conversation.index, intended_ns)
            conversation_end = await self.runner.run(prepared, slot)
        if self.filler_sender:
            self.runner.recorder.phases.measured(conversation_end.ended_ns)
