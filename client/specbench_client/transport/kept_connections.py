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
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from specbench_client.transport.kernel_timestamps import TIMESTAMP_SPACE
from specbench_client.transport.tls_socket import StreamSocket

KEPT_IDLE_S = 300.0
"""How long an idle connection is kept; most servers close it earlier."""
SPARES_CHECK_S = 0.25
SPARES_REOPEN_S = 1.0
"""Shortest time between two openings, so that a server which closes idle connections early is not flooded."""
_READ_BYTES = 64 * 1024
_TCP_INFO_BYTES = 128
_BYTES_ACKED_AT = 120
"""Offset of `tcpi_bytes_acked`, 64 bits, in Linux's `struct tcp_info`."""


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


def bytes_acked(sock: StreamSocket) -> int:
    """Return how many bytes the server's system has acknowledged since the connection was opened."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int(struct.unpack_from("=Q", info, _BYTES_ACKED_AT)[0])


async def keep_spares(kept: KeptConnections, open_new: Callable[[int], Awaitable[None]], spare: int) -> None:
    """Open connections whenever fewer than `spare` are idle, for example because the server closed them."""
    missing = 0
    while True:
        await asyncio.sleep(SPARES_REOPEN_S if missing else SPARES_CHECK_S)
        missing = max(0, spare - kept.count_usable())
        await open_new(missing)
