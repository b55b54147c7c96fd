"""Connections that are kept after an answer: which are used again, and whether the server keeps them at all."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from specbench_client.transport.exchange import ConnectionUse
from specbench_client.transport.http_connection import HttpConnection
from specbench_client.transport.kernel_timestamps import TIMESTAMP_SPACE
from specbench_client.transport.tls_socket import StreamSocket

KEPT_IDLE_S = 300.0
"""How long an idle https connection is kept; most servers close it earlier."""
HTTP_IDLE_S = 1.0
"""The same for http: shorter than the idle timeouts of servers, so that no close crosses a request."""
WATCHED_S = 0.1
"""How long a connection must have stayed open after its answer to show that the server keeps connections."""
_READ_BYTES = 64 * 1024


class _IdleConnection(NamedTuple):
    """`answered`: whether the server has answered a request on it, and not only accepted it."""

    sock: StreamSocket
    since_ns: int
    answered: bool


class KeptConnections:
    """The idle connections to one server, and whether it keeps them open after an answer.

    `keeping`: what is known of all servers, by `name`; updated.
    """

    def __init__(self, keeping: dict[str, bool], name: str, *, tls: bool) -> None:
        self._keeping = keeping
        self._name = name
        self._tls = tls
        self._idle: deque[_IdleConnection] = deque()
        self._waiting: deque[HttpConnection] = deque()
        """New connections in the order of sending. The first ones may have been answered meanwhile."""

    @property
    def keeps(self) -> bool | None:
        """Whether the server keeps connections open after its answers; None: not known yet."""
        return self._keeping.get(self._name)

    def learn(self, *, keeps: bool) -> None:
        """Note what the server did once. One connection that it closed outweighs all that it kept."""
        self._keeping[self._name] = keeps and self.keeps is not False
        if not keeps:
            self._waiting.clear()

    def opened(self, connection: HttpConnection) -> None:
        """Note a request on a new connection, unless connections are not kept anyway."""
        if self.keeps is not False:
            self._waiting.append(connection)

    def has_overtaken(self, ended: HttpConnection) -> bool:
        """Return whether an answer on a kept connection ended while an earlier request on a new one got no byte."""
        while self._waiting and (self._waiting[0].datas or self._waiting[0].ended_ns is not None):
            self._waiting.popleft()
        first_ns = self._waiting[0].sent_ns if self._waiting else None
        is_earlier = first_ns is not None and ended.sent_ns is not None and first_ns < ended.sent_ns
        return is_earlier and ended.use is ConnectionUse.KEPT

    def put(self, sock: StreamSocket, *, answered: bool) -> None:
        """Keep a connection until it is taken. Until it is known whether the server keeps http, one is watched.

        Any other is closed: it would take the thread of another in vain.
        """
        if self._tls or self.keeps or (self.keeps is None and not self._idle):
            self._idle.append(_IdleConnection(sock, time.monotonic_ns(), answered))
        else:
            sock.close()

    def take(self) -> StreamSocket | None:
        """Return a connection that the server has not closed; None: there is none, or http is still watched."""
        while self._idle and (self._tls or self.keeps):
            connection = self._idle.popleft()
            if self._is_usable(connection, pending_events([connection.sock])):
                return connection.sock
            connection.sock.close()
        return None

    @property
    def count(self) -> int:
        """Number of idle connections, including those that cannot be used again and are not closed yet."""
        return len(self._idle)

    def close_unusable(self) -> None:
        """Close all connections that cannot be used again."""
        events = pending_events([connection.sock for connection in self._idle])
        kept = deque[_IdleConnection]()
        for connection in self._idle:
            if self._is_usable(connection, events):
                kept.append(connection)
            else:
                connection.sock.close()
        self._idle = kept

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().sock.close()

    def _is_usable(self, connection: _IdleConnection, events: dict[int, int]) -> bool:
        """Return whether the connection is young enough and open, and learn from it whether the server keeps it."""
        idle_s = (time.monotonic_ns() - connection.since_ns) / 1e9
        is_open = _is_open(connection.sock, events)
        if connection.answered and (idle_s >= WATCHED_S if is_open else idle_s < HTTP_IDLE_S):
            self.learn(keeps=is_open)
        return is_open and idle_s <= (KEPT_IDLE_S if self._tls else HTTP_IDLE_S)


def pending_events(socks: Iterable[StreamSocket]) -> dict[int, int]:
    """Return the file descriptors on which something arrived, and what."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock.fileno(), select.POLLIN | select.POLLRDHUP)
    return dict(poll.poll(0))


def _is_open(sock: StreamSocket, events: dict[int, int]) -> bool:
    """Return whether the server has neither closed the connection nor sent content."""
    pending = events.get(sock.fileno())
    if pending is None:
        return True
    if pending != select.POLLIN:
        return False
    try:
        sock.recvmsg(_READ_BYTES, TIMESTAMP_SPACE)
    except BlockingIOError:
        return True  # Records without content: session tickets, which follow a handshake.
    except OSError:
        return False
    return False  # Content that nothing requested; or empty: the server ended the TLS session.
