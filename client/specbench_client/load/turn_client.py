"""Takes the turns of conversations: sends each request, and reads its answer into a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specbench_client.dialects.dialect import Dialect
from specbench_client.load.request import RequestConfig, Turn, build_request
from specbench_client.load.request_record import TurnResult, read_result
from specbench_client.sliced_tasks import CooperativeTask, run_to_completion
from specbench_client.transport.exchange import HttpRequest, Transport, UnparsedExchange


class TurnClient(Protocol):
    """The three steps of a turn, see `HttpTurnClient`; tests replace it."""

    def build_request(self, turn: Turn) -> HttpRequest: ...
    async def exchange(self, request: HttpRequest) -> UnparsedExchange: ...
    def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]: ...


@dataclass(frozen=True, slots=True)
class HttpTurnClient:
    """Takes the turns of a point over HTTP: the transport, dialect and settings that they share."""

    transport: Transport
    dialect: Dialect
    request_config: RequestConfig

    async def take_turn(self, turn: Turn) -> TurnResult:
        """Take the turn and parse its answer at once. Never raises for a failure of the engine or the network."""
        return run_to_completion(self.read_result(turn, await self.exchange(self.build_request(turn))))

    def build_request(self, turn: Turn) -> HttpRequest:
        """Return the encoded request. It does not depend on the time of sending."""
        return build_request(self.request_config, self.dialect, turn)

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """Send the request and receive its answer. Never raises for a failure of the engine or the network."""
        return await self.transport.exchange(request)

    def read_result(self, turn: Turn, unread: UnparsedExchange) -> CooperativeTask[TurnResult]:
        """Parse an answer in slices and return its record, whether it succeeded or failed."""
        return read_result(self.request_config, self.dialect, turn, unread)
