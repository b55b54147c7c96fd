"""One HTTP request, its exchange with timestamps, and the `Transport` protocol.

An exchange never raises for a failed request: a failure is a result, and losing it would flatter the engine.
A transport returns an `UnparsedExchange`: all times are taken, and nothing of the answer is parsed yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from specbench_client import __version__
from specbench_client.errors import BadInput
from specbench_client.transport.error_class import ErrorClass

USER_AGENT = f"specbench/{__version__}"
"""Firewalls reject requests without one."""


@dataclass(slots=True, eq=False)
class HttpRequest:
    """A POST request, encoded when it is made and not when it is due. Raises BadInput, see `encode_request`.

    `follow`: called at the moment at which the answer has ended, if the server keeps the connection; the request that
    it returns is sent on it at once, before any other work. Its answer is what `exchange` of that request waits for.
    """

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    follow: Callable[[], HttpRequest | None] | None = None
    message: bytes = field(init=False)
    """All bytes of the request."""

    def __post_init__(self) -> None:
        self.message = encode_request(self.url, self.body, self.headers)


def encode_request(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a POST request. Raises BadInput for a header that would break the framing."""
    parts = urlsplit(url)
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
    defaults = {
        "Host": parts.netloc.rpartition("@")[2],
        "User-Agent": USER_AGENT,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive",
    }
    given = {name.lower() for name in headers}  # Header names are case-insensitive, and each is sent once.
    sent = {**{name: value for name, value in defaults.items() if name.lower() not in given}, **headers}
    for name, value in sent.items():
        if any(mark in name + value for mark in "\r\n\0"):
            raise BadInput(f"the header {name!r} contains a line break or a null character: give it as one line")
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + body


class TimestampSource(StrEnum):
    """Where the arrival times come from; the values of the record's column `timestamp_source`."""

    KERNEL = "kernel"
    """The kernel, when the segment arrived from the network that completed the bytes, or their TLS record."""
    USER = "user"
    """The client, when it read the bytes. The delay of its event loop is included."""


class ConnectionUse(StrEnum):
    """The connection on which a request was sent; the values of the record's column `connection`."""

    NEW = "new"
    """Opened for this request: `sent_ns` minus `connect_ns` is the time to connect, with TLS if any."""
    KEPT = "kept"
    """Opened before: kept from an earlier request, or opened ahead."""
    REOPENED = "reopened"
    """The server closed the kept connection without a byte of an answer: the request was sent again on a new one."""


class ReceivedBytes(NamedTuple):
    """Bytes of the body from one read, and their arrival time `ns` (monotonic, absolute)."""

    ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HttpExchange:
    """A finished exchange. Times are monotonic nanoseconds, absolute; a missing time is None.

    `connect_ns`: connecting began. `sent_ns`: the connection was established and the request was handed to the socket.
    `first_byte_ns`: the response head arrived. With an `error_class`, `error` describes the failure, with the engine's
    own message if it sent one. `arrivals` includes what arrived before a failure.
    """

    sent_ns: int | None
    arrivals: tuple[ReceivedBytes, ...]
    status: int | None
    headers: Mapping[str, str]
    ended_ns: int
    connect_ns: int | None = None
    first_byte_ns: int | None = None
    timestamp_source: str = TimestampSource.USER
    error_class: ErrorClass | None = None
    error: str | None = None
    connection: str | None = None
    """A `ConnectionUse`; None: no connection was requested."""

    def read(self) -> HttpExchange:
        """Return itself: the exchange is parsed already."""
        return self


class UnparsedExchange(Protocol):
    """A finished exchange that is not parsed yet."""

    @property
    def ended_ns(self) -> int:
        """When the last byte arrived, or the exchange was given up."""
        ...

    @property
    def error_class(self) -> ErrorClass | None:
        """How the connection failed, as far as it is known before parsing."""
        ...

    def read(self) -> HttpExchange:
        """Parse the HTTP framing. Never raises; call it at most once."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionsAhead:
    """Connections to the server of `url` that are opened before they are needed, where connecting takes long (https).

    `first`: so many at the start; `spare`: so many are always idle, also while all others are in use.
    """

    url: str
    first: int
    spare: int


class Transport(Protocol):
    """Sends requests and timestamps their answers."""

    async def exchange(self, request: HttpRequest) -> UnparsedExchange:
        """Send one request and wait for the end of its answer. Cancelling abandons the request.

        Never raises for a failed request. Raises OutOfSockets or BadInput if this machine could not send it.
        """
        ...


# Headers that the transport sets itself. A user's value would break the framing or the measured times.

_OWN_CONNECTION = "it decides which connections are kept after an answer"
_WHOLE_BODY = "a body is sent whole, with its length"
RESERVED_HEADERS = {
    "content-length": "it is counted from the body",
    "content-type": "every body is JSON",
    "transfer-encoding": _WHOLE_BODY,
    "te": _WHOLE_BODY,
    "trailer": _WHOLE_BODY,
    "expect": _WHOLE_BODY,
    "connection": _OWN_CONNECTION,
    "keep-alive": _OWN_CONNECTION,
    "proxy-connection": _OWN_CONNECTION,
    "upgrade": _OWN_CONNECTION,
    "accept-encoding": "a compressed answer could not be timed chunk by chunk",
    "x-request-id": "each request has its own id, by which its record is found",
}
"""Header name in lower case → why users cannot set it."""


def reject_reserved_headers(names: Iterable[str]) -> None:
    """Raise BadInput for the first header that users cannot set."""
    for name in names:
        why = RESERVED_HEADERS.get(name.lower())
        if why is not None:
            raise BadInput(f"the header {name} is set by specbench itself: {why}: leave it out")
