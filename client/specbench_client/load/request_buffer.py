"""Conversations that are prepared ahead of time, and the one that each stream sends next.

The buffer holds the next conversations with their first requests encoded, so that no send waits for JSON encoding. It
is filled while the event loop is idle, one request between two polls of the sockets. Buffered conversations belong to
this worker: its free streams take them in order. A worker alone may buffer as many as it likes; workers that draw from
a shared counter buffer few, since otherwise one would hold conversations while another has none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from specbench_client.load.conversations import conversation_at
from specbench_client.load.turns import Turn, TurnClient
from specbench_client.transport.exchange import HttpRequest
from specbench_client.workload.row_parsing import Prompt

REQUESTS_AHEAD = 256


@dataclass(frozen=True, slots=True)
class PreparedConversation:
    """The first turn of a conversation and its request."""

    turn: Turn
    request: HttpRequest


def prepare_conversations(
    turn_client: TurnClient, prompts: Sequence[Prompt], numbers: Iterable[int]
) -> Iterator[PreparedConversation]:
    """Yield the conversations of these indices, each with its first request."""
    for number in numbers:
        conversation = conversation_at(prompts, number)
        turn = Turn(conversation, 0, conversation.prompt.turns[0])
        yield PreparedConversation(turn, turn_client.build_request(turn))


def shared_requests_ahead(streams: int) -> int:
    """Return how many requests a worker with a shared counter buffers: an eighth of its streams."""
    return max(1, streams // 8)


class RequestBuffer:
    """Buffers up to `ahead` conversations of an iterator, which is advanced only when one is needed.

    Once `is_closed` returns True, the buffered ones are dropped: a warm-up that is complete sends none of them.
    """

    def __init__(
        self, conversations: Iterator[PreparedConversation], ahead: int, is_closed: Callable[[], bool] = lambda: False
    ) -> None:
        self._conversations = conversations
        self._ahead = ahead
        self._is_closed = is_closed
        self._ready: deque[PreparedConversation] = deque()
        self._taken = asyncio.Event()
        self._empty = False

    def fill(self, count: int) -> None:
        """Buffer this many at once, before the load begins."""
        while len(self._ready) < count and self._prepare_next():
            pass

    def take(self) -> PreparedConversation | None:
        """Return the next conversation, or None if there are no more."""
        prepared = self.take_buffered()
        return self._ready.popleft() if prepared is None and self._prepare_next() else prepared

    def take_buffered(self) -> PreparedConversation | None:
        """Return the next conversation if it is prepared already."""
        self._taken.set()
        if self._is_closed():
            self._ready.clear()
        return self._ready.popleft() if self._ready else None

    async def keep_filled(self) -> None:
        """Refill the buffer whenever a conversation was taken, until the iterator is exhausted."""
        while not self._empty:
            await self._taken.wait()
            self._taken.clear()
            while len(self._ready) < self._ahead and self._prepare_next():  # noqa: ASYNC110 -- yields to other tasks
                await asyncio.sleep(0)

    def _prepare_next(self) -> bool:
        prepared = None if self._empty else next(self._conversations, None)
        if prepared is None:
            self._empty = True
            return False
        self._ready.append(prepared)
        return True


@dataclass
class UpcomingConversation:
    """The next conversation of one stream: taken when it is sent, which may be before the stream's task runs again."""

    buffer: RequestBuffer
    continues: Callable[[], bool]
    """Whether the stream begins another conversation."""
    _sent: PreparedConversation | None = None

    def take(self) -> PreparedConversation | None:
        """Return the conversation whose first request was sent already, else the next one; None: there are no more."""
        sent, self._sent = self._sent, None
        return sent or self._take(self.buffer.take)

    def send_after(self, prepared: PreparedConversation) -> None:
        """Have the next conversation sent as soon as the answer of this one has ended, if it has one turn."""
        if len(prepared.turn.conversation.prompt.turns) == 1:
            prepared.request.follow = self._send

    def _send(self) -> HttpRequest | None:
        if self._sent is not None:
            return None  # Its answer has ended before the task has run again: one record at a time.
        self._sent = self._take(self.buffer.take_buffered)
        return None if self._sent is None else self._sent.request

    def _take(self, source: Callable[[], PreparedConversation | None]) -> PreparedConversation | None:
        prepared = source() if self.continues() else None
        if prepared is not None:
            self.send_after(prepared)
        return prepared
