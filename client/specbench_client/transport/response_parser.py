"""Parses an HTTP/1.1 response from its reads with httptools (Node's llhttp), after or while it arrives.

A hostile server must not exhaust time or memory: each byte is parsed a constant number of times, and parts of a
response that are not content have a maximum length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

import httptools

from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.limits import MAX_HEAD_BYTES

LONG_HEAD = f"more than {MAX_HEAD_BYTES:,} bytes"
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


def parse_response(reads: Sequence[bytes], times: Sequence[int], *, closed: bool) -> ParsedResponse:
    """Parse the reads with httptools (Node's llhttp). Each piece of the body has the time of the read it was in.

    `closed`: the server closed the connection after the last read, which ends a body without a length.
    """
    message = _ResponseParser()
    for data, ns in zip(reads, times, strict=True):
        message.feed(data, ns)
        message.check_contentless(data)
    return message.ended(closed=closed)


class _ResponseParser:
    """Collects the callbacks of httptools; the `on_…` names are required by httptools."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._out = ParsedResponse()
        self._ns = 0
        self._contents = 0
        self._contentless_bytes = 0

    def feed(self, data: bytes, ns: int) -> None:
        """Parse bytes of one read."""
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

    def check_contentless(self, data: bytes) -> None:
        """Mark the response as invalid if too many bytes in a row had no content. `data`: the read that was fed.

        httptools joins a header or trailer from its pieces, in a time that grows with the square of its length.
        """
        contents = self.contents()
        self._contentless_bytes = self._contentless_bytes + len(data) if contents == self._contents else 0
        self._contents = contents
        if self._contentless_bytes > MAX_HEAD_BYTES and not self._out.complete and self._out.broken is None:
            self._out.broken = f"the response has {LONG_HEAD} in a row that are not content"

    def contents(self) -> int:
        """Return the number of pieces of the body so far."""
        return len(self._out.arrivals)

    def ended(self, *, closed: bool) -> ParsedResponse:
        """Return the response after the last read. Nothing can be fed afterwards."""
        out = self._out
        del self._parser  # It refers back to this object, and collecting hundreds of answers as garbage takes 0.1 s.
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


class EndDetector(_ResponseParser):
    """Finds the end of a response without collecting its body."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces = 0

    def on_body(self, data: bytes) -> None:  # noqa: ARG002 -- the signature of httptools
        self._pieces += 1

    def contents(self) -> int:
        return self._pieces

    @property
    def is_over(self) -> bool:
        """Whether the response is complete or invalid; what follows is ignored."""
        return self._out.complete or self._out.broken is not None
