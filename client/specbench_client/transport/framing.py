"""HTTP/1.1 out of stamped reads, by httptools (Node's llhttp), after the answer has ended.

The body's pieces keep the time of the read that brought them, so nothing here touches the stopwatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import islice

import httptools

from specbench_client.slices import SLICE, Slices
from specbench_client.transport.exchange import Arrival

_arrival: Callable[[tuple[int, bytes]], Arrival] = partial(tuple.__new__, Arrival)
"""As `Arrival`, without a call into Python: there are as many as there are chunks."""


@dataclass
class Framed:
    """What the reads hold. `complete`: the message ended where its framing says; `broken`: why it is no HTTP."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    head_ns: int | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    complete: bool = False
    broken: str | None = None


def framed(reads: Sequence[bytes], times: Sequence[int], *, closed: bool) -> Slices[Framed]:
    """Parse. `closed`: the server closed the connection after the last read, which ends a body without a length."""
    message = _Message()
    rest = zip(reads, times, strict=True)
    while part := list(islice(rest, SLICE)):
        for data, ns in part:
            message.feed(data, ns)
        yield
    return message.ended(closed=closed)


class _Message:
    """Collects what httptools calls out; its methods' names are httptools' protocol."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._out = Framed()
        self._ns = 0

    def feed(self, data: bytes, ns: int) -> None:
        """One read."""
        if self._out.broken is not None or self._out.complete:
            return  # what follows a complete answer is not ours
        self._ns = ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._out.complete = True  # what follows a 101 is another protocol's
        except httptools.HttpParserError as error:
            if not self._out.complete:
                self._out.broken = f"not HTTP/1.1: {error}"

    def ended(self, *, closed: bool) -> Framed:
        """No more reads."""
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
            self._out.arrivals.append(_arrival((self._ns, data)))

    def on_message_complete(self) -> None:
        if self._out.head_ns is not None:
            self._out.complete = True
