"""The next conversations with their first requests written out, so that nobody waits for JSON when it is time to send.

The tray is filled while the loop has nothing more urgent to do, one request between two looks at the sockets. What lies
on it belongs to this worker: its streams take it in order, whoever is free. A worker that draws from nobody else's may
lay out as much as it likes; beside others it takes little ahead, or one would sit on conversations while another has
none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from specbench_client.load.conversations import Conversation
from specbench_client.load.turns import Turn
from specbench_client.transport.exchange import HttpRequest

AHEAD = 256


def ahead_together(streams: int) -> int:
    """Requests laid out ahead by a worker that draws from what all draw from: an eighth of a round."""
    return max(1, streams // 8)


@dataclass(frozen=True, slots=True)
class Opening:
    """A conversation and its first request. The turn's time, stream and phase are not known yet."""

    conversation: Conversation
    turn: Turn
    request: HttpRequest


class Tray:
    """`openings` are made one by one as they are wanted; `ahead`: how many may lie ready."""

    def __init__(self, openings: Iterator[Opening], ahead: int) -> None:
        self._openings = openings
        self._ahead = ahead
        self._ready: deque[Opening] = deque()
        self._taken = asyncio.Event()
        self._empty = False

    def fill(self, count: int) -> None:
        """Lay out so many at once, before the load begins."""
        while len(self._ready) < count and self._lay():
            pass

    def take(self) -> Opening | None:
        """The next one; None where there are no more."""
        self._taken.set()
        if not self._ready:
            self._lay()
        return self._ready.popleft() if self._ready else None

    async def keep_filled(self) -> None:
        """Lay out what was taken, for ever."""
        while not self._empty:
            await self._taken.wait()
            self._taken.clear()
            while len(self._ready) < self._ahead and self._lay():  # noqa: ASYNC110 -- not a wait: the others' turn
                await asyncio.sleep(0)

    def _lay(self) -> bool:
        opening = None if self._empty else next(self._openings, None)
        if opening is None:
            self._empty = True
            return False
        self._ready.append(opening)
        return True
