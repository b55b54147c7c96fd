"""One conversation over the wire: its turns one after the other, with the model's own replies in the history.

Of a reply, only what was said stands in the history, and nothing of what was thought before, as in every chat. Where
the client applies the chat template, it does so in a thread: rendering and tokenizing a long history takes
milliseconds, in which the other streams' sockets must not wait. The conversation itself does wait, and that counts as
its latency, as it would if the engine rendered it.

The answer to the last turn is read later, when the sockets leave time for it; one that another turn follows is read at
once, since it belongs into the next question. A turn that fails ends its conversation, and its other turns become
records that say so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specbench_api.outcome.record import Record, RecordPhase
from specbench_client.chat import Message
from specbench_client.load.conversations import Conversation, Prompt, conversation_at
from specbench_client.load.flight import Flight
from specbench_client.load.reader import Reader
from specbench_client.load.tray import Opening
from specbench_client.load.turns import Turn, TurnContext, TurnResult, prepare, reading, skipped_after
from specbench_client.slices import Slices
from specbench_client.transport.exchange import ErrorClass, HttpRequest, Unread
from specbench_client.workload.chat_template.applied import AppliedTemplate
from specbench_client.workload.chat_template.channels import split_channels


class Asking(Protocol):
    """The three steps of a turn, see `turns`."""

    def prepare(self, turn: Turn) -> HttpRequest: ...
    async def exchange(self, request: HttpRequest) -> Unread: ...
    def reading(self, turn: Turn, unread: Unread) -> Slices[TurnResult]: ...


@dataclass(frozen=True)
class Asker:
    """The real one."""

    context: TurnContext

    def prepare(self, turn: Turn) -> HttpRequest:
        return prepare(self.context, turn)

    async def exchange(self, request: HttpRequest) -> Unread:
        return await self.context.transport.exchange(request)

    def reading(self, turn: Turn, unread: Unread) -> Slices[TurnResult]:
        return reading(self.context, turn, unread)


def openings(asking: Asking, prompts: Sequence[Prompt], numbers: Iterable[int]) -> Iterator[Opening]:
    """The conversations of these numbers, with their first requests."""
    for number in numbers:
        yield opening_of(asking, conversation_at(prompts, number))


def opening_of(asking: Asking, conversation: Conversation) -> Opening:
    """A conversation with its first request."""
    turn = _turn(conversation, 0, conversation.turns[0])
    return Opening(conversation, turn, asking.prepare(turn))


@dataclass(frozen=True, slots=True)
class Seat:
    """Who holds a conversation: the stream, when it meant to begin, and whether it is the first thing it does."""

    stream: int
    intended_ns: int
    began: bool = False
    phase: RecordPhase | None = None
    """Fixed for a filler; None: as the flight has it."""


@dataclass(frozen=True, slots=True)
class Parting:
    """How a conversation was left: when its last exchange ended, and whether that found no connection."""

    ended_ns: int
    refused: bool


@dataclass(frozen=True)
class Talk:
    """What all conversations of one worker share. `phase`: fixed for all records; None: as the flight has it.

    `template`: what the client makes token ids with; None: messages are sent.
    """

    asking: Asking
    reader: Reader
    flight: Flight
    on_record: Callable[[Record], None]
    phase: RecordPhase | None = None
    clock: Callable[[], int] = time.monotonic_ns
    template: AppliedTemplate | None = None

    async def opening(self, conversation: Conversation) -> Opening:
        """A conversation that nobody laid out before, with its first request."""
        turn = await self._rendered(_turn(conversation, 0, conversation.turns[0]))
        return Opening(conversation, turn, self.asking.prepare(turn))

    async def hold(self, opening: Opening, seat: Seat) -> Parting:
        """Take all turns, or those up to the first that fails."""
        conversation, turn, request = opening.conversation, opening.turn, opening.request
        while True:
            is_last = turn.turn == len(conversation.turns) - 1
            unread, asked = await self._exchange(turn, request, seat)
            parting = Parting(unread.ended_ns, refused=unread.error_class is ErrorClass.REFUSED)
            answer = self.asking.reading(asked, unread)
            if is_last:
                await self.reader.submit(answer, self._keep)
                return parting
            result = await self.reader.read(answer)
            self._keep(result)
            if result.reply_text is None:
                for number in range(turn.turn + 1, len(conversation.turns)):
                    self.on_record(skipped_after(result, number))
                return parting
            reply = self._reply(turn, result.reply_text)
            history = (*turn.messages, reply, *conversation.turns[turn.turn + 1])
            turn = await self._rendered(_turn(conversation, turn.turn + 1, history))
            request = self.asking.prepare(turn)
            seat = Seat(seat.stream, result.ended_ns)

    async def _exchange(self, turn: Turn, request: HttpRequest, seat: Seat) -> tuple[Unread, Turn]:
        opened_ns = self.clock()
        self.flight.opened(opened_ns, stream_began=seat.began, conversation_began=turn.turn == 0)
        unread = await self.asking.exchange(request)
        phase = self.flight.ended(opened_ns, unread.ended_ns)
        return unread, replace(
            turn, stream=seat.stream, intended_ns=seat.intended_ns, phase=self.phase or seat.phase or phase
        )

    def _reply(self, turn: Turn, text: str) -> Message:
        """What the history holds of an answer."""
        spoken = split_channels(text) if self.template is None else self.template.spoken(turn.messages, text)
        return Message("assistant", spoken.final, reasoning=spoken.reasoning)

    async def _rendered(self, turn: Turn) -> Turn:
        if self.template is None:
            return turn
        return replace(turn, messages=await asyncio.to_thread(self.template.asked, turn.messages))

    def _keep(self, result: TurnResult) -> None:
        self.on_record(result.record)


def _turn(conversation: Conversation, number: int, messages: tuple[Message, ...]) -> Turn:
    """A turn of which only the question is known."""
    return Turn(
        conversation_index=conversation.index,
        conversation_id=conversation.id,
        prompt_id=conversation.prompt_id,
        category=conversation.category,
        turn=number,
        messages=messages,
        stream=0,
        intended_ns=0,
        phase=RecordPhase.STEADY,
    )
