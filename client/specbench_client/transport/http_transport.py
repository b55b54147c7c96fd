"""HTTP/1.1 transport on sockets of its own: the send time is that of the `send` call, arrival times are the kernel's.

Connections are kept, as every OpenAI client keeps them: connecting is then no part of TTFT, and the next request of a
stream is sent the moment its previous answer has ended (`HttpRequest.follow`), so that streams that end together do not
wait for each other. But some servers (llama.cpp) announce keep-alive and close right after an answer, and a request on
its way would be lost. So an ended connection is watched first: once one has stayed open for WATCHED_S, the server keeps
connections, and http:// connections are used again, within HTTP_IDLE_S; once one was closed sooner, it does not.
Until this is known each request over http:// has a connection of its own, which costs one round trip.

Some servers have a thread for each connection, and fewer threads than the load has streams. A kept connection then
takes the thread that another stream waits for. It shows when a request on a kept connection is answered whole before
the first byte of an answer to an earlier request on a new one: no connection of that server is kept from then on, and
each is closed when its answer has ended. An idle one is watched alone, and there are no spare ones over http://.

https:// connections are used again even then, the one that was idle longest first, since a handshake takes long. With
at least one spare connection, a server's close arrives before its connection would be used again.

A server may close an idle connection at any time, also while a request is on its way. If a kept connection ends within
RESENT_WITHIN_S of sending, before any byte of an answer, the request is sent again once, on a new one: using the
connection again was the client's choice, and no request of it is lost to the engine (RFC 9110, 9.2.2). All its times
are those of the second sending, so the delay is the client's own. A connection that ends later was closed by a server
that had the request: it fails, like every one with a byte of an answer, and is never sent twice.

A kept connection on which bytes are waiting is not used again, since no request can be what they answer. The same is
true of bytes that arrive before the server's system has acknowledged any byte of the request: it fails. What a server
sends unasked after that cannot be distinguished from an answer.

`connect_ns` is taken when a connection is requested, kept or new; `sent_ns` when the request is handed to the socket,
after all handshakes and encryption. Latency counts from the intended time, which precedes both. `SocketPoller` reads
the answers; `UnparsedExchange.read` parses them afterwards.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import truncate
from specbench_client.transport.exchange import (
    ConnectionsAhead,
    ConnectionUse,
    HttpExchange,
    HttpRequest,
    UnparsedExchange,
)
from specbench_client.transport.http_connection import HttpConnection, UnparsedResponse
from specbench_client.transport.kept_connections import KeptConnections, pending_events
from specbench_client.transport.kernel_timestamps import SO_TIMESTAMPNS, enable_kernel_timestamps
from specbench_client.transport.limits import (
    CONNECT_TIMEOUT_S,
    DEFAULT_HELD_BYTES_MAX,
    IDLE_TIMEOUT_S,
    LOCAL_SOCKET_ERRORS,
    MAX_ANSWER_BYTES,
    TOTAL_TIMEOUT_S,
    AnswerBudget,
    out_of_sockets_error,
)
from specbench_client.transport.socket_poller import SERVER_CLOSE_GRACE_NS, SocketPoller
from specbench_client.transport.tls_socket import StreamSocket, TlsSocket, client_context

TIMEOUT_CHECK_S = 0.25
"""Interval between two checks for timeouts; a timeout may be late by this much."""
CHECKS_PER_SLICE = 32
"""Connections checked between two polls: after a burst, checking or closing all of a thousand takes a step's time."""

_PORTS = {"http": 80, "https": 443}

SPARES_CHECK_S = 0.25
SPARES_REOPEN_S = 1.0
"""Shortest time between two openings, so that a server which closes idle connections early is not flooded."""


class SocketAddress(NamedTuple):
    """A resolved address to connect to."""

    family: socket.AddressFamily
    sockaddr: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class _Server(NamedTuple):
    """The server of an endpoint and its idle connections."""

    host: str
    address: SocketAddress
    kept: KeptConnections
    tls: bool


