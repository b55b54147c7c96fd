"""The stopwatch on sockets of our own: sent when `send` is called, arrived when the kernel says so.

Plain HTTP/1.1, a connection a request (see `aiohttp_transport` for why), announced by `Connection: close`, so that the
server closes first and our ports are free again at once. What arrives is read by the `station`, and parsed by whoever
reads the answer, afterwards.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from specbench_client.errors import BadInput
from specbench_client.transport.exchange import ErrorClass, Exchange, HttpRequest, Unread
from specbench_client.transport.kernel_clock import SO_TIMESTAMPNS, keep_stamping
from specbench_client.transport.link import Link, LinkUnread
from specbench_client.transport.sockets import MAX_ANSWER_BYTES, OURS, out_of_sockets
from specbench_client.transport.station import CLOSING_NS, READ_BYTES, Station
from specbench_client.transport.words import cut

SWEEP_S = 0.25
"""How often silence is looked for: by so much may a timeout come late."""
HTTP_PORT = 80


class Address(NamedTuple):
    """Where to connect to."""

    family: socket.AddressFamily
    sockaddr: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


class KernelTransport:
    """`async with KernelTransport(...) as transport: await transport.exchange(request)`. For http:// alone.

    `idle_timeout_s`: longest silence, from sending to the first byte and between two reads. `total_timeout_s`: longest
    answer: one that trickles for ever is not silent.
    """

    def __init__(
        self,
        connect_timeout_s: float = 10.0,
        idle_timeout_s: float = 300.0,
        total_timeout_s: float = 3600.0,
    ) -> None:
        self._connect_ns = int(connect_timeout_s * 1e9)
        self._idle_ns = int(idle_timeout_s * 1e9)
        self._total_ns = int(total_timeout_s * 1e9)
        self._addresses: dict[str, Address] = {}
        self._keeper: socket.socket | None = None
        self._station: Station | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keeper = await keep_stamping()
        self._station = Station(asyncio.get_running_loop())
        self._sweeper = asyncio.create_task(self._sweep_on(self._station))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        if self._station is not None:
            self._station.close()
        if self._keeper is not None:
            self._keeper.close()

    async def exchange(self, request: HttpRequest) -> Unread:
        """See `Transport.exchange`."""
        assert self._station is not None, "the transport is used inside `async with`"
        connect_ns = None
        try:
            address, message = await self._address(request.url), wire_of(request)
            connect_ns = time.monotonic_ns()
            connection = _connecting(address)
        except OSError as error:
            if error.errno in OURS:
                raise out_of_sockets(error) from error
            words = cut(f"{type(error).__name__}: {error}")
            now_ns = time.monotonic_ns()
            return Exchange(None, (), None, {}, now_ns, connect_ns, error_class=ErrorClass.REFUSED, error=words)
        loop = asyncio.get_running_loop()
        link = Link(connection, message, loop.create_future(), connect_ns)
        self._station.add(link)
        try:
            await link.done
        except asyncio.CancelledError:
            self._station.drop(link)
            raise
        return LinkUnread(link)

    async def _address(self, url: str) -> Address:
        """Resolved once: a name server's time is no latency of the engine. Raises OSError."""
        parts = urlsplit(url)
        found = self._addresses.get(parts.netloc)
        if found is None:
            found = await _resolved(parts.hostname or "", parts.port or HTTP_PORT)
            self._addresses[parts.netloc] = found
        return found

    async def _sweep_on(self, station: Station) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now_ns = time.monotonic_ns()
            for link in station.open_links():
                self._sweep(station, link, now_ns)

    def _sweep(self, station: Station, link: Link, now_ns: int) -> None:
        """Give up what has been silent for too long."""
        if link.ended_ns is not None:
            if now_ns - link.ended_ns > CLOSING_NS:
                station.drop(link)
            return
        if link.lingers(now_ns):
            station.drop(link)
            link.end_at_done(now_ns)
            return
        overdue = self._overdue(link, now_ns)
        if overdue is not None:
            station.drop(link)
            link.fail(*overdue, now_ns)

    def _overdue(self, link: Link, now_ns: int) -> tuple[ErrorClass, str] | None:
        if link.sent_ns is None:
            late = now_ns - link.started_ns > self._connect_ns
            return (ErrorClass.REFUSED, f"no connection within {self._connect_ns / 1e9:g} s") if late else None
        if now_ns - link.last_ns > self._idle_ns:
            return ErrorClass.TIMEOUT, f"nothing came for {self._idle_ns / 1e9:g} s"
        if now_ns - link.sent_ns > self._total_ns:
            return ErrorClass.TIMEOUT, f"the answer took longer than {self._total_ns / 1e9:g} s"
        if len(link.datas) * READ_BYTES > MAX_ANSWER_BYTES and link.size() > MAX_ANSWER_BYTES:
            return ErrorClass.MALFORMED, f"the answer is longer than {MAX_ANSWER_BYTES} bytes"
        return None


def wire_of(request: HttpRequest) -> bytes:
    """The request as it goes out. Raises BadInput for a header that would break the framing."""
    parts = urlsplit(request.url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    ours = {
        "Host": parts.netloc.rpartition("@")[2],
        "Content-Type": "application/json",
        "Content-Length": str(len(request.body)),
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    theirs = {name.lower() for name in request.headers}  # a name may be written in any case, and is sent once
    kept = {name: value for name, value in ours.items() if name.lower() not in theirs}
    headers = {**kept, **request.headers}
    for name, value in headers.items():
        if any(mark in name + value for mark in "\r\n\0"):
            raise BadInput(f"the header {name!r} holds a line break: headers are single lines")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def _connecting(address: Address) -> socket.socket:
    """A socket on its way. Raises OSError."""
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        with suppress(BlockingIOError):  # EINPROGRESS: on its way
            connection.connect(address.sockaddr)
    except OSError:
        connection.close()
        raise
    return connection


async def _resolved(host: str, port: int) -> Address:
    """The first address that takes a connection; the first of all where none does. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
    for address in addresses if len(addresses) > 1 else ():
        with socket.socket(address.family, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                await asyncio.wait_for(loop.sock_connect(probe, address.sockaddr), 2.0)
            except OSError:
                continue
            return address
    return addresses[0]
