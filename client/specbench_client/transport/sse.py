"""Server-sent events from stamped bytes.

Framing works on the joined bytes and maps the place where an event was complete back to the read that brought it. So
the events are the same however the network cut the bytes, by construction, and an event's time is that of the read
which completed it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from specbench_api.errors import SpecbenchError
from specbench_client.transport.exchange import Arrival

DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELDS = frozenset({"data", "event", "id", "retry"})
_SHOWN = 120


class MalformedStream(SpecbenchError):
    """What came is not a stream of server-sent events."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event's data, and the arrival of the read that completed it (monotonic ns, absolute)."""

    ns: int
    data: str


def events(arrivals: Sequence[Arrival]) -> list[Event]:
    """All complete events with data. What follows the last blank line is no event, but for a bare [DONE]."""
    body = b"".join(arrival.data for arrival in arrivals)
    ends = list(accumulate(len(arrival.data) for arrival in arrivals))
    return [Event(arrivals[bisect_left(ends, end)].ns, data) for end, data in _framed(body)]


def _framed(body: bytes) -> Iterator[tuple[int, str]]:
    """Each event's data with the count of bytes that had to be there for it."""
    data: list[str] = []
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    for end in _LINE_END.finditer(body, start):
        line = body[start : end.start()]
        start = end.end()
        if line:
            data += _data_of(_decoded(line))
        elif data:
            yield end.start() + 1, "\n".join(data)
            data = []
    rest = body[start:].decode(errors="replace")
    last = "\n".join([*data, *([rest.removeprefix("data:").removeprefix(" ")] if rest.startswith("data:") else [])])
    if last.strip() == DONE:
        yield len(body), DONE


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise MalformedStream(f"not UTF-8: {line[:_SHOWN]!r}") from error


def _data_of(line: str) -> list[str]:
    """The data of one line: one string or none."""
    name, _, value = line.partition(":")
    if name == "data":
        return [value.removeprefix(" ")]
    if name and name not in _FIELDS:
        raise MalformedStream(f"not an event stream: {line[:_SHOWN]!r}")
    return []
