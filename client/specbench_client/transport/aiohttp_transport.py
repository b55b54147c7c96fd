"""Transport for https:// on aiohttp: times are taken in this process (`TimestampSource.USER`).

Kernel timestamps do not apply to TLS: the bytes become readable only after decryption in this process.

Connections to https:// are kept: with one for each request, TTFT would contain a TCP and a TLS handshake, which users
of an OpenAI client do not have. `kept_connections` describes when a request is sent again. `connect_ns` is taken before
the name is resolved, or when a kept connection is taken; `sent_ns` when the head is handed to the socket. Latency
counts from the intended time, which precedes both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp

from specbench_client.sliced_tasks import CooperativeTask
from specbench_client.transport.error_messages import MAX_ERROR_BODY_BYTES, http_error, truncate
from specbench_client.transport.exchange import (
    CONNECT_TIMEOUT_S,
    DEFAULT_HELD_BYTES_MAX,
    IDLE_TIMEOUT_S,
    LOCAL_SOCKET_ERRORS,
    MAX_ANSWER_BYTES,
    READ_OVERHEAD_BYTES,
    TOTAL_TIMEOUT_S,
    AnswerBudget,
    ConnectionsAhead,
    ConnectionUse,
    ErrorClass,
    HttpExchange,
    HttpRequest,
    ReceivedBytes,
    UnparsedExchange,
    out_of_sockets_error,
)
from specbench_client.transport.kept_connections import (
    KeptConnections,
    KeptSocket,
    keep_spares,
    only_new_connections,
    open_ahead,
)

_READ_BUFFER_BYTES = 1024 * 1024
_KEPT_BYTES = 64 * 1024
_LOST = (ErrorClass.RESET, ErrorClass.REFUSED)
"""How a request fails on a connection that the server has closed; refused, if it noticed before it was sent."""


@dataclass
class _ExchangeState:
    """The state of an exchange in progress."""

    connect_ns: int | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    arrivals: list[ReceivedBytes] = field(default_factory=list)
    held_bytes: int = 0
    """Memory of the arrivals, see READ_OVERHEAD_BYTES."""
    kept: KeptSocket = field(default_factory=KeptSocket)
    connection: ConnectionUse | None = None
    given_up: str | None = None
    """Why the rest of the answer is not read; None: it is read to its end."""

    def drop_most_arrivals(self) -> int:
        """Free the memory of an answer that was given up, except for its beginning; return it."""
        before = self.held_bytes
        self.arrivals = [one._replace(data=one.data[:_KEPT_BYTES]) for one in self.arrivals[:1]]
        self.held_bytes = sum(len(one.data) + READ_OVERHEAD_BYTES for one in self.arrivals)
        return before - self.held_bytes

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
            connection=self.connection,
        )

    def must_be_sent_again(self) -> bool:
        """Return whether the request failed on a kept connection without reaching the server."""
        return self.connection is ConnectionUse.KEPT and self.first_byte_ns is None and self.kept.lost_unreceived()

    def retried(self) -> _ExchangeState:
        """Return the state for sending the request again: only when a connection was first requested is kept."""
        return _ExchangeState(connect_ns=self.connect_ns, connection=ConnectionUse.REOPENED)


@dataclass(frozen=True, slots=True)
class _HeldExchange:
    """An exchange whose answer counts towards the budget until it is read, see `UnparsedExchange`."""

    exchange: HttpExchange
    held_bytes: int
    budget: AnswerBudget

    @property
    def ended_ns(self) -> int:
        return self.exchange.ended_ns

    @property
    def error_class(self) -> ErrorClass | None:
        return self.exchange.error_class

    def read(self) -> CooperativeTask[HttpExchange]:
        self.budget.held -= self.held_bytes
        return self.exchange
        yield


class AiohttpTransport:
    """`async with AiohttpTransport(...) as transport: await transport.exchange(request)`.

    `idle_timeout_s`: longest silence, from sending to the first byte and between two reads. `held_bytes_max`: see
    `AnswerBudget`. `keep`: whether connections are kept. `ahead`: connections to open ahead.
    """

    def __init__(
        self,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        total_timeout_s: float = TOTAL_TIMEOUT_S,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        held_bytes_max: int = DEFAULT_HELD_BYTES_MAX,
        keep: bool = False,
        ahead: ConnectionsAhead | None = None,
    ) -> None:
        self._keep = keep
        self._ahead = ahead
        self._opening: asyncio.Task[None] | None = None
        self._budget = AnswerBudget(held_bytes_max)
        self._clock = clock
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._timeout = aiohttp.ClientTimeout(
            total=total_timeout_s, sock_connect=connect_timeout_s, sock_read=idle_timeout_s
        )
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_start.append(self._note_connecting)
        trace.on_connection_reuseconn.append(self._note_reusing)
        trace.on_request_headers_sent.append(self._note_sent)
        connector = KeptConnections() if self._keep else aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"Accept-Encoding": "identity", "Accept": "text/event-stream"},
            read_bufsize=_READ_BUFFER_BYTES,
        )
        if isinstance(connector, KeptConnections) and self._ahead is not None:
            await self._open_ahead(self._session, connector, self._ahead)
        return self

    async def _open_ahead(
        self, session: aiohttp.ClientSession, connector: KeptConnections, ahead: ConnectionsAhead
    ) -> None:
        try:
            is_kept = await open_ahead(session, ahead, ahead.first + ahead.spare)
        except BaseException:
            await session.close()
            raise
        if is_kept:
            self._opening = asyncio.create_task(keep_spares(session, connector, ahead))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """See `Transport.exchange`."""
        run = _ExchangeState()
        try:
            exchange = await self._exchange(request, run)
            if exchange.error_class in _LOST and run.must_be_sent_again():
                run.kept.release()
                run = run.retried()
                with only_new_connections():
                    exchange = await self._exchange(request, run)
        except BaseException:
            self._budget.held -= run.held_bytes
            raise
        finally:
            run.kept.release()
        return _HeldExchange(exchange, run.held_bytes, self._budget)

    async def _exchange(self, request: HttpRequest, run: _ExchangeState) -> HttpExchange:
        try:
            async with self._silence_limit(run):
                await self._perform(request, run)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            _raise_if_local(error)
            if run.status in (None, HTTPStatus.OK):
                return run.end(self._clock(), _error_class_of(error, run), _describe_error(error))
        return self._ended(run)

    @asynccontextmanager
    async def _silence_limit(self, run: _ExchangeState) -> AsyncIterator[None]:
        """Raise TimeoutError if nothing arrives for two idle timeouts.

        aiohttp's own idle timeout ends with the connection, but its parser may wait for ever for the end of a chunk's
        size after the server has closed the connection.
        """
        loop, interval_s = asyncio.get_running_loop(), self._idle_timeout_s
        arrivals = 0
        timer: asyncio.TimerHandle

        def extend() -> None:
            nonlocal arrivals, timer
            if len(run.arrivals) != arrivals and not limit.expired():
                limit.reschedule(loop.time() + 2 * interval_s)
            arrivals = len(run.arrivals)
            timer = loop.call_later(interval_s, extend)

        timer = loop.call_later(interval_s, extend)
        try:
            async with asyncio.timeout(self._connect_timeout_s + 2 * interval_s) as limit:
                yield
        finally:
            timer.cancel()

    async def _perform(self, request: HttpRequest, run: _ExchangeState) -> None:
        assert self._session is not None, "the transport is used inside `async with`"
        headers = {"Content-Type": "application/json", **request.headers}
        run.kept.watch()
        async with self._session.post(
            request.url, data=request.body, headers=headers, allow_redirects=False, trace_request_ctx=run
        ) as response:
            run.first_byte_ns = self._clock()
            run.status = response.status
            run.headers = {name.lower(): value for name, value in response.headers.items()}
            most = MAX_ANSWER_BYTES if response.status == HTTPStatus.OK else MAX_ERROR_BODY_BYTES
            async for data in response.content.iter_any():
                run.arrivals.append(ReceivedBytes(self._clock(), data))
                size = len(data) + READ_OVERHEAD_BYTES
                run.held_bytes += size
                self._budget.held += size
                if run.held_bytes > most or self._budget.is_exceeded:
                    run.given_up = (
                        f"the answer is longer than {most} bytes" if run.held_bytes > most else self._budget.error()
                    )
                    response.close()
                    self._budget.held -= run.drop_most_arrivals()
                    return

    def _ended(self, run: _ExchangeState) -> HttpExchange:
        """Return the exchange of an answer that has a status, complete or not."""
        ended_ns = self._clock()
        if run.status == HTTPStatus.OK:
            return run.end(ended_ns, ErrorClass.MALFORMED if run.given_up else None, run.given_up)
        body = b"".join(arrival.data for arrival in run.arrivals)
        return run.end(ended_ns, *(http_error(run.status, body, run.headers.get("location")) or ()))

    async def _note_connecting(
        self,
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        _start: aiohttp.TraceConnectionCreateStartParams,
    ) -> None:
        run: Any = context.trace_request_ctx
        if run is not None:  # None: a connection is opened ahead.
            run.connect_ns = run.connect_ns or self._clock()
            run.connection = run.connection if run.connection is ConnectionUse.REOPENED else ConnectionUse.NEW

    async def _note_reusing(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _reuse: aiohttp.TraceConnectionReuseconnParams
    ) -> None:
        run: Any = context.trace_request_ctx
        if run is not None:
            run.connect_ns, run.connection = run.connect_ns or self._clock(), ConnectionUse.KEPT

    async def _note_sent(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _sent: aiohttp.TraceRequestHeadersSentParams
    ) -> None:
        run: Any = context.trace_request_ctx
        if run is not None:
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
