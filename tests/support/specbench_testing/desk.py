"""An engine of clock ticks: answers requests one after the other, and keeps what was prepared, sent and read."""

from __future__ import annotations

import asyncio
from itertools import count

from specbench_client.load.turns import Turn, TurnResult
from specbench_client.slices import Slices
from specbench_client.transport.exchange import ErrorClass, Exchange, HttpRequest, Unread
from specbench_testing.loops import Driver
from specbench_testing.turns import Row, failure, result_of, row


class Desk:
    """Answers requests one clock tick after the other; keeps what was prepared, sent and read."""

    def __init__(self) -> None:
        self.prepared: list[Turn] = []
        self.sent: list[str] = []
        self.taken: list[Turn] = []
        self.ticks = count(1)
        self.failing: dict[int, ErrorClass] = {}  # the n-th request sent → its error class
        self.driver = Driver(self, self.clock)

    def clock(self) -> int:
        return next(self.ticks)

    def prepare(self, turn: Turn) -> HttpRequest:
        self.prepared.append(turn)
        return HttpRequest(turn.conversation_id, b"")

    async def exchange(self, request: HttpRequest) -> Unread:
        number = len(self.sent)
        self.sent.append(request.url)
        await asyncio.sleep(0)
        return failure(self.clock(), self.failing.get(number))

    def reading(self, turn: Turn, unread: Unread) -> Slices[TurnResult]:
        assert isinstance(unread, Exchange)
        self.taken.append(turn)
        yield
        error_class = unread.error_class
        return result_of(turn, unread.ended_ns, None if error_class else f"re: {turn.conversation_id}", error_class)

    def phases(self) -> dict[str, str]:
        return {record.prompt_id: record.phase for record in self.driver.records}


def rows(number: int) -> list[Row]:
    """So many prompts of one turn: p0, p1, …"""
    return [row(f"p{index}") for index in range(number)]
