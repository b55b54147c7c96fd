"""The closed loop: C streams, each of which sends its next request when its previous exchange has ended.

Conversations are started in order, each by the next free stream. The intended time of a request is the moment at which
its stream became free, so time that the client loses between two requests counts as latency. A stream that gets no
connection pauses, so that an engine that is gone is not flooded with connection attempts. A stream waits with its
user between the turns of a conversation, and after a filler for as long as a turn of the workload waits on average.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from specbench_client.documents.record import RecordPhase
from specbench_client.load.conversation_runner import (
    REFUSED_PAUSE_NS,
    ConversationRunner,
    PreparedConversation,
    RequestBuffer,
    StreamSlot,
)
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.load.load_shares import ClosedLoopShare
from specbench_client.load.phases import NS_PER_S
from specbench_client.sliced_tasks import first_failure

POLL_INTERVAL_NS = 100_000_000
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
        clock = self.runner.clock
        free_ns, began = begin_ns, True
        if self.share.fill is not None:
            first = StreamSlot(number, free_ns, began=True, phase=RecordPhase.RAMP)
            free_ns, began = await self._filler(self.share.fill, first, 0), False
        while end_ns is None or clock() < end_ns:
            prepared = self.buffer.take()
            if prepared is None:
                break
            free_ns, began = await self._run_conversation(prepared, StreamSlot(number, free_ns, began=began)), False
            if self.share.fill is not None:
                self.runner.recorder.phases.measured(free_ns)
        if self.share.fill is not None:
            await self._run_drain_fillers(self.share.fill, number, free_ns)
        self.runner.recorder.phases.stream_idle(clock())

    async def _run_drain_fillers(self, fill: FillerPlan, number: int, free_ns: int) -> None:
        """Keep up the load until the last measured conversation of all workers has ended."""
        for lap in count(1):
            if self.runner.recorder.phases.all_measured():
                return
            free_ns = await self._filler(fill, StreamSlot(number, free_ns, phase=RecordPhase.DRAIN), lap)

    async def _filler(self, fill: FillerPlan, slot: StreamSlot, lap: int) -> int:
        conversation = filler_conversation(fill, slot.stream, lap)
        free_ns = await self._run_conversation(await self.runner.prepare(conversation), slot)
        users = self.runner.users
        next_ns = free_ns + int(self._later_turns * users.think_ns(conversation.id, 1)) + self._recorded_wait_ns
        while not self.runner.recorder.phases.all_measured() and (now_ns := self.runner.clock()) < next_ns:
            await users.sleep_until(min(next_ns, now_ns + POLL_INTERVAL_NS))
        return next_ns

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
