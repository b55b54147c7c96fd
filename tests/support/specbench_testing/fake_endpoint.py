"""A fake engine with a tick clock: answers requests one by one and records what is prepared, sent and read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from specbench_client.cooperative_tasks import CooperativeTask
from specbench_client.load.turns import Turn, TurnClient, TurnResult
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpExchange, HttpRequest, UnparsedExchange
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.conversation_turns import failure, result_of, row
from specbench_testing.load_loops import LoopDriver

Exchange = Callable[[HttpRequest], Awaitable[UnparsedExchange]]


class FakeEndpoint(TurnClient):
    """Answers one request per clock tick; records what is prepared, sent and read.

    `around`: what happens around an exchange, given the request and the endpoint's own exchange.
    """

    def __init__(self, around: Callable[[HttpRequest, Exchange], Awaitable[UnparsedExchange]] | None = None) -> None:
        self._around = around
        self.prepared: list[Turn] = []
        self.sent: list[str] = []
        self.taken: list[Turn] = []
        self.ticks = count(1)
        self.failing: dict[int, ErrorClass] = {}  # the n-th request sent → its error class
        self.driver = LoopDriver(self, self.clock)

    def clock(self) -> int:
        return next(self.ticks)

    def build_request(self, turn: Turn) -> HttpRequest:
        self.prepared.append(turn)
        return HttpRequest(turn.conversation.id, b"")

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        return await (self._around(request, self._answer) if self._around else self._answer(request))

    async def _answer(self, request: HttpRequest) -> UnparsedExchange:
        number = len(self.sent)
        self.sent.append(request.url)
        await asyncio.sleep(0)
        return failure(self.clock(), self.failing.get(number))

    def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]:
        assert isinstance(unread, HttpExchange)
        self.taken.append(turn)
        yield
        error_class = unread.error_class
        return result_of(turn, unread.ended_ns, None if error_class else f"re: {turn.conversation.id}", error_class)

    def phases(self) -> dict[str, str]:
        return {record.prompt_id: record.phase for record in self.driver.records}


def rows(number: int) -> list[Prompt]:
    """Return `number` prompts of one turn: p0, p1, …"""
    return [row(f"p{index}") for index in range(number)]
