"""One HTTP/1.1 connection for one request: stores each read unparsed, with its timestamp, and detects the answer's end.

While the answer arrives, only what is needed to detect its end is parsed: the response head once, then the last bytes
of each read. The bytes of the last chunk (`0 CRLF CRLF`) may also occur inside a body. After `[DONE]`, which ends every
stream that the dialects support, they are trusted; otherwise the parser confirms them. The rest of this module parses
the stored reads after the answer has ended, so it does not affect measured times.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import NamedTuple

import httptools

from specbench_client.sliced_tasks import CHUNKS_PER_SLICE, CooperativeTask, run_to_completion
from specbench_client.transport.error_messages import http_error, truncate
from specbench_client.transport.exchange import ErrorClass, HttpExchange, ReceivedBytes, TimestampSource
from specbench_client.transport.kernel_timestamps import PollPass, arrival_times

_received: Callable[[tuple[int, bytes]], ReceivedBytes] = partial(tuple.__new__, ReceivedBytes)
"""Constructs a ReceivedBytes without a Python-level call: it runs once for each chunk."""


@dataclass
class ParsedResponse:
    """The response parsed from the reads.

    `complete`: the message ended where its framing declares. `broken`: why the bytes are not valid HTTP, or None.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    head_ns: int | None = None
    arrivals: list[ReceivedBytes] = field(default_factory=list)
    complete: bool = False
    broken: str | None = None


def parse_response(reads: Sequence[bytes], times: Sequence[int], *, closed: bool) -> CooperativeTask[ParsedResponse]:
    """Parse the reads with httptools (Node's llhttp). Each piece of the body has the time of the read it was in.

    `closed`: the server closed the connection after the last read, which ends a body without a length.
    """
    message = _ResponseParser()
    rest = zip(reads, times, strict=True)
    while part := list(islice(rest, CHUNKS_PER_SLICE)):
        for data, ns in part:
            message.feed(data, ns)
        yield
    return message.ended(closed=closed)


