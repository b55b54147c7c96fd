"""All open connections of one event loop, read in one tight loop.

Their epoll is itself a file that asyncio waits for: when anything can be read, the loop calls us once, and we read
every socket that is ready without going through asyncio for each. On this path there is one system call a read and no
parsing; the kernel has stamped the bytes already, so being late here costs nothing but the chance that one read gathers
two sends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import time

from specbench_client.transport.exchange import ErrorClass
from specbench_client.transport.kernel_clock import STAMP_SPACE, KernelClock, Look
from specbench_client.transport.link import LAST_CHUNK, Link

READ_BYTES = 65_536
MOST_EVENTS = 1_024
PATIENCE_NS = 1_000_000
"""Whoever opens many connections at once keeps the event loop from reading; after so long he reads himself."""
CLOSING_NS = 2_000_000_000
"""How long a server may take to close after its answer: who closes first keeps the port in TIME_WAIT."""


class Station:
    """Owns the sockets from `add` until they are closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._clock = KernelClock()
        self._links: dict[int, Link] = {}
        self._passed_ns = 0
        loop.add_reader(self._epoll.fileno(), self._pass)

    def add(self, link: Link) -> None:
        """Send as soon as the connection stands (between two processes of one machine it does at once), and read."""
        number = link.connection.fileno()
        self._links[number] = link
        self._epoll.register(number, select.EPOLLIN | select.EPOLLOUT)
        self._send(link)
        if time.monotonic_ns() - self._passed_ns > PATIENCE_NS:
            self._pass()

    def open_links(self) -> list[Link]:
        """All that are not closed yet, also those whose answer has ended."""
        return list(self._links.values())

    def drop(self, link: Link) -> None:
        """Close the connection, whatever its state."""
        number = link.connection.fileno()
        if number >= 0 and self._links.pop(number, None) is not None:
            self._epoll.unregister(number)
        link.connection.close()

    def close(self) -> None:
        """Close everything."""
        for link in self.open_links():
            self.drop(link)
            link.fail(ErrorClass.RESET, "the client closed its connections", time.monotonic_ns())
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _pass(self) -> None:
        """Read what can be read: the hot path."""
        events = self._epoll.poll(0, MOST_EVENTS)
        look = self._clock.look()
        links = self._links
        for number, mask in events:
            link = links[number]
            if mask != select.EPOLLIN:
                self._rare(link, mask)
                if not mask & select.EPOLLIN or link.connection.fileno() < 0:
                    continue
            try:
                data, told, _, _ = link.recvmsg(READ_BYTES, STAMP_SPACE)
            except BlockingIOError:
                continue
            except OSError as error:
                self.lost(link, error)
                continue
            if not data:
                self._closed(link, look)
                continue
            link.datas.append(data)
            link.stamps.append(told[0][2] if told else b"")
            link.looks.append(look)
            if (not link.hot or data.endswith(LAST_CHUNK) or len(data) < len(LAST_CHUNK)) and link.over(data):
                link.end(look.seen_ns)
        look.until_ns = self._passed_ns = time.monotonic_ns()

    def _rare(self, link: Link, mask: int) -> None:
        """The connection stands, has room, or is broken. What came before it broke is read first: an answer is one."""
        if mask & select.EPOLLIN and mask & (select.EPOLLERR | select.EPOLLHUP):
            return
        number = link.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self.lost(link, OSError(number, os.strerror(number)))
        elif mask & select.EPOLLOUT:
            self._send(link)
        elif not mask & select.EPOLLIN:
            self._closed(link, self._clock.look())

    def _send(self, link: Link) -> None:
        try:
            if link.send():
                self._epoll.modify(link.connection.fileno(), select.EPOLLIN)
        except OSError as error:
            self.lost(link, error)

    def _closed(self, link: Link, look: Look) -> None:
        """The server closed its side."""
        link.closed = True
        self.drop(link)
        link.end(look.seen_ns)

    def lost(self, link: Link, error: OSError) -> None:
        """The connection failed, or was never made."""
        self.drop(link)
        kind = ErrorClass.REFUSED if link.sent_ns is None else ErrorClass.RESET
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        link.fail(kind, f"{name}: {error.strerror or error}", time.monotonic_ns())
