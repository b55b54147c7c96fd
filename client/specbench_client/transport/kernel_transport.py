"""Transport for http:// on plain sockets: the send time is that of the `send` call, arrival times are the kernel's.

HTTP/1.1 with one connection for each request and `Connection: close`, so that the server closes first and the client's
ports are free again at once. Connections are not kept: without TLS a new one costs one round trip, and llama.cpp's
server announces keep-alive but closes the connection after a stream. `SocketPoller` reads the answers;
`UnparsedExchange.read` parses them afterwards. `open_transport` chooses between this transport and the one for https://.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from specbench_client.errors import BadInput
from specbench_client.transport.error_messages import truncate
from specbench_client.transport.exchange import (
    CONNECT_TIMEOUT_S,
    DEFAULT_HELD_BYTES_MAX,
    IDLE_TIMEOUT_S,
    LOCAL_SOCKET_ERRORS,
    MAX_ANSWER_BYTES,
    TOTAL_TIMEOUT_S,
    AnswerBudget,
    ConnectionsAhead,
    ConnectionUse,
    ErrorClass,
    HttpExchange,
    HttpRequest,
    Transport,
    UnparsedExchange,
    out_of_sockets_error,
)
from specbench_client.transport.http_connection import HttpConnection, UnparsedResponse
from specbench_client.transport.kernel_timestamps import SO_TIMESTAMPNS, enable_kernel_timestamps
from specbench_client.transport.socket_poller import SERVER_CLOSE_GRACE_NS, SocketPoller

TIMEOUT_CHECK_S = 0.25
"""Interval between two checks for timeouts; a timeout may be late by this much."""
CHECKS_PER_SLICE = 32
"""Connections checked between two polls: after a burst, checking or closing all of a thousand takes a step's time."""

HTTP_PORT = 80


def open_transport(
    endpoint: str, held_bytes_max: int = DEFAULT_HELD_BYTES_MAX, ahead: ConnectionsAhead | None = None
) -> AbstractAsyncContextManager[Transport]:
    """Return a transport with kernel timestamps for http://, and one with timestamps of this process for https://.

    `held_bytes_max`: see `AnswerBudget`. `ahead`: connections to open ahead, for https:// only.
    """
    if not endpoint.startswith("https://"):
        return KernelTransport(held_bytes_max=held_bytes_max)
    from specbench_client.transport.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 -- rarely needed

    return AiohttpTransport(held_bytes_max=held_bytes_max, keep=True, ahead=ahead)


class SocketAddress(NamedTuple):
    """A resolved address to connect to."""

    family: socket.AddressFamily
    sockaddr: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class KernelTransport:
    """`async with KernelTransport(...) as transport: await transport.exchange(request)`. Supports http:// only.

    `idle_timeout_s`: longest silence, from sending to the first byte and between two reads. `total_timeout_s`: longest
    duration of an answer, since one that trickles for ever is never silent. `held_bytes_max`: see `AnswerBudget`.
    """

    def __init__(
        self,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        total_timeout_s: float = TOTAL_TIMEOUT_S,
        held_bytes_max: int = DEFAULT_HELD_BYTES_MAX,
    ) -> None:
        self._budget = AnswerBudget(held_bytes_max)
        self._connect_ns = int(connect_timeout_s * 1e9)
        self._idle_ns = int(idle_timeout_s * 1e9)
        self._total_ns = int(total_timeout_s * 1e9)
        self._addresses: dict[str, SocketAddress] = {}
        self._timestamp_socket: socket.socket | None = None
        self._poller: SocketPoller | None = None
        self._timeout_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._timestamp_socket = await enable_kernel_timestamps()
        self._poller = SocketPoller(asyncio.get_running_loop(), self._budget)
        self._timeout_task = asyncio.create_task(self._check_timeouts(self._poller))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timeout_task is not None:
            self._timeout_task.cancel()
            await asyncio.gather(self._timeout_task, return_exceptions=True)
        if self._poller is not None:
            self._poller.close()
        if self._timestamp_socket is not None:
            self._timestamp_socket.close()

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """See `Transport.exchange`."""
        assert self._poller is not None, "the transport is used inside `async with`"
        connect_ns = None
        try:
            address, message = await self._address(request.url), encode_request(request)
            connect_ns = time.monotonic_ns()
            sock = _start_connecting(address)
        except OSError as error:
            if error.errno in LOCAL_SOCKET_ERRORS:
                raise out_of_sockets_error(error) from error
            text = truncate(f"{type(error).__name__}: {error}")
            now_ns = time.monotonic_ns()
            used = None if connect_ns is None else ConnectionUse.NEW
            return HttpExchange(
                None, (), None, {}, now_ns, connect_ns, error_class=ErrorClass.REFUSED, error=text, connection=used
            )
        loop = asyncio.get_running_loop()
        connection = HttpConnection(sock, message, loop.create_future(), connect_ns)
        self._poller.add(connection)
        try:
            await connection.done
        except asyncio.CancelledError:
            self._poller.drop(connection)
            self._budget.held -= connection.held_bytes
            raise
        return UnparsedResponse(connection, self._budget)

    async def _address(self, url: str) -> SocketAddress:
        """Return the address of a URL. Raises OSError.

        A host is resolved once: the latency of a name server is not that of the engine.
        """
        parts = urlsplit(url)
        address = self._addresses.get(parts.netloc)
        if address is None:
            address = await _resolve(parts.hostname or "", parts.port or HTTP_PORT)
            self._addresses[parts.netloc] = address
        return address

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
            is_late = now_ns - connection.started_ns > self._connect_ns
            return (ErrorClass.REFUSED, f"no connection within {self._connect_ns / 1e9:g} s") if is_late else None
        if now_ns - connection.last_ns > self._idle_ns:
            return ErrorClass.TIMEOUT, f"the engine sent nothing for {self._idle_ns / 1e9:g} s"
        if now_ns - connection.sent_ns > self._total_ns:
            return ErrorClass.TIMEOUT, f"the answer took longer than {self._total_ns / 1e9:g} s"
        return None


def encode_request(request: HttpRequest) -> bytes:
    """Return the request's bytes. Raises BadInput for a header that would break the framing."""
    parts = urlsplit(request.url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    defaults = {
        "Host": parts.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Content-Length": str(len(request.body)),
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    given = {name.lower() for name in request.headers}  # Header names are case-insensitive, and each is sent once.
    headers = {**{name: value for name, value in defaults.items() if name.lower() not in given}, **request.headers}
    for name, value in headers.items():
        if any(mark in name + value for mark in "\r\n\0"):
            raise BadInput(f"the header {name!r} contains a line break or a null character: give it as one line")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def _start_connecting(address: SocketAddress) -> socket.socket:
    """Return a socket that is being connected. Raises OSError."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with suppress(BlockingIOError):  # EINPROGRESS: the connection is being established.
            sock.connect(address.sockaddr)
    except OSError:
        sock.close()
        raise
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
