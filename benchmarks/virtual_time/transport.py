"""A transport without sockets: passes request bytes to the engine's dialect and returns its bytes with timestamps."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from specbench_client.openai_server_formats import RejectedRequest
from specbench_client.simulator.dialect import CHAT_PATH, ResponseFormat, ServerDialect
from specbench_client.simulator.engine import SimulatedEngine, TokenStream
from specbench_client.simulator.requests import ReceivedRequest as Incoming
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import http_error
from specbench_client.transport.exchange import HttpExchange, HttpRequest, TimestampSource
from specbench_client.transport.exchange import ReceivedBytes as Incame
from virtual_time.clock import BEGINNING_NS, NS_PER_S, VirtualClock
from virtual_time.noise import Network
from virtual_time.response import TransportFaults, VirtualResponse


@dataclass
class VirtualTransport:
    """See `Transport`. Failures are the same as on a socket."""

    engine: SimulatedEngine
    dialect: ServerDialect
    clock: VirtualClock
    network: Network
    between: TransportFaults
    arrived: int = 0
    answered: int = 0
    served: dict[str, TokenStream] = field(default_factory=dict)
    """The requests in the engine, by their ids."""

    async def exchange(self, request: HttpRequest) -> HttpExchange:
        """Send a request and return the exchange; failures of the engine are part of it and never raised."""
        await asyncio.sleep(self.between.send_delay_ns(self.clock() - BEGINNING_NS) / NS_PER_S)
        connect_ns = self.clock()
        await self._travel()
        sent_ns = self.clock()
        await self._travel()
        try:
            stream, wire = self._submitted(request)
        except RejectedRequest as refused:
            return await self._refused(refused, connect_ns, sent_ns)
        answer = VirtualResponse(stream, wire, self.engine.config.faults, self.clock, self.network, self.between)
        failed = await answer.come()
        await asyncio.sleep(max(0, answer.ended_ns - self.clock()) / NS_PER_S)
        self._count(stream, failed)
        first_ns = answer.arrivals[0].ns if answer.arrivals else None
        arrivals, ended_ns = tuple(answer.arrivals), answer.ended_ns
        error = None if failed is None else str(failed)
        return HttpExchange(
            sent_ns, arrivals, 200, {}, ended_ns, connect_ns, first_ns, TimestampSource.KERNEL, failed, error
        )

    def _submitted(self, request: HttpRequest) -> tuple[TokenStream, ResponseFormat]:
        self.arrived += 1
        chat = urlsplit(request.url).path == CHAT_PATH
        ask = self.dialect.read(
            Incoming(chat, self._rewritten(request.body), request.headers["X-Request-Id"], self.clock())
        )
        if self.engine.config.faults.refuses(self.engine.config.seed, self.arrived):
            raise RejectedRequest("EngineCore encountered an issue.", HTTPStatus.INTERNAL_SERVER_ERROR)
        stream = self.served[request.headers["X-Request-Id"]] = self.engine.submit(ask)
        return stream, self.dialect.wire(ask)

    def _rewritten(self, body: bytes) -> bytes:
        """Add the gateway's text to the first message of a chat."""
        if not self.between.preamble:
            return body
        request_body = json.loads(body)
        first = request_body["messages"][0]
        first["content"] = f"{self.between.preamble} {first['content']}"
        return json.dumps(request_body).encode()

    async def _refused(self, refused: RejectedRequest, connect_ns: int, sent_ns: int) -> HttpExchange:
        body = json.dumps(self.dialect.error(refused)).encode()
        await self._travel()
        ns, failure = self.clock(), http_error(refused.status, body)
        assert failure is not None, "an engine's rejection has an HTTP error status"
        return HttpExchange(
            sent_ns, (Incame(ns, body),), refused.status, {}, ns, connect_ns, ns, TimestampSource.KERNEL, *failure
        )

    def _count(self, stream: TokenStream, failed: ErrorClass | None) -> None:
        if failed is not None:
            self.engine.cancel(stream)
            return
        self.answered += 1
        if self.engine.config.faults.restarts_counters(self.answered):
            self.engine.restart_counters()

    async def _travel(self) -> None:
        await asyncio.sleep(self.network.delay_ns() / NS_PER_S)