class _ResponseParser:
    """Collects the callbacks of httptools; the `on_…` names are required by httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._out = ParsedResponse()
        self._ns = 0

    def feed(self, data: bytes, ns: int) -> None:
        """Parse one read."""
        if self._out.broken is not None or self._out.complete:
            return  # Bytes after a complete response do not belong to it.
        self._ns = ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._out.complete = True  # Bytes after a 101 belong to another protocol.
        except httptools.HttpParserError as error:
            if not self._out.complete:
                self._out.broken = f"not HTTP/1.1: {error}"

    def ended(self, *, closed: bool) -> ParsedResponse:
        """Return the response after the last read."""
        out = self._out
        delimited = "content-length" in out.headers or "chunked" in out.headers.get("transfer-encoding", "").lower()
        if closed and out.head_ns is not None and not delimited and out.broken is None:
            out.complete = True
        return out

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._out.head_ns is None:
            self._out.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if HTTPStatus.CONTINUE <= status < HTTPStatus.OK and status != HTTPStatus.SWITCHING_PROTOCOLS:
            self._out.headers.clear()
        elif self._out.head_ns is None:
            self._out.status, self._out.head_ns = status, self._ns

    def on_body(self, data: bytes) -> None:
        if not self._out.complete:
            self._out.arrivals.append(_received((self._ns, data)))

    def on_message_complete(self) -> None:
        if self._out.head_ns is not None:
            self._out.complete = True


LAST_CHUNK = b"0\r\n\r\n"
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_INTERIM = re.compile(rb"HTTP/1\.1 1(?!01)\d\d")
"""Status 101 is not an interim response: the bytes after it are not HTTP."""
_BODILESS = re.compile(rb"HTTP/1\.[01] (?:101|204|304)\b")
"""Statuses without a body, whatever their headers state (RFC 9112, section 6.3)."""
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
DONE_EVENT = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]")
"""`[DONE]` as a separate event. Inside generated text it cannot match: JSON escapes the line end before it."""
LINGER_AFTER_DONE_NS = 1_000_000_000
"""How long a stream may stay open after `[DONE]`: some servers never close it and send keep-alives."""
_FEW_READS = 8
_TAIL_BYTES = 256


class _EndOfBody(Enum):
    """How the end of the answer is detected."""

    UNKNOWN = auto()
    HEAD = auto()
    CHUNK = auto()
    LENGTH = auto()
    CLOSE = auto()


class RawReads(NamedTuple):
    """Parallel lists, one entry for each read: its bytes, its kernel timestamp, and the poll pass that read it."""

    datas: list[bytes]
    stamps: list[bytes]
    poll_passes: list[PollPass]


class HttpConnection:
    """A connection and its reads. The poller appends to `datas`, `stamps` and `poll_passes` directly."""

    __slots__ = (
        "_end",
        "_expected_bytes",
        "_message",
        "_searched",
        "closed",
        "datas",
        "done",
        "done_index",
        "ended_ns",
        "ends_only_with_last_chunk",
        "failure",
        "poll_passes",
        "reads",
        "recvmsg",
        "sent_ns",
        "sock",
        "stamps",
        "started_ns",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, message: bytes, done: asyncio.Future[None], started_ns: int) -> None:
        self.sock = sock
        self.recvmsg = sock.recvmsg
        self.done = done
        self.started_ns = started_ns
        self.sent_ns: int | None = None
        self.ended_ns: int | None = None
        self.datas, self.stamps, self.poll_passes = self.reads = RawReads([], [], [])
        """`reads` keeps the answer after `end`, when the three lists are replaced by empty ones."""
        self.ends_only_with_last_chunk = False
        """Whether only a read that ends with LAST_CHUNK can be the last read of the answer."""
        self.closed = False
        self.done_index: int | None = None
        """Index of the read that completed `[DONE]`, if the stream stayed open after it."""
        self.failure: tuple[ErrorClass, str] | None = None
        self._searched = 0
        self._message = memoryview(message)
        self._end = _EndOfBody.UNKNOWN
        self._expected_bytes = 0

    @property
    def last_ns(self) -> int:
        """Time of the last activity on the connection (monotonic ns)."""
        return self.poll_passes[-1].started_ns if self.poll_passes else self.sent_ns or self.started_ns

    def send(self) -> bool:
        """Send what is left of the request; return whether all of it was sent. Does nothing until connected."""
        now_ns = time.monotonic_ns()
        try:
            count = self.sock.send(self._message)
        except BlockingIOError:
            return False
        self.sent_ns = now_ns if self.sent_ns is None else self.sent_ns
        self._message = self._message[count:]
        return not self._message

    def is_complete(self, data: bytes) -> bool:
        """Return whether the answer has ended with this read, which is already in `datas`."""
        if self._end is _EndOfBody.CHUNK:
            return self._ends_as_the_last_chunk(data) and self._last_chunk()
        if self._end is _EndOfBody.UNKNOWN:
            self._find_end_of_body()
            return self._end is not _EndOfBody.UNKNOWN and self.is_complete(data)
        return self._end is _EndOfBody.HEAD or (self._end is _EndOfBody.LENGTH and self.size() >= self._expected_bytes)

    def end(self, ended_ns: int) -> None:
        """Mark the answer as ended or given up. Later reads are discarded."""
        if self.ended_ns is None:
            self.ended_ns = ended_ns
            self.datas, self.stamps, self.poll_passes = [], [], []
            if not self.done.done():
                self.done.set_result(None)

    def fail(self, error_class: ErrorClass, message: str, now_ns: int) -> None:
        """End the answer with a failure."""
        if self.ended_ns is None:
            self.failure = (error_class, message)
            self.end(now_ns)

    def lingers_after_done(self, now_ns: int) -> bool:
        """Return whether the answer contained `[DONE]` and the server has kept the connection open for too long since.

        `[DONE]` is searched for only when few reads arrived since the last call: a stream at full rate is not done, and
        searching all of it would cost as much as parsing it.
        """
        fresh = len(self.datas) - self._searched
        if (
            self.done_index is None
            and fresh <= _FEW_READS
            and DONE_EVENT.search(b"".join(self.datas[-2 * _FEW_READS :]))
        ):
            self.done_index = _index_of_done(self.datas)
        self._searched = len(self.datas)
        return (
            self.done_index is not None and now_ns - self.poll_passes[self.done_index].started_ns > LINGER_AFTER_DONE_NS
        )

    def end_at_done(self, now_ns: int) -> None:
        """End the answer with the read that completed `[DONE]` and drop later reads.

        `ended_ns` is now and not the time of that read: the stream was busy with this request until now.
        """
        assert self.done_index is not None, "call only if lingers_after_done returned true"
        kept = self.done_index + 1
        del self.datas[kept:], self.stamps[kept:], self.poll_passes[kept:]
        self.end(now_ns)

    def size(self) -> int:
        """Number of bytes received so far."""
        return sum(map(len, self.datas))

    def _find_end_of_body(self) -> None:
        received, start = b"".join(self.datas), 0
        end = received.find(_HEAD_END)
        while end >= 0 and _INTERIM.match(received, start):
            start, end = end + len(_HEAD_END), received.find(_HEAD_END, end + len(_HEAD_END))
        if end < 0:
            return
        head = received[start : end + 2]
        length = _LENGTH.search(head)
        if _BODILESS.match(head):
            self._end = _EndOfBody.HEAD
        elif _CHUNKED.search(head):
            self._end, self.ends_only_with_last_chunk = _EndOfBody.CHUNK, True
        elif length:
            self._end, self._expected_bytes = _EndOfBody.LENGTH, end + len(_HEAD_END) + int(length[1])
        else:
            self._end = _EndOfBody.CLOSE

    def _ends_as_the_last_chunk(self, data: bytes) -> bool:
        if len(data) < len(LAST_CHUNK):  # The last chunk may be split over several reads.
            data = b"".join(self.datas[-len(LAST_CHUNK) :])
        return data.endswith(LAST_CHUNK)

    def _last_chunk(self) -> bool:
        tail = b"".join(self.datas[-2:])[-_TAIL_BYTES:]
        return (
            bool(DONE_EVENT.search(tail))
            or run_to_completion(parse_response(self.datas, [0] * len(self.datas), closed=False)).complete
        )


class UnparsedResponse:
    """The finished exchange of a connection, see `UnparsedExchange`. The constructor is on the measured path."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        last, _ = arrival_times(
            connection.reads.stamps[-1:], connection.reads.poll_passes[-1:], connection.sent_ns or 0
        )
        given_up = connection.failure is not None or connection.done_index is not None or not last
        self.ended_ns = (connection.ended_ns or connection.started_ns) if given_up else last[0]

    @property
    def error_class(self) -> ErrorClass | None:
        """See `UnparsedExchange.error_class`."""
        return self._connection.failure[0] if self._connection.failure else None

    def read(self) -> CooperativeTask[HttpExchange]:
        """See `UnparsedExchange.read`."""
        connection = self._connection
        times, is_kernel = arrival_times(connection.reads.stamps, connection.reads.poll_passes, connection.sent_ns or 0)
        http = yield from parse_response(connection.reads.datas, times, closed=connection.closed)
        body = b"".join(one.data for one in http.arrivals)
        refused = http_error(http.status, body, http.headers.get("location"))
        error = refused or connection.failure or (_parse_failure(http) if connection.done_index is None else None)
        return HttpExchange(
            sent_ns=connection.sent_ns,
            arrivals=tuple(http.arrivals),
            status=http.status,
            headers=http.headers,
            ended_ns=times[-1] if connection.done_index is not None else self.ended_ns,
            connect_ns=connection.started_ns,
            first_byte_ns=http.head_ns,
            timestamp_source=TimestampSource.KERNEL if is_kernel else TimestampSource.USER,
            error_class=error[0] if error else None,
            error=truncate(error[1]) if error else None,
        )


def _index_of_done(datas: list[bytes]) -> int:
    """Return the index of the read that completed `[DONE]`."""
    first = max(len(datas) - 2 * _FEW_READS, 0)
    return next(at for at in range(first, len(datas)) if DONE_EVENT.search(b"".join(datas[first : at + 1])))


def _parse_failure(http: ParsedResponse) -> tuple[ErrorClass, str] | None:
    if http.broken is not None:
        return ErrorClass.MALFORMED, http.broken
    if not http.complete:
        return ErrorClass.RESET, "the connection was closed before the answer had ended"
    return None
