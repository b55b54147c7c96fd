"""One request on an HTTP/1.1 connection: stores each read unparsed, with its timestamp, and detects the answer's end.

While a chunked answer arrives, only its head is parsed, and the last bytes of each read are compared with those of a
message (an empty line), which may also occur inside a body. If `[DONE]`, the last chunk and the trailers precede them,
they are trusted; otherwise the reads so far are parsed. Answers with a Content-Length are parsed as they arrive.
`UnparsedResponse` parses the rest after the answer has ended, so it does not affect measured times.

A hostile server must not exhaust time or memory. Each byte is parsed once, however the server splits its answer, and
parts of an answer that are not content have a maximum length.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus

import httptools

from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import MAX_ERROR_BODY_BYTES, http_error, truncate
from specbench_client.transport.exchange import ConnectionUse, HttpExchange, ReceivedBytes, TimestampSource
from specbench_client.transport.kernel_timestamps import PollPass, arrival_times
from specbench_client.transport.limits import MAX_HEAD_BYTES, READ_OVERHEAD_BYTES, AnswerBudget
from specbench_client.transport.sse import DONE
from specbench_client.transport.tls_socket import StreamSocket

EMPTY_LINE = b"\r\n\r\n"
_DONE = DONE.encode()
DONE_EVENT = re.compile(rb"(?:^|[\r\n])data: ?" + re.escape(_DONE))
"""`[DONE]` as a separate event. Inside generated text it cannot match: JSON escapes the line end before it."""
_END_AFTER_DONE = re.compile(DONE_EVENT.pattern + rb"[\r\n]*\r\n0+(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n\Z")
"""`[DONE]`, the last chunk with its extensions, the trailers and the empty line (RFC 9112, 7.1)."""
LINGER_AFTER_DONE_NS = 1_000_000_000
"""How long a stream may stay open after `[DONE]`: some servers never close it and send keep-alives."""
RESENT_WITHIN_S = 1.0
"""How soon after sending a kept connection ends if the server had closed it before it read the request."""
_UNSOLICITED = "the server sent bytes on a kept connection before it had received the request that is sent on it"
_EXCERPT_BYTES = 60
_FEW_READS = 8
_TAIL_BYTES = 256
_LINGER_TAIL_BYTES = 8 * 1024
"""`[DONE]` is searched for in this many last bytes of a stream that stays open."""


_TCP_INFO_BYTES = 128
_BYTES_ACKED_AT = 120
"""Offset of `tcpi_bytes_acked`, 64 bits, in Linux's `struct tcp_info`."""


