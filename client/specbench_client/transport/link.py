"""One connection for one request, from connecting to the last byte: what was read stays as it came, with its stamp.

Nothing is parsed here but what tells that the answer has ended: the head, once, and then the last bytes of each read.
The bytes that end a chunked body could stand inside one; they are believed after `[DONE]`, which closes every stream
that the dialects know, and checked by the parser otherwise.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from enum import Enum, auto
from typing import NamedTuple

from specbench_client.slices import Slices, finish
from specbench_client.transport.exchange import Clock, ErrorClass, Exchange
from specbench_client.transport.framing import Framed, framed
from specbench_client.transport.kernel_clock import Look, arrival_times
from specbench_client.transport.status import refusal
from specbench_client.transport.words import cut

LAST_CHUNK = b"0\r\n\r\n"
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_INTERIM = re.compile(rb"HTTP/1\.1 1(?!01)\d\d")
"""101 is no interim answer: what follows it is no HTTP any more."""
_BODILESS = re.compile(rb"HTTP/1\.[01] (?:101|204|304)\b")
"""Whatever their headers say (RFC 9112, section 6.3)."""
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
DONE_EVENT = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")
"""As an event of its own: in a text, JSON writes the end of the line before it as two characters."""
LINGER_NS = 1_000_000_000
"""How long a stream may stay open after it has said that it is done: some servers do for ever, with keep-alives."""
_TRICKLE = 8
_TAIL = 256


class _End(Enum):
    """What ends the answer."""

    UNKNOWN = auto()
    HEAD = auto()
    CHUNK = auto()
    LENGTH = auto()
    CLOSE = auto()


class Came(NamedTuple):
    """Reads side by side: their bytes, their stamps, and the looks that brought them."""

    datas: list[bytes]
    stamps: list[bytes]
    looks: list[Look]


class Link:
    """A connection and what comes over it. The station appends to `datas`, `stamps` and `looks` itself."""

    __slots__ = (
        "_end", "_message", "_searched", "_wanted", "came", "closed", "connection", "datas", "done", "ended_ns",
        "failure", "hot", "looks", "recvmsg", "said_done", "sent_ns", "stamps", "started_ns",
    )  # fmt: skip

    def __init__(self, connection: socket.socket, message: bytes, done: asyncio.Future[None], started_ns: int) -> None:
        self.connection = connection
        self.recvmsg = connection.recvmsg
        self.done = done
        self.started_ns = started_ns
        self.sent_ns: int | None = None
        self.ended_ns: int | None = None
        self.datas, self.stamps, self.looks = self.came = Came([], [], [])
        """`came`: the answer, once it has ended."""
        self.hot = False
        """Whether only a read that ends with LAST_CHUNK can be the last one."""
        self.closed = False
        self.said_done: int | None = None
        """Which read brought `[DONE]`, where a stream said so and yet went on."""
        self.failure: tuple[ErrorClass, str] | None = None
        self._searched = 0
        self._message = memoryview(message)
        self._end = _End.UNKNOWN
        self._wanted = 0

    @property
    def last_ns(self) -> int:
        """When something last happened."""
        return self.looks[-1].seen_ns if self.looks else self.sent_ns or self.started_ns

    def send(self) -> bool:
        """Send what is left; whether all has left. Nothing happens while the connection is being made."""
        now_ns = time.monotonic_ns()
        try:
            count = self.connection.send(self._message)
        except BlockingIOError:
            return False
        self.sent_ns = now_ns if self.sent_ns is None else self.sent_ns
        self._message = self._message[count:]
        return not self._message

    def over(self, data: bytes) -> bool:
        """Whether the answer has ended with this read, which is kept already."""
        if self._end is _End.CHUNK:
            return self._ends_as_the_last_chunk(data) and self._last_chunk()
        if self._end is _End.UNKNOWN:
            self._learn()
            return self._end is not _End.UNKNOWN and self.over(data)
        return self._end is _End.HEAD or (self._end is _End.LENGTH and self.size() >= self._wanted)

    def end(self, ended_ns: int) -> None:
        """The answer has ended, or was given up; what still comes goes nowhere."""
        if self.ended_ns is None:
            self.ended_ns = ended_ns
            self.datas, self.stamps, self.looks = [], [], []
            if not self.done.done():
                self.done.set_result(None)

    def fail(self, error_class: ErrorClass, words: str, now_ns: int) -> None:
        """It ended badly."""
        if self.ended_ns is None:
            self.failure = (error_class, words)
            self.end(now_ns)

    def lingers(self, now_ns: int) -> bool:
        """Whether the answer has said that it is done, and the server has kept it open since for too long.

        Looked for where little comes: a stream in full flow is not done, and a search of all of it would be parsing.
        """
        fresh = len(self.datas) - self._searched
        if self.said_done is None and fresh <= _TRICKLE and DONE_EVENT.search(b"".join(self.datas[-2 * _TRICKLE :])):
            self.said_done = _where_done(self.datas)
        self._searched = len(self.datas)
        return self.said_done is not None and now_ns - self.looks[self.said_done].seen_ns > LINGER_NS

    def end_at_done(self, now_ns: int) -> None:
        """The answer is what had come with the read that said so. Only now is its stream free: we have waited."""
        assert self.said_done is not None, "it lingers"
        kept = self.said_done + 1
        del self.datas[kept:], self.stamps[kept:], self.looks[kept:]
        self.end(now_ns)

    def size(self) -> int:
        """Bytes that came so far."""
        return sum(map(len, self.datas))

    def _learn(self) -> None:
        came, start = b"".join(self.datas), 0
        end = came.find(_HEAD_END)
        while end >= 0 and _INTERIM.match(came, start):
            start, end = end + len(_HEAD_END), came.find(_HEAD_END, end + len(_HEAD_END))
        if end < 0:
            return
        head = came[start : end + 2]
        length = _LENGTH.search(head)
        if _BODILESS.match(head):
            self._end = _End.HEAD
        elif _CHUNKED.search(head):
            self._end, self.hot = _End.CHUNK, True
        elif length:
            self._end, self._wanted = _End.LENGTH, end + len(_HEAD_END) + int(length[1])
        else:
            self._end = _End.CLOSE

    def _ends_as_the_last_chunk(self, data: bytes) -> bool:
        if len(data) < len(LAST_CHUNK):  # it may have come in pieces
            data = b"".join(self.datas[-len(LAST_CHUNK) :])
        return data.endswith(LAST_CHUNK)

    def _last_chunk(self) -> bool:
        tail = b"".join(self.datas[-2:])[-_TAIL:]
        return bool(DONE_EVENT.search(tail)) or finish(framed(self.datas, [0] * len(self.datas), closed=False)).complete


class LinkUnread:
    """What a link leaves behind; see `Unread`. Made on the stopwatch: nothing is read yet."""

    def __init__(self, link: Link) -> None:
        self._link = link
        last, _ = arrival_times(link.came.stamps[-1:], link.came.looks[-1:], link.sent_ns or 0)
        given_up = link.failure is not None or link.said_done is not None or not last
        self.ended_ns = (link.ended_ns or link.started_ns) if given_up else last[0]

    @property
    def error_class(self) -> ErrorClass | None:
        """See `Unread.error_class`."""
        return self._link.failure[0] if self._link.failure else None

    def read(self) -> Slices[Exchange]:
        """See `Unread.read`."""
        link = self._link
        times, is_kernel = arrival_times(link.came.stamps, link.came.looks, link.sent_ns or 0)
        http = yield from framed(link.came.datas, times, closed=link.closed)
        refused = refusal(http.status, b"".join(one.data for one in http.arrivals))
        error = refused or link.failure or (_failure(http) if link.said_done is None else None)
        return Exchange(
            sent_ns=link.sent_ns,
            arrivals=tuple(http.arrivals),
            status=http.status,
            headers=http.headers,
            ended_ns=times[-1] if link.said_done is not None else self.ended_ns,
            connect_ns=link.started_ns,
            first_byte_ns=http.head_ns,
            clock=Clock.KERNEL if is_kernel else Clock.USER,
            error_class=error[0] if error else None,
            error=cut(error[1]) if error else None,
        )


def _where_done(datas: list[bytes]) -> int:
    """The read with which the mark was whole."""
    first = max(len(datas) - 2 * _TRICKLE, 0)
    return next(at for at in range(first, len(datas)) if DONE_EVENT.search(b"".join(datas[first : at + 1])))


def _failure(http: Framed) -> tuple[ErrorClass, str] | None:
    if http.broken is not None:
        return ErrorClass.MALFORMED, http.broken
    if not http.complete:
        return ErrorClass.RESET, "the connection was closed before the answer had ended"
    return None
