"""The stopwatch on aiohttp, for https: times are read in our process (clock `user`), when the event loop hands over.

TLS hides the kernel's stamps: bytes are of use only after decryption, so these times are of the lower grade.

Each request has a connection of its own: llama.cpp's server announces keep-alive and yet closes after a stream, so
that every other request on a kept connection was reset (seen, not supposed), a failure that the engine never had;
repeating a POST on suspicion would be worse. `connect_ns` is read before the name is looked up, `sent_ns` when the
connection stands and the head is handed to the socket; latency counts from the intended time, before both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp

from specbench_client.transport.exchange import Arrival, ErrorClass, Exchange, HttpRequest
from specbench_client.transport.sockets import MAX_ANSWER_BYTES, OURS, out_of_sockets
from specbench_client.transport.status import MAX_ERROR_BYTES, refusal
from specbench_client.transport.words import cut

_READ_BUFFER_BYTES = 1024 * 1024


@dataclass
class _Run:
    """What is known of an exchange so far."""

    connect_ns: int | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)

    def end(self, ended_ns: int, error_class: ErrorClass | None = None, error: str | None = None) -> Exchange:
        return Exchange(
            sent_ns=self.sent_ns,
            arrivals=tuple(self.arrivals),
            status=self.status,
            headers=self.headers,
            ended_ns=ended_ns,
            connect_ns=self.connect_ns,
            first_byte_ns=self.first_byte_ns,
            error_class=error_class,
            error=None if error is None else cut(error),
        )


class AiohttpTransport:
    """`async with AiohttpTransport(...) as transport: await transport.exchange(request)`.

    `idle_timeout_s`: longest silence, from sending to the first byte and between two reads. `limit`: most
    connections, 0 for as many as there are requests.
    """

    def __init__(
        self,
        connect_timeout_s: float = 10.0,
        idle_timeout_s: float = 300.0,
        total_timeout_s: float = 3600.0,
        limit: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock = clock
        self._limit = limit
        self._timeout = aiohttp.ClientTimeout(
            total=total_timeout_s, sock_connect=connect_timeout_s, sock_read=idle_timeout_s
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_start.append(self._note_connecting)
        trace.on_request_headers_sent.append(self._note_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._limit, force_close=True),
            timeout=self._timeout,
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "Accept": "text/event-stream"},
            read_bufsize=_READ_BUFFER_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def exchange(self, request: HttpRequest) -> Exchange:
        """See `Transport.exchange`."""
        run = _Run()
        try:
            await self._perform(request, run)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            _blame_nobody_else(error)
            if run.status in (None, HTTPStatus.OK):
                return run.end(self._clock(), _class_of(error, run), _told(error))
        return self._ended(run)

    async def _perform(self, request: HttpRequest, run: _Run) -> None:
        assert self._session is not None, "the transport is used inside `async with`"
        headers = {"Content-Type": "application/json", **request.headers}
        async with self._session.post(
            request.url, data=request.body, headers=headers, allow_redirects=False, trace_request_ctx=run
        ) as response:
            run.first_byte_ns = self._clock()
            run.status = response.status
            run.headers = {name.lower(): value for name, value in response.headers.items()}
            room = MAX_ANSWER_BYTES if response.status == HTTPStatus.OK else MAX_ERROR_BYTES
            async for data in response.content.iter_any():
                run.arrivals.append(Arrival(self._clock(), data))
                room -= len(data)
                if room < 0:
                    response.close()
                    return

    def _ended(self, run: _Run) -> Exchange:
        """The exchange of an answer that has a status, whole or not."""
        ended_ns = self._clock()
        body = b"".join(arrival.data for arrival in run.arrivals)
        if run.status == HTTPStatus.OK:
            if len(body) <= MAX_ANSWER_BYTES:
                return run.end(ended_ns)
            return run.end(ended_ns, ErrorClass.MALFORMED, f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return run.end(ended_ns, *(refusal(run.status, body) or ()))

    async def _note_connecting(
        self,
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        _start: aiohttp.TraceConnectionCreateStartParams,
    ) -> None:
        run: Any = context.trace_request_ctx
        run.connect_ns = self._clock()

    async def _note_sent(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _sent: aiohttp.TraceRequestHeadersSentParams
    ) -> None:
        run: Any = context.trace_request_ctx
        run.sent_ns = self._clock()


def _blame_nobody_else(error: Exception) -> None:
    """Raise OutOfSockets where it was this machine that failed: a record would put it down to the engine."""
    if isinstance(error, OSError) and error.errno in OURS:
        raise out_of_sockets(error) from error


def _class_of(error: Exception, run: _Run) -> ErrorClass:
    """The one place where aiohttp's errors become ours; the most special first."""
    if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError):
        return ErrorClass.REFUSED
    if isinstance(error, TimeoutError):
        return ErrorClass.TIMEOUT
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | OSError):
        return ErrorClass.RESET if run.sent_ns is not None else ErrorClass.REFUSED
    return ErrorClass.MALFORMED


def _told(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