class ResponseParser:
    """A response parsed by httptools (Node's llhttp) from the reads so far, each once.

    httptools requires the `on_…` names.

    `contents`: the content of each read that has any, and the number of the read. `complete`: the message ended where
    its framing declares. `broken`: why the bytes are not valid HTTP, or None. `stays_open`: whether the server keeps
    the connection after the response, as far as its head and the bytes after it show.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.head_read: int | None = None
        """Number of the read with the end of the head."""
        self.contents: list[tuple[int, bytes]] = []
        self.complete = False
        self.broken: str | None = None
        self.stays_open = False
        self.reads = 0
        """Number of reads that are parsed."""
        self._parser = httptools.HttpResponseParser(self)
        # RFC 9112: folded header lines (5.2), lines that end with LF (2.2), blanks after the size of a chunk (7.1.1).
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._content = bytearray()
        self._contentless_bytes = 0

    @property
    def is_over(self) -> bool:
        """Whether the response is complete or invalid; what follows is ignored."""
        return self.complete or self.broken is not None

    @property
    def is_chunked(self) -> bool:
        """Whether the head has arrived, and announces a body in chunks."""
        return self.head_read is not None and "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def ends_with_connection(self) -> bool:
        """Whether the head has arrived, and only the end of the connection ends the body."""
        return self.head_read is not None and not self._is_framed and not self.is_over

    def feed(self, data: bytes) -> None:
        """Parse the next read."""
        if not self.is_over:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade:
                self.complete, self.stays_open = True, False  # Bytes after a 101 belong to another protocol.
            except httptools.HttpParserError as error:
                self.stays_open = False
                if not self.complete:
                    self.broken = f"not HTTP/1.1: {error}, in an answer with {data[:_EXCERPT_BYTES]!r}"
            if self._content:
                self.contents.append((self.reads, bytes(self._content)))
                self._content.clear()
                self._contentless_bytes = 0
            else:
                self._count_contentless(len(data))
        self.reads += 1

    def _count_contentless(self, count: int) -> None:
        """Mark the response as invalid if too many bytes in a row had no content.

        httptools joins a header or trailer from its pieces, in a time that grows with the square of its length.
        """
        self._contentless_bytes += count
        if self._contentless_bytes > MAX_HEAD_BYTES and not self.is_over:
            self.stays_open = False
            part = "the response head has" if self.head_read is None else "the response has"
            self.broken = f"{part} more than {MAX_HEAD_BYTES:,} bytes in a row that are not content"

    def drop_after(self, reads: int) -> None:
        """Drop what came after the first reads."""
        if self.head_read is not None and self.head_read >= reads:
            self.head_read = self.status = None
        self.contents = [(number, content) for number, content in self.contents if number < reads]

    def end(self, *, closed: bool) -> None:
        """Finish after the last read. `closed`: the server closed the connection, which ends a body without a length.

        Nothing can be fed afterwards.
        """
        del self._parser  # It refers back to this object, and collecting hundreds of answers as garbage takes 0.1 s.
        if closed and self.ends_with_connection:
            self.complete = True

    @property
    def _is_framed(self) -> bool:
        return "content-length" in self.headers or self.is_chunked

    def on_message_begin(self) -> None:
        if self.complete:
            self.stays_open = False  # Bytes after the response, which nothing requested.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_read is None:
            self.headers[name.decode("latin-1").lower().rstrip()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if HTTPStatus.CONTINUE <= status < HTTPStatus.OK and status != HTTPStatus.SWITCHING_PROTOCOLS:
            self.headers.clear()
        elif self.head_read is None:
            self.status, self.head_read = status, self.reads
            self.stays_open = self._is_framed and self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self._content += data

    def on_message_complete(self) -> None:
        if self.head_read is not None:
            self.complete = True


class HttpConnection:
    """A connection and the reads of one request, to which the poller appends until `end`.

    `datas`, `stamps` and `poll_passes` are parallel lists: for each read its bytes, its kernel timestamp, and the poll
    pass that read it. `started_ns`: when the connection was requested. `use`: how it was obtained.
    """

    __slots__ = (
        "_acked_before",
        "_message",
        "_searched",
        "closed",
        "datas",
        "done",
        "done_index",
        "ended_ns",
        "ends_only_with_empty_line",
        "failure",
        "held_bytes",
        "is_lost",
        "is_unsolicited",
        "on_complete",
        "parser",
        "poll_passes",
        "recvmsg",
        "sent_ns",
        "sock",
        "stamps",
        "started_ns",
        "use",
    )  # fmt: skip

    def __init__(
        self,
        sock: StreamSocket,
        message: bytes,
        done: asyncio.Future[None],
        started_ns: int,
        use: ConnectionUse = ConnectionUse.NEW,
    ) -> None:
        self.sock = sock
        self.use = use
        self.recvmsg = sock.recvmsg
        self.done = done
        self.started_ns = started_ns
        self.sent_ns: int | None = None
        self.ended_ns: int | None = None
        self.on_complete: Callable[[HttpConnection], None] | None = None
        """Called in the poll pass that read the end of the answer; it may send the next request on the socket."""
        self.datas: list[bytes] = []
        self.stamps: list[bytes] = []
        self.poll_passes: list[PollPass] = []
        self.ends_only_with_empty_line = False
        """Whether only a read that ends with EMPTY_LINE can be the last read of the answer."""
        self.closed = False
        self.is_lost = False
        """Whether a kept connection ended soon after sending and before any byte of the answer."""
        self.is_unsolicited = False
        """Whether bytes arrived on a kept connection before the server's system had acknowledged any of the request."""
        self._acked_before = _bytes_acked(sock) if use is ConnectionUse.KEPT else None
        self.done_index: int | None = None
        """Index of the read that completed `[DONE]`, if the stream stayed open after it."""
        self.failure: tuple[ErrorClass, str] | None = None
        self.held_bytes = 0
        """Memory of the reads: their bytes and READ_OVERHEAD_BYTES for each, and the bytes that are parsed already."""
        self.parser = ResponseParser()
        self._searched = 0
        self._message = memoryview(message)

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
        if self.ends_only_with_empty_line:
            # The empty line may be split over several reads.
            end = data if len(data) >= len(EMPTY_LINE) else b"".join(self.datas[-len(EMPTY_LINE) :])
            if not end.endswith(EMPTY_LINE):
                return False
            if _END_AFTER_DONE.search(b"".join(self.datas[-2:])[-_TAIL_BYTES:]):
                return True
        elif self.parser.ends_with_connection:
            return False
        elif len(self.datas) == 1 and self._acked_before and _bytes_acked(self.sock) == self._acked_before:
            self.is_unsolicited, self.parser.broken = True, f"{_UNSOLICITED}: {data[:_EXCERPT_BYTES]!r}"
        self.held_bytes += self.parse_rest()
        self.ends_only_with_empty_line = self.parser.is_chunked
        return self.parser.is_over

    def parse_rest(self) -> int:
        """Parse the reads that are not parsed yet; return their length."""
        rest = self.datas[self.parser.reads :]
        for data in rest:
            self.parser.feed(data)
        return sum(map(len, rest))

    def end(self, ended_ns: int) -> None:
        """Mark the answer as ended or given up. The poller discards later reads."""
        if self.ended_ns is None:
            self.ended_ns = ended_ns
            if not self.done.done():
                self.done.set_result(None)

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent on the connection.

        All of this one was sent, and its answer ended by its framing, with nothing later.
        """
        is_whole = self.ended_ns is not None and self.failure is None and self.done_index is None and not self._message
        return self.parser.stays_open and is_whole and not self.closed and self.sock.fileno() >= 0

    def note_loss(self) -> None:
        """Note, when the connection ends, whether a request on a kept one was lost and is sent again."""
        waited_ns = 0 if self.sent_ns is None else time.monotonic_ns() - self.sent_ns
        self.is_lost = self.use is ConnectionUse.KEPT and not self.datas and waited_ns <= RESENT_WITHIN_S * 1e9

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
        if self.done_index is None and 0 < fresh <= _FEW_READS:
            tail = b"".join(self.datas[-2 * _FEW_READS :])[-_LINGER_TAIL_BYTES:]
            if _DONE in tail and DONE_EVENT.search(tail):  # The expression alone takes ten times as long.
                self.done_index = _index_of_done(self.datas)  # None: the tail began inside generated text.
            self._searched = len(self.datas)
        elif fresh:
            self._searched = max(len(self.datas) - 1, 0)  # The last read is searched when the stream has slowed down.
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
        self.parser.drop_after(kept)
        self.end(now_ns)

    def drop_most_reads(self) -> int:
        """Free the memory of an answer that failed, except for its first reads with the response head; return it."""
        del self.datas[_FEW_READS:], self.stamps[_FEW_READS:], self.poll_passes[_FEW_READS:]
        self.parser.drop_after(_FEW_READS)
        before, self.held_bytes = self.held_bytes, sum(len(data) + READ_OVERHEAD_BYTES for data in self.datas)
        return before - self.held_bytes


class UnparsedResponse:
    """The finished exchange of a request to `url` on a connection, see `UnparsedExchange`.

    The constructor is on the measured path.
    """

    def __init__(self, url: str, connection: HttpConnection, budget: AnswerBudget) -> None:
        self._url = url
        self._connection = connection
        self._budget = budget
        last, _ = arrival_times(connection.stamps[-1:], connection.poll_passes[-1:], connection.sent_ns or 0)
        given_up = connection.failure is not None or connection.done_index is not None or not last
        self.ended_ns = (connection.ended_ns or connection.started_ns) if given_up else last[0]

    @property
    def error_class(self) -> ErrorClass | None:
        """See `UnparsedExchange.error_class`."""
        return self._connection.failure[0] if self._connection.failure else None

    def read(self) -> HttpExchange:
        """See `UnparsedExchange.read`."""
        connection = self._connection
        times, is_kernel = arrival_times(connection.stamps, connection.poll_passes, connection.sent_ns or 0)
        connection.parse_rest()
        http = connection.parser
        http.end(closed=connection.closed)
        self._budget.held -= connection.held_bytes
        arrivals = tuple(ReceivedBytes(times[number], data) for number, data in http.contents)
        refused = None
        if http.status != HTTPStatus.OK:
            refused = http_error(http.status, _beginning(arrivals), http.headers.get("location"), self._url)
        error = refused or connection.failure or (_parse_failure(http) if connection.done_index is None else None)
        return HttpExchange(
            sent_ns=connection.sent_ns,
            arrivals=arrivals,
            status=http.status,
            headers=http.headers,
            ended_ns=times[-1] if connection.done_index is not None else self.ended_ns,
            connect_ns=connection.started_ns,
            first_byte_ns=None if http.head_read is None else times[http.head_read],
            timestamp_source=TimestampSource.KERNEL if is_kernel else TimestampSource.USER,
            error_class=error[0] if error else None,
            error=truncate(error[1]) if error else None,
            connection=connection.use,
        )


def _bytes_acked(sock: StreamSocket) -> int:
    """Return how many bytes the server's system has acknowledged since the connection was opened."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    return int(struct.unpack_from("=Q", info, _BYTES_ACKED_AT)[0])


def _beginning(arrivals: Sequence[ReceivedBytes]) -> bytes:
    """Return the part of a body that an error message is read from."""
    body = bytearray()
    for one in arrivals:
        body += one.data
        if len(body) >= MAX_ERROR_BODY_BYTES:
            break
    return bytes(body)


def _index_of_done(datas: list[bytes]) -> int | None:
    """Return the index of the read that completed `[DONE]`; None if none of the last reads did."""
    first = max(len(datas) - 2 * _FEW_READS, 0)
    joined = bytearray()
    for at in range(first, len(datas)):
        searched_from = max(len(joined) - _TAIL_BYTES, 0)
        joined += datas[at]
        if DONE_EVENT.search(joined, searched_from):
            return at
    return None


def _parse_failure(http: ResponseParser) -> tuple[ErrorClass, str] | None:
    if http.broken is not None:
        return ErrorClass.MALFORMED, http.broken
    if not http.complete:
        return ErrorClass.RESET, "the connection was closed before the answer had ended"
    return None
