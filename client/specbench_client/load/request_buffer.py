"""Buffers the next conversations with their first requests encoded, so that no send waits for JSON encoding.

The buffer is filled while the event loop is idle, one request between two polls of the sockets. Buffered conversations
belong to this worker: its free streams take them in order. A worker alone may buffer as many as it likes; workers that
draw from a shared counter buffer few, since otherwise one would hold conversations while another has none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from specbench_client.load.conversations import Conversation
from specbench_client.load.turns import Turn
from specbench_client.transport.exchange import HttpRequest

REQUESTS_AHEAD = 256


def shared_requests_ahead(streams: int) -> int:
    """Return how many requests a worker with a shared counter buffers: an eighth of its streams."""
    return max(1, streams // 8)


@dataclass(frozen=True, slots=True)
class PreparedConversation:
    """A conversation and its first request. The turn's time, stream and phase are placeholders."""

    conversation: Conversation
    turn: Turn
    request: HttpRequest


class RequestBuffer:
    """Buffers up to `ahead` conversations of an iterator, which is advanced only when one is needed."""

    def __init__(self, conversations: Iterator[PreparedConversation], ahead: int) -> None:
        self._conversations = conversations
        self._ahead = ahead
        self._ready: deque[PreparedConversation] = deque()
        self._taken = asyncio.Event()
        self._empty = False

    def fill(self, count: int) -> None:
        """Buffer this many at once, before the load begins."""
        while len(self._ready) < count and self._prepare_next():
            pass

    def take(self) -> PreparedConversation | None:
        """Return the next conversation, or None if there are no more."""
        self._taken.set()
        if not self._ready:
            self._prepare_next()
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
