"""Connections that are kept after an answer, or opened before they are needed, for https://.

A server may close an idle connection at any time, also while a request is on its way. A request on a kept connection is
sent again, on a new one, if the server's system has not acknowledged any byte of it when the connection ends: then no
program can have read it. A request that was acknowledged may have been processed, so it fails and is never sent twice.

The connection that was idle longest is used first. Some servers (llama.cpp) announce keep-alive and close right after
an answer; with at least one spare connection, such a close arrives before the connection would be used again.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import aiohttp

from specbench_client.transport.exchange import ConnectionsAhead

KEPT_IDLE_S = 300.0
"""How long an idle connection is kept; most servers close it earlier."""
SPARES_CHECK_S = 0.25
SPARES_REOPEN_S = 1.0
"""Shortest time between two openings, so that a server which closes idle connections early is not flooded."""
_OPEN_TIMEOUT_S = 5.0
_TCP_INFO_BYTES = 128
_BYTES_ACKED_AT = 120
"""Offset of `tcpi_bytes_acked`, 64 bits, in Linux's `struct tcp_info`."""


class KeptSocket:
    """The socket of a kept connection while a request uses it."""

    def __init__(self) -> None:
        self._sock: socket.socket | None = None
        self._acked_before = 0

    def watch(self) -> None:
        """Let the connector call `take` in this task."""
        _USER.set(self)

    def take(self, sock: socket.socket) -> None:
        """Remember how much the server's system had acknowledged before the request."""
        self.release()
        self._sock = sock.dup()  # asyncio closes its own one before the failure is known here.
        self._acked_before = _bytes_acked(self._sock)

    def lost_unreceived(self) -> bool:
        """Return whether the server's system acknowledged nothing of the request."""
        return self._sock is not None and _bytes_acked(self._sock) == self._acked_before

    def release(self) -> None:
        """Close the duplicate of the socket."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


_USER: ContextVar[KeptSocket | None] = ContextVar("_USER", default=None)
_NEW_ONLY: ContextVar[bool] = ContextVar("_NEW_ONLY", default=False)


@contextmanager
def only_new_connections() -> Iterator[None]:
    """Open a new connection for each request in this block, also if there are idle ones."""
    token = _NEW_ONLY.set(True)
    try:
        yield
    finally:
        _NEW_ONLY.reset(token)


class KeptConnections(aiohttp.TCPConnector):
    """A connector that keeps connections, and returns none that the server has closed already."""

    def __init__(self) -> None:
        super().__init__(limit=0, keepalive_timeout=KEPT_IDLE_S)

    def idle(self) -> int:
        """Return the number of usable idle connections."""
        return sum(protocol.is_connected() for kept in self._conns.values() for protocol, _ in kept)

    async def _get(self, key: Any, traces: Any) -> Any:
        if _NEW_ONLY.get():
            return None
        while (connection := await super()._get(key, traces)) is not None:
            sock = None if connection.transport is None else connection.transport.get_extra_info("socket")
            if sock is not None and not _is_closed_by_peer(sock):
                if (user := _USER.get()) is not None:
                    user.take(sock)
                return connection
            connection.close()
        return None


def _is_closed_by_peer(sock: socket.socket) -> bool:
    """Return whether the server has closed the connection, also if the event loop has not noticed it yet."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))


def _bytes_acked(sock: socket.socket) -> int:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int(struct.unpack_from("=Q", info, _BYTES_ACKED_AT)[0])


async def open_ahead(session: aiohttp.ClientSession, ahead: ConnectionsAhead, count: int) -> bool:
    """Open connections, and return whether the server keeps them.

    A failure only means that requests open their own.
    """
    return all(await asyncio.gather(*(_open_one(session, ahead) for _ in range(count))))


async def _open_one(session: aiohttp.ClientSession, ahead: ConnectionsAhead) -> bool:
    """Open one connection, and return False if its answer announces that it is not kept."""
    with only_new_connections(), suppress(aiohttp.ClientError, OSError):
        timeout = aiohttp.ClientTimeout(total=_OPEN_TIMEOUT_S)
        async with session.get(ahead.url, headers=ahead.headers, timeout=timeout, allow_redirects=False) as response:
            await response.read()
            is_kept = response.version == aiohttp.HttpVersion11
            return is_kept and response.headers.get("Connection", "").lower() != "close"
    return True


async def keep_spares(session: aiohttp.ClientSession, connector: KeptConnections, ahead: ConnectionsAhead) -> None:
    """Open connections whenever fewer than the spare ones are idle, for example because the server closed them.

    Returns if the server keeps none: opening more would only be load.
    """
    is_kept, missing = True, 0
    while is_kept:
        await asyncio.sleep(SPARES_REOPEN_S if missing else SPARES_CHECK_S)
        missing = max(0, ahead.spare - connector.idle())
        is_kept = await open_ahead(session, ahead, missing)
