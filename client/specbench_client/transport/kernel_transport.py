"""HTTP/1.1 transport on sockets of its own: the send time is that of the `send` call, arrival times are the kernel's.

http:// has one connection for each request and `Connection: close`, so that the server closes first and the client's
ports are free again at once. Without TLS a new connection costs one round trip, and llama.cpp's server announces
keep-alive but closes the connection after a stream. https:// keeps connections: with one for each request, TTFT would
contain a TCP and a TLS handshake, which users of an OpenAI client do not have.

A server may close an idle connection at any time, also while a request is on its way. A request on a kept connection is
sent again, on a new one, if the server's system has not acknowledged any byte of it when the connection ends: then no
program can have read it. A request that was acknowledged may have been processed, so it fails and is never sent twice.

The connection that was idle longest is used first. Some servers (llama.cpp) announce keep-alive and close right after
an answer; with at least one spare connection, such a close arrives before the connection would be used again.

`connect_ns` is taken when a connection is requested, kept or new; `sent_ns` when the request is handed to the socket,
after all handshakes and encryption. Latency counts from the intended time, which precedes both. `SocketPoller` reads
the answers; `UnparsedExchange.read` parses them afterwards.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from specbench_client.errors import BadInput
from specbench_client.transport.error_messages import truncate
from specbench_client.transport.exchange import (
    ConnectionsAhead,
    ConnectionUse,
    ErrorClass,
    HttpExchange,
    HttpRequest,
    UnparsedExchange,
)
from specbench_client.transport.http_connection import HttpConnection, UnparsedResponse
from specbench_client.transport.kernel_timestamps import SO_TIMESTAMPNS, TIMESTAMP_SPACE, enable_kernel_timestamps
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

KEPT_IDLE_S = 300.0
"""How long an idle connection is kept; most servers close it earlier."""
SPARES_CHECK_S = 0.25
SPARES_REOPEN_S = 1.0
"""Shortest time between two openings, so that a server which closes idle connections early is not flooded."""
_READ_BYTES = 64 * 1024


class SocketAddress(NamedTuple):
    """A resolved address to connect to."""

    family: socket.AddressFamily
    sockaddr: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class _Server(NamedTuple):
    """The server of an endpoint. `kept`: its idle connections; None for http, whose connections are not kept."""

    host: str
    address: SocketAddress
    kept: KeptConnections | None


class KernelTransport:
    """`async with KernelTransport(...) as transport: await transport.exchange(request)`.

    `connect_timeout_s`: longest time to connect, with the TLS handshake. `idle_timeout_s`: longest silence, from
    sending to the first byte and between two reads. `total_timeout_s`: longest duration of an answer, since one that
    trickles for ever is never silent. `held_bytes_max`: see `AnswerBudget`. `ahead`: connections to open ahead, for
    https:// only.
    """

    def __init__(
        self,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        total_timeout_s: float = TOTAL_TIMEOUT_S,
        held_bytes_max: int = DEFAULT_HELD_BYTES_MAX,
        ahead: ConnectionsAhead | None = None,
    ) -> None:
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
            if server.kept is not None:
                server.kept.close()
        if self._timestamp_socket is not None:
            self._timestamp_socket.close()

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """See `Transport.exchange`."""
        connect_ns, use = None, None
        try:
            server = await self._server(request.url)
            message = encode_request(request, keep=server.kept is not None)
            connect_ns, use = time.monotonic_ns(), ConnectionUse.NEW
            kept = None if server.kept is None else server.kept.take()
            if kept is not None:
                connection = await self._send(server, kept, message, connect_ns, ConnectionUse.KEPT)
                if not connection.lost_unreceived:
                    return UnparsedResponse(connection, self._budget)
                use = ConnectionUse.REOPENED
            connection = await self._send(server, await self._connect(server), message, connect_ns, use)
        except OSError as error:
            if error.errno in LOCAL_SOCKET_ERRORS:
                raise out_of_sockets_error(error) from error
            text = truncate(f"{type(error).__name__}: {error}")
            now_ns = time.monotonic_ns()
            return HttpExchange(
                None, (), None, {}, now_ns, connect_ns, error_class=ErrorClass.REFUSED, error=text, connection=use
            )
        return UnparsedResponse(connection, self._budget)

    async def _send(
        self, server: _Server, sock: StreamSocket, message: bytes, connect_ns: int, use: ConnectionUse
    ) -> HttpConnection:
        """Send one request, and return its connection when the answer has ended. The socket is kept or closed."""
        assert self._poller is not None, "the transport is used inside `async with`"
        wire = sock.encrypt(message) if isinstance(sock, TlsSocket) else message
        connection = HttpConnection(sock, wire, asyncio.get_running_loop().create_future(), connect_ns, use)
        self._poller.add(connection)
        try:
            await connection.done
        except asyncio.CancelledError:
            self._poller.drop(connection)
            self._budget.held -= connection.held_bytes
            raise
        if server.kept is not None and connection.is_reusable:
            self._poller.release(connection)
            server.kept.put(sock)
        return connection

    async def _server(self, url: str) -> _Server:
        """Return the server of a URL. Raises OSError.

        A host is resolved once: the latency of a name server is not that of the engine.
        """
        parts = urlsplit(url)
        server = self._servers.get((parts.scheme, parts.netloc))
        if server is None:
            host = parts.hostname or ""
            address = await _resolve(host, parts.port or _PORTS[parts.scheme])
            server = _Server(host, address, KeptConnections() if parts.scheme == "https" else None)
            server = self._servers.setdefault((parts.scheme, parts.netloc), server)
        return server

    async def _connect(self, server: _Server) -> StreamSocket:
        """Return a new connection: with TLS an established one, else one that is being established. Raises OSError."""
        sock = _new_socket(server.address)
        try:
            if server.kept is None:
                with suppress(BlockingIOError):  # EINPROGRESS: the connection is being established.
                    sock.connect(server.address.sockaddr)
                return sock
            self._tls = self._tls or client_context()
            tls_socket = TlsSocket(sock, self._tls, server.host)
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
            assert kept is not None, "only connections with TLS are opened ahead"

            async def open_one() -> None:
                with suppress(OSError):
                    kept.put(await self._connect(server))

            async def open_some(count: int) -> None:
                await asyncio.gather(*(open_one() for _ in range(count)))

            await open_some(ahead.first + ahead.spare)
            self._tasks.append(asyncio.create_task(_keep_spares(kept, open_some, ahead.spare)))

    async def _check_timeouts(self, poller: SocketPoller) -> None:
        while True:
            await asyncio.sleep(TIMEOUT_CHECK_S)
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


def encode_request(request: HttpRequest, *, keep: bool) -> bytes:
    """Return the request's bytes. Raises BadInput for a header that would break the framing.

    `keep`: whether the server is asked to keep the connection after its answer.
    """
    parts = urlsplit(request.url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    defaults = {
        "Host": parts.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Content-Length": str(len(request.body)),
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive" if keep else "close",
    }
    given = {name.lower() for name in request.headers}  # Header names are case-insensitive, and each is sent once.
    headers = {**{name: value for name, value in defaults.items() if name.lower() not in given}, **request.headers}
    for name, value in headers.items():
        if any(mark in name + value for mark in "\r\n\0"):
            raise BadInput(f"the header {name!r} contains a line break or a null character: give it as one line")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


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


class _IdleConnection(NamedTuple):
    sock: StreamSocket
    since_ns: int


class KeptConnections:
    """The idle connections to one server."""

    def __init__(self) -> None:
        self._idle: deque[_IdleConnection] = deque()

    def put(self, sock: StreamSocket) -> None:
        """Keep a connection until it is taken."""
        self._idle.append(_IdleConnection(sock, time.monotonic_ns()))

    def take(self) -> StreamSocket | None:
        """Return a connection that the server has not closed; None: there is none."""
        while self._idle:
            connection = self._idle.popleft()
            if _is_usable(connection, _pending_events([connection])):
                return connection.sock
            connection.sock.close()
        return None

    def count_usable(self) -> int:
        """Close all connections that cannot be used again; return the number of the others."""
        events = _pending_events(self._idle)
        kept = deque[_IdleConnection]()
        for connection in self._idle:
            if _is_usable(connection, events):
                kept.append(connection)
            else:
                connection.sock.close()
        self._idle = kept
        return len(kept)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().sock.close()


def _pending_events(connections: Iterable[_IdleConnection]) -> dict[int, int]:
    """Return the file descriptors on which something arrived, and what."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection.sock.fileno(), select.POLLIN | select.POLLRDHUP)
    return dict(poll.poll(0))


def _is_usable(connection: _IdleConnection, events: dict[int, int]) -> bool:
    """Return whether the connection is young enough, and the server has neither closed it nor sent content."""
    if time.monotonic_ns() - connection.since_ns > KEPT_IDLE_S * 1e9:
        return False
    pending = events.get(connection.sock.fileno())
    if pending is None:
        return True
    if pending != select.POLLIN:
        return False
    try:
        connection.sock.recvmsg(_READ_BYTES, TIMESTAMP_SPACE)
    except BlockingIOError:
        return True  # Records without content: session tickets, which follow a handshake.
    except OSError:
        return False
    return False  # Content that nothing requested; or empty: the server ended the TLS session.


async def _keep_spares(kept: KeptConnections, open_new: Callable[[int], Awaitable[None]], spare: int) -> None:
    """Open connections whenever fewer than `spare` are idle, for example because the server closed them."""
    missing = 0
    while True:
        await asyncio.sleep(SPARES_REOPEN_S if missing else SPARES_CHECK_S)
        missing = max(0, spare - kept.count_usable())
        await open_new(missing)
