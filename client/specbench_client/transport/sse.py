"""Server-sent events from stamped bytes.

Framing works on the joined bytes and maps the place where an event was complete back to the read that brought it. So
the events are the same however the network cut the bytes, by construction, and an event's time is that of the read
which completed it. Engines send one `data:` line an event; streams of that form are split by the C library at once,
and every other form goes line by line, to the same result.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from specbench_api.errors import SpecbenchError
from specbench_client.transport.exchange import Arrival

DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELDS = frozenset({"data", "event", "id", "retry"})
_PREFIX = b"data: "
_SHOWN = 120


class MalformedStream(SpecbenchError):
    """What came is not a stream of server-sent events."""


class Event(NamedTuple):
    """One event's data, and the arrival of the read that completed it (monotonic ns, absolute)."""

    ns: int
    data: str


_event: Callable[[tuple[int, str]], Event] = partial(tuple.__new__, Event)
"""As `Event`, without a call into Python: there are as many as there are chunks."""


def events(arrivals: Sequence[Arrival]) -> list[Event]:
    """All complete events with data. What follows the last blank line is no event, but for a bare [DONE]."""
    body = b"".join([arrival.data for arrival in arrivals])
    ends = list(accumulate([len(arrival.data) for arrival in arrivals]))
    plain = _plain(body)
    framed = _framed(body) if plain is None else plain
    return [_event((arrivals[bisect_left(ends, end)][0], data)) for end, data in framed]


def _plain(body: bytes) -> list[tuple[int, str]] | None:
    """As `_framed`, for a stream of nothing but `data: …` and blank lines; None where it is anything else."""
    parts = body.split(b"\n\n")
    is_plain = (
        parts.pop() == b""
        and b"\r" not in body
        and body.count(b"\n") == 2 * len(parts)
        and all(part.startswith(_PREFIX) for part in parts)
    )
    if not is_plain:
        return None
    try:
        data = [part[len(_PREFIX) :].decode() for part in parts]
    except UnicodeDecodeError:
        return None
    return list(zip(accumulate([len(part) + 2 for part in parts]), data, strict=True))


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