class KernelTransport:
    """`async with KernelTransport(...) as transport: await transport.exchange(request)`.

    `connect_timeout_s`: longest time to connect, with the TLS handshake. `idle_timeout_s`: longest silence, from
    sending to the first byte and between two reads. `total_timeout_s`: longest duration of an answer, since one that
    trickles for ever is never silent. `held_bytes_max`: see `AnswerBudget`. `ahead`: connections to open ahead, for
    https:// only. `keeping`: whether each server keeps connections, as far as transports have learned it; updated.
    """

    def __init__(
        self,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        total_timeout_s: float = TOTAL_TIMEOUT_S,
        held_bytes_max: int = DEFAULT_HELD_BYTES_MAX,
        *,
        ahead: ConnectionsAhead | None = None,
        keeping: dict[str, bool] | None = None,
    ) -> None:
        self._keeping = {} if keeping is None else keeping
        self._followed: dict[int, HttpConnection] = {}
        """Requests that were sent as soon as the answer before them had ended, by `id`."""
        self._budget = AnswerBudget(held_bytes_max)
        self._ahead = ahead
        self._connect_timeout_s = connect_timeout_s
        self._idle_ns = int(idle_timeout_s * 1e9)
        self._total_ns = int(total_timeout_s * 1e9)
        self._servers: dict[tuple[str, str], _Server] = {}
        self._tls: ssl.SSLContext | None = None
        self._timestamp_socket: socket.socket | None = None
        self._poller: SocketPoller | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._timestamp_socket = await enable_kernel_timestamps()
        self._poller = SocketPoller(asyncio.get_running_loop(), self._budget)
        self._tasks.append(asyncio.create_task(self._check_timeouts(self._poller)))
        if self._ahead is not None and self._ahead.url.startswith("https:"):
            try:
                await self._open_ahead(self._ahead)
            except BaseException:
                await self._close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._poller is not None:
            self._poller.close()
        for server in self._servers.values():
            server.kept.close()
        if self._timestamp_socket is not None:
            self._timestamp_socket.close()

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """See `Transport.exchange`."""
        connect_ns, use, answer = None, None, None
        try:
            server = await self._server(request.url)
            connect_ns, use = time.monotonic_ns(), ConnectionUse.NEW
            kept = self._followed.pop(id(request), None) or self._send_on_kept(server, request, connect_ns)
            if kept is not None:
                answer = await self._answered(request, server, kept)
                connect_ns, use = time.monotonic_ns(), ConnectionUse.REOPENED
            if answer is None:
                connection = self._new_exchange(server, await self._connect(server), request, connect_ns, use)
                self._poller_here.add(connection)
                answer = await self._answered(request, server, connection)
        except OSError as error:
            if error.errno in LOCAL_SOCKET_ERRORS:
                raise out_of_sockets_error(error) from error
            text = truncate(f"{type(error).__name__}: {error}")
            now_ns = time.monotonic_ns()
            return HttpExchange(
                None, (), None, {}, now_ns, connect_ns, error_class=ErrorClass.REFUSED, error=text, connection=use
            )
        assert answer is not None, "only a request on a kept connection is sent again"
        return answer

    @property
    def _poller_here(self) -> SocketPoller:
        assert self._poller is not None, "the transport is used inside `async with`"
        return self._poller

    def _new_exchange(
        self, server: _Server, sock: StreamSocket, request: HttpRequest, connect_ns: int, use: ConnectionUse
    ) -> HttpConnection:
        wire = sock.encrypt(request.message) if isinstance(sock, TlsSocket) else request.message
        done = asyncio.get_running_loop().create_future()
        connection = HttpConnection(sock, wire, done, connect_ns, use)
        if use is not ConnectionUse.KEPT:
            server.kept.opened(connection)
        if request.follow is not None:
            connection.on_complete = partial(self._follow, server, request.follow)
        return connection

    def _send_on_kept(self, server: _Server, request: HttpRequest, connect_ns: int) -> HttpConnection | None:
        """Send the request on an idle connection; None: there is none that may be used."""
        sock = server.kept.take()
        if sock is None:
            return None
        connection = self._new_exchange(server, sock, request, connect_ns, ConnectionUse.KEPT)
        self._poller_here.add(connection)
        return connection

    def _follow(self, server: _Server, next_request: Callable[[], HttpRequest | None], ended: HttpConnection) -> None:
        """Send the next request on the connection of an answer that has just ended, if the server keeps it."""
        if not (server.kept.keeps and ended.is_reusable) or server.kept.has_overtaken(ended):
            return
        if pending_events([ended.sock]):
            return  # It was closed, or something was sent that nothing requested.
        request = next_request()
        if request is not None:
            with suppress(OSError):  # TLS was ended: then `exchange` sends it on another connection.
                sent = self._new_exchange(server, ended.sock, request, time.monotonic_ns(), ConnectionUse.KEPT)
                self._followed[id(request)] = sent
                self._poller_here.follow(sent)

    async def _answered(
        self, request: HttpRequest, server: _Server, connection: HttpConnection
    ) -> UnparsedResponse | None:
        """Return the answer when it has ended; None if the request must be sent again on a new connection."""
        try:
            await connection.done
        except asyncio.CancelledError:
            self._poller_here.drop(connection)
            self._budget.held -= connection.held_bytes
            raise
        if connection.is_lost or connection.is_unsolicited or server.kept.has_overtaken(connection):
            server.kept.learn(keeps=False)
        if connection.is_reusable and self._poller_here.release(connection):
            server.kept.put(connection.sock, answered=True)
        return None if connection.is_lost else UnparsedResponse(request.url, connection, self._budget)

    async def _server(self, url: str) -> _Server:
        """Return the server of a URL. Raises OSError.

        A host is resolved once: the latency of a name server is not that of the engine.
        """
        parts = urlsplit(url)
        server = self._servers.get((parts.scheme, parts.netloc))
        if server is None:
            host = parts.hostname or ""
            address = await _resolve(host, parts.port or _PORTS[parts.scheme])
            tls = parts.scheme == "https"
            kept = KeptConnections(self._keeping, f"{parts.scheme}://{parts.netloc}", tls=tls)
            server = self._servers.setdefault((parts.scheme, parts.netloc), _Server(host, address, kept, tls))
        return server

    async def _connect(self, server: _Server) -> StreamSocket:
        """Return a new connection: with TLS an established one, else one that is being established. Raises OSError."""
        sock = _new_socket(server.address)
        try:
            if not server.tls:
                with suppress(BlockingIOError):  # EINPROGRESS: the connection is being established.
                    sock.connect(server.address.sockaddr)
                return sock
            self._tls = self._tls or client_context()
            tls_socket = TlsSocket(sock, self._tls, server.host.rstrip("."))
            async with asyncio.timeout(self._connect_timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, server.address.sockaddr)
                await tls_socket.shake_hands()
        except TimeoutError as error:
            sock.close()
            raise TimeoutError(self._not_connected()) from error
        except BaseException:
            sock.close()
            raise
        return tls_socket

    async def _open_ahead(self, ahead: ConnectionsAhead) -> None:
        """Open connections, and start the task that keeps spare ones. If one fails, a request opens its own."""
        with suppress(OSError):
            server = await self._server(ahead.url)
            kept = server.kept

            async def open_one() -> None:
                with suppress(OSError):
                    kept.put(await self._connect(server), answered=False)

            async def open_some(count: int) -> None:
                await asyncio.gather(*(open_one() for _ in range(count)))

            await open_some(ahead.first + ahead.spare)
            self._tasks.append(asyncio.create_task(_keep_spares(kept, open_some, ahead.spare)))

    async def _check_timeouts(self, poller: SocketPoller) -> None:
        while True:
            await asyncio.sleep(TIMEOUT_CHECK_S)
            for server in self._servers.values():
                server.kept.close_unusable()
            for number, connection in enumerate(poller.open_connections(), start=1):
                if connection.sock.fileno() >= 0:  # It may have been closed since the loop began.
                    self._check_timeout(poller, connection, time.monotonic_ns())
                if number % CHECKS_PER_SLICE == 0:
                    await asyncio.sleep(0)

    def _check_timeout(self, poller: SocketPoller, connection: HttpConnection, now_ns: int) -> None:
        """Close the connection if one of its timeouts has passed."""
        if connection.ended_ns is not None:
            if now_ns - connection.ended_ns > SERVER_CLOSE_GRACE_NS:
                poller.drop(connection)
            return
        if connection.lingers_after_done(now_ns):
            poller.drop(connection)
            connection.end_at_done(now_ns)
            return
        overdue = self._overdue(connection, now_ns)
        if overdue is not None:
            poller.drop(connection)
            connection.fail(*overdue, now_ns)
        elif connection.held_bytes > MAX_ANSWER_BYTES:
            poller.give_up(
                connection, ErrorClass.MALFORMED, f"the answer is longer than {MAX_ANSWER_BYTES} bytes", now_ns
            )

    def _overdue(self, connection: HttpConnection, now_ns: int) -> tuple[ErrorClass, str] | None:
        if connection.sent_ns is None:
            is_late = now_ns - connection.started_ns > self._connect_timeout_s * 1e9
            return (ErrorClass.REFUSED, self._not_connected()) if is_late else None
        if now_ns - connection.last_ns > self._idle_ns:
            return ErrorClass.TIMEOUT, f"the engine sent nothing for {self._idle_ns / 1e9:g} s"
        if now_ns - connection.sent_ns > self._total_ns:
            return ErrorClass.TIMEOUT, f"the answer took longer than {self._total_ns / 1e9:g} s"
        return None

    def _not_connected(self) -> str:
        return f"no connection within {self._connect_timeout_s:g} s"


def _new_socket(address: SocketAddress) -> socket.socket:
    """Return a non-blocking socket whose reads are timestamped. Raises OSError."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return sock


async def _resolve(host: str, port: int) -> SocketAddress:
    """Return the first address that accepts a connection, or the first of all if none does. Raises OSError."""
    loop = asyncio.get_running_loop()
    resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [SocketAddress(family, sockaddr) for family, _, _, _, sockaddr in resolved]
    for address in addresses if len(addresses) > 1 else ():
        with socket.socket(address.family, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                await asyncio.wait_for(loop.sock_connect(probe, address.sockaddr), 2.0)
            except OSError:
                continue
            return address
    return addresses[0]


async def _keep_spares(kept: KeptConnections, open_new: Callable[[int], Awaitable[None]], spare: int) -> None:
    """Open connections whenever fewer than `spare` are idle, for example because the server closed them."""
    missing = 0
    while True:
        await asyncio.sleep(SPARES_REOPEN_S if missing else SPARES_CHECK_S)
        missing = max(0, spare - kept.count)
        await open_new(missing)
