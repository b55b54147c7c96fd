"""Transport for https:// on aiohttp: times are taken in this process (`TimestampSource.USER`).

Kernel timestamps do not apply to TLS: the bytes become readable only after decryption in this process.

Each request has its own connection. llama.cpp's server announces keep-alive but closes the connection after a
stream, so on reused connections every other request was observed to be reset, a failure that the engine never had.
Retrying a POST would be worse. `connect_ns` is taken before the name is resolved, `sent_ns` when the connection is
established and the head is handed to the socket; latency counts from the intended time, which precedes both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp

from specbench_client.transport.error_messages import MAX_ERROR_BODY_BYTES, http_error, truncate
from specbench_client.transport.exchange import (
    CONNECT_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    LOCAL_SOCKET_ERRORS,
    MAX_ANSWER_BYTES,
    TOTAL_TIMEOUT_S,
    ErrorClass,
    HttpExchange,
    HttpRequest,
    ReceivedBytes,
    out_of_sockets_error,
)

_READ_BUFFER_BYTES = 1024 * 1024


@dataclass
class _ExchangeState:
    """The state of an exchange in progress."""

    connect_ns: int | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    arrivals: list[ReceivedBytes] = field(default_factory=list)

    def end(self, ended_ns: int, error_class: ErrorClass | None = None, error: str | None = None) -> HttpExchange:
        return HttpExchange(
            sent_ns=self.sent_ns,
            arrivals=tuple(self.arrivals),
            status=self.status,
            headers=self.headers,
            ended_ns=ended_ns,
            connect_ns=self.connect_ns,
            first_byte_ns=self.first_byte_ns,
            error_class=error_class,
            error=None if error is None else truncate(error),
        )


class AiohttpTransport:
    """`async with AiohttpTransport(...) as transport: await transport.exchange(request)`.

    `idle_timeout_s`: longest silence, from sending to the first byte and between two reads. `limit`: maximum number
    of connections; 0: no limit.
    """

    def __init__(
        self,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        total_timeout_s: float = TOTAL_TIMEOUT_S,
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

    async def exchange(self, request: HttpRequest) -> HttpExchange:
        """See `Transport.exchange`."""
        run = _ExchangeState()
        try:
            await self._perform(request, run)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            _raise_if_local(error)
            if run.status in (None, HTTPStatus.OK):
                return run.end(self._clock(), _error_class_of(error, run), _describe_error(error))
        return self._ended(run)

    async def _perform(self, request: HttpRequest, run: _ExchangeState) -> None:
        assert self._session is not None, "the transport is used inside `async with`"
        headers = {"Content-Type": "application/json", **request.headers}
        async with self._session.post(
            request.url, data=request.body, headers=headers, allow_redirects=False, trace_request_ctx=run
        ) as response:
            run.first_byte_ns = self._clock()
            run.status = response.status
            run.headers = {name.lower(): value for name, value in response.headers.items()}
            remaining = MAX_ANSWER_BYTES if response.status == HTTPStatus.OK else MAX_ERROR_BODY_BYTES
            async for data in response.content.iter_any():
                run.arrivals.append(ReceivedBytes(self._clock(), data))
                remaining -= len(data)
                if remaining < 0:
                    response.close()
                    return

    def _ended(self, run: _ExchangeState) -> HttpExchange:
        """Return the exchange of an answer that has a status, complete or not."""
        ended_ns = self._clock()
        body = b"".join(arrival.data for arrival in run.arrivals)
        if run.status == HTTPStatus.OK:
            if len(body) <= MAX_ANSWER_BYTES:
                return run.end(ended_ns)
            return run.end(ended_ns, ErrorClass.MALFORMED, f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return run.end(ended_ns, *(http_error(run.status, body, run.headers.get("location")) or ()))

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


def _raise_if_local(error: Exception) -> None:
    """Raise OutOfSockets if this machine caused the error: a record would blame the engine for it."""
    if isinstance(error, OSError) and error.errno in LOCAL_SOCKET_ERRORS:
        raise out_of_sockets_error(error) from error


def _error_class_of(error: Exception, run: _ExchangeState) -> ErrorClass:
    """Return the error class of an aiohttp error; the most specific classes are checked first."""
    if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError):
        return ErrorClass.REFUSED
    if isinstance(error, TimeoutError):
        return ErrorClass.TIMEOUT
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | OSError):
        return ErrorClass.RESET if run.sent_ns is not None else ErrorClass.REFUSED
    return ErrorClass.MALFORMED


def _describe_error(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
