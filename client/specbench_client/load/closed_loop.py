"""The closed loop: C streams, each sends its next request when the last one is answered.

A stream takes the next conversation and does its turns one after the other, with the model's own replies in the
history; a turn that fails ends its conversation, and its other turns become records that say so. A request is
intended for the moment at which its stream was free, so that what the client itself wastes between two requests
counts as latency.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.chat import Message
from specbench_client.load.budget import FailureBudget, FailureCount
from specbench_client.load.conversations import Conversation
from specbench_client.load.flight import Flight
from specbench_client.load.turns import Turn, TurnResult, skipped_after

AskTurn = Callable[[Turn], Awaitable[TurnResult]]
OnRecord = Callable[[Record], None]


@dataclass(frozen=True)
class ClosedLoop:
    """What is driven. `phase` fixes every record's phase (warm-up); None: ramp, steady and drain as they come.

    `alive` tells whether the engine's health route answers; it is asked when connections fail one after the other.
    """

    concurrency: int
    ask_turn: AskTurn
    on_record: OnRecord
    alive: Callable[[], Awaitable[bool]]
    phase: RecordPhase | None = None
    budget: FailureBudget = field(default_factory=FailureBudget)
    clock: Callable[[], int] = time.monotonic_ns


async def closed_loop(loop: ClosedLoop, conversations: Iterator[Conversation]) -> Flight:
    """Drive all conversations; what was in flight when. Raises EngineFailed (LOST) when the failure budget is spent.

    Cancelling it abandons the open requests, which leave no record; what was recorded stays.
    """
    flight = Flight(loop.concurrency, loop.clock())
    run = _Run(loop, conversations, flight, FailureCount(loop.budget, loop.alive))
    streams = [asyncio.create_task(run.stream(number)) for number in range(loop.concurrency)]
    try:
        await asyncio.gather(*streams)
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        flight.ended(loop.clock())
    return flight


@dataclass(frozen=True)
class _Run:
    """One run of a loop: what its streams share."""

    loop: ClosedLoop
    conversations: Iterator[Conversation]
    flight: Flight
    failures: FailureCount

    async def stream(self, number: int) -> None:
        """Work until there are no more conversations."""
        free_ns = self.flight.started_ns
        for conversation in self.conversations:  # one iterator, shared: each takes the next
            free_ns = await self._converse(conversation, number, free_ns)
        self.flight.ran_dry(self.loop.clock())

    async def _converse(self, conversation: Conversation, stream: int, free_ns: int) -> int:
        """Do its turns; when the stream was free again."""
        history: tuple[Message, ...] = ()
        for number, asked in enumerate(conversation.turns):
            history += asked
            turn = Turn(
                conversation_index=conversation.index,
                conversation_id=conversation.id,
                prompt_id=conversation.prompt_id,
                category=conversation.category,
                turn=number,
                messages=history,
                stream=stream,
                intended_ns=free_ns,
                phase=self.loop.phase or RecordPhase.STEADY,
            )
            result = await self._take(turn)
            free_ns = result.ended_ns
            if result.reply_text is None:
                self._skip(result, range(number + 1, len(conversation.turns)))
                await self.failures.add(result.record)
                break
            await self.failures.add(result.record)
            history += (Message("assistant", result.reply_text),)
        return free_ns

    async def _take(self, turn: Turn) -> TurnResult:
        in_ramp = self.flight.opened(self.loop.clock())
        result = await self.loop.ask_turn(turn)
        phase = self.flight.closed(result.ended_ns, in_ramp=in_ramp)
        result = replace(result, record=replace(result.record, phase=str(self.loop.phase or phase)))
        self.loop.on_record(result.record)
        return result

    def _skip(self, failed: TurnResult, turns: range) -> None:
        for turn in turns:
            self.loop.on_record(skipped_after(failed, turn))
