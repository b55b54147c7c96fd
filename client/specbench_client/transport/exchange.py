"""One request and what came of it, with its times; the protocol behind which the stopwatch is built.

An exchange never raises for a failed request: a request that fails is a result, and losing it would flatter the engine.
What a transport hands over is `Unread`: the stopwatch has stopped, and nothing of the answer is parsed yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from specbench_client.slices import Slices


class ErrorClass(StrEnum):
    """Why a request has no usable answer; the words of the record's column `error_class`."""

    REFUSED = "refused"
    """No connection: refused, unreachable, or not made in time."""
    HTTP_4XX = "http_4xx"
    """The engine refused the request."""
    HTTP_5XX = "http_5xx"
    """The engine failed; also where it says so in mid-stream."""
    RESET = "reset"
    """The connection was lost before the answer had ended."""
    TIMEOUT = "timeout"
    """Nothing came for as long as the idle timeout, or the answer took longer than the total one."""
    MALFORMED = "malformed"
    """What came is not the protocol."""
    TRUNCATED_STREAM = "truncated_stream"
    """The stream ended in order, yet before it was complete: no [DONE], or no usage."""
    SKIPPED_AFTER_ERROR = "skipped_after_error"
    """Never sent: an earlier turn of its conversation failed."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST, ready to be sent."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Clock(StrEnum):
    """Who took the times of what arrived; the words of the record's column `clock`."""

    KERNEL = "kernel"
    """The kernel, when the segment came from the network."""
    USER = "user"
    """We, when our process got to read it: as late as our event loop is."""


class Arrival(NamedTuple):
    """Bytes of the body as one read gave them, and when. `ns` is the monotonic clock, absolute."""

    ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """What happened. Times are monotonic nanoseconds, absolute; missing is None.

    `connect_ns` is when the connection was asked for, `sent_ns` when it stood and the request was handed to it;
    `first_byte_ns` is the arrival of the answer's head. `error_class` is one of `ErrorClass`, and then `error` says
    what was seen, in the engine's own words where it had any. What arrived before a failure is kept in `arrivals`.
    """

    sent_ns: int | None
    arrivals: tuple[Arrival, ...]
    status: int | None
    headers: Mapping[str, str]
    ended_ns: int
    connect_ns: int | None = None
    first_byte_ns: int | None = None
    clock: str = Clock.USER
    error_class: ErrorClass | None = None
    error: str | None = None

    def read(self) -> Slices[Exchange]:
        """It is read already."""
        return self
        yield


class Unread(Protocol):
    """A finished exchange of which nothing is parsed yet."""

    @property
    def ended_ns(self) -> int:
        """When the last byte came, or the exchange was given up."""
        ...

    @property
    def error_class(self) -> ErrorClass | None:
        """What is known before reading: how the connection failed."""
        ...

    def read(self) -> Slices[Exchange]:
        """Parse the HTTP framing. Never raises; call it once."""
        ...


class Transport(Protocol):
    """Sends one request and stamps what comes."""

    async def exchange(self, request: HttpRequest) -> Unread:
        """Never raises for a failed request; cancelling it abandons the request.

        It raises where this machine, and not the engine, could not send it.
        """
        ...
