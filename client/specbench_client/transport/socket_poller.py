"""Reads all open connections of one event loop in one tight loop.

The connections have an epoll instance of their own, whose file descriptor asyncio waits for: when any socket is
readable, the event loop calls `_poll` once, and it reads every ready socket without a callback for each. This path
makes one system call for each read and parses nothing. The kernel has timestamped the bytes already, so a late pass
does not change a time; it can only make one read coalesce two sends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import sys
import time

from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.http_connection import EMPTY_LINE, HttpConnection
from specbench_client.transport.kernel_timestamps import TIMESTAMP_SPACE, KernelClock, PollPass
from specbench_client.transport.limits import READ_OVERHEAD_BYTES, AnswerBudget

READ_BYTES = 65_536
MAX_EPOLL_EVENTS = 1_024
MAX_POLL_DELAY_NS = 1_000_000
"""After this delay, `add` polls the sockets itself: opening many connections at once blocks the event loop."""
SERVER_CLOSE_GRACE_NS = 2_000_000_000
"""How long a server may take to close after its answer: the side that closes first keeps its port in TIME_WAIT."""
_INT_BYTES = 4


class SocketPoller:
    """Owns the sockets of connections from `add` until they are closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: AnswerBudget) -> None:
        self._loop = loop
        self._budget = budget
        self._epoll = select.epoll()
        self._clock = KernelClock()
        self._connections: dict[int, HttpConnection] = {}
        self._last_poll_ns = 0
        loop.add_reader(self._epoll.fileno(), self._poll)

    def add(self, connection: HttpConnection) -> None:
        """Send the request once the socket is connected (at once within one machine), and read the answer."""
        fd = connection.sock.fileno()
        self._connections[fd] = connection
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLOUT)
        self._send(connection)
        if time.monotonic_ns() - self._last_poll_ns > MAX_POLL_DELAY_NS:
            self._poll()

    def follow(self, connection: HttpConnection) -> None:
        """Send another request on the socket of an answer that has ended, and read its answer."""
        self._connections[connection.sock.fileno()] = connection
        try:
            if not connection.send():
                self._epoll.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except OSError as error:
            self.lost(connection, error)

    def open_connections(self) -> list[HttpConnection]:
        """All connections that are not closed yet, including those whose answer has ended."""
        return list(self._connections.values())

    def release(self, connection: HttpConnection) -> bool:
        """Stop reading the socket and leave it open; return False if it was closed, or another request is on it."""
        fd = connection.sock.fileno()
        if self._connections.get(fd) is not connection:
            return False
        del self._connections[fd]
        self._epoll.unregister(fd)
        return True

    def drop(self, connection: HttpConnection) -> None:
        """Close the connection, whatever its state, unless another request is on it."""
        if self.release(connection):
            connection.sock.close()

    def close(self) -> None:
        """Close all connections and the epoll instance; open exchanges fail with RESET."""
        for connection in self.open_connections():
            self.drop(connection)
            connection.fail(ErrorClass.RESET, "the client closed its connections", time.monotonic_ns())
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _poll(self) -> None:
        """Read every readable socket. This is the hot path."""
        events = self._epoll.poll(0, MAX_EPOLL_EVENTS)
        poll_pass = self._clock.start_pass()
        connections, held_bytes = self._connections, 0
        for fd, mask in events:
            connection = connections[fd]
            if mask != select.EPOLLIN:
                self._handle_other_events(connection, mask)
                if not mask & select.EPOLLIN or connection.sock.fileno() < 0:
                    continue
            try:
                data, ancillary, _, _ = connection.recvmsg(READ_BYTES, TIMESTAMP_SPACE)
            except BlockingIOError:
                continue
            except OSError as error:
                self.lost(connection, error)
                continue
            if not data or connection.ended_ns is not None:
                self._handle_end(connection, data, poll_pass)
                continue
            held_before = connection.held_bytes
            connection.held_bytes += len(data) + READ_OVERHEAD_BYTES
            connection.datas.append(data)
            connection.stamps.append(ancillary[0][2] if ancillary else b"")
            connection.poll_passes.append(poll_pass)
            if (
                not connection.ends_only_with_empty_line or data.endswith(EMPTY_LINE) or len(data) < len(EMPTY_LINE)
            ) and connection.is_complete(data):
                self._complete(connection, poll_pass)
            held_bytes += connection.held_bytes - held_before
        poll_pass.until_ns = self._last_poll_ns = time.monotonic_ns()
        self._budget.held += held_bytes
        if self._budget.is_exceeded:
            self._give_up_largest(poll_pass.until_ns)

    def give_up(self, connection: HttpConnection, error_class: ErrorClass, message: str, now_ns: int) -> None:
        """Close a connection, fail its answer, and free most of its memory."""
        self.drop(connection)
        connection.fail(error_class, message, now_ns)
        self._budget.held -= connection.drop_most_reads()

    def _give_up_largest(self, now_ns: int) -> None:
        """Give up the largest unfinished answers until the others fit the budget."""
        unfinished = [one for one in self._connections.values() if one.ended_ns is None]
        for connection in sorted(unfinished, key=lambda one: one.held_bytes, reverse=True):
            if not self._budget.is_exceeded:
                return
            self.give_up(connection, ErrorClass.MALFORMED, self._budget.error(), now_ns)

    def _handle_other_events(self, connection: HttpConnection, mask: int) -> None:
        """Handle a socket that became connected or writable, or that failed."""
        if mask & select.EPOLLIN and mask & (select.EPOLLERR | select.EPOLLHUP):
            return  # Bytes that arrived before the failure are read first: they may complete the answer.
        code = int.from_bytes(connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR, _INT_BYTES), sys.byteorder)
        if code:
            self.lost(connection, OSError(code, os.strerror(code)))
        elif mask & select.EPOLLOUT:
            self._send(connection)
        elif not mask & select.EPOLLIN:
            self._closed(connection, self._clock.start_pass())

    def _send(self, connection: HttpConnection) -> None:
        try:
            if connection.send():
                self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)
        except OSError as error:
            self.lost(connection, error)

    def _complete(self, connection: HttpConnection, poll_pass: PollPass) -> None:
        """End an answer that is complete or invalid."""
        connection.end(poll_pass.started_ns)
        if connection.parser.broken is not None:
            self.drop(connection)
        elif connection.on_complete is not None:
            connection.on_complete(connection)

    def _handle_end(self, connection: HttpConnection, data: bytes, poll_pass: PollPass) -> None:
        """Handle a closed connection; bytes after the end of an answer are discarded."""
        connection.parser.stays_open = False
        if not data:
            self._closed(connection, poll_pass)

    def _closed(self, connection: HttpConnection, poll_pass: PollPass) -> None:
        """End the answer of a connection whose server closed it."""
        connection.closed = True
        connection.note_loss()
        self.drop(connection)
        connection.end(poll_pass.started_ns)

    def lost(self, connection: HttpConnection, error: OSError) -> None:
        """Fail a connection that broke (RESET) or was never established (REFUSED)."""
        connection.note_loss()
        self.drop(connection)
        kind = ErrorClass.REFUSED if connection.sent_ns is None else ErrorClass.RESET
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        connection.fail(kind, f"{name}: {error.strerror or error}", time.monotonic_ns())
