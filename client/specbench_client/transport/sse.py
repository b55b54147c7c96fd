"""Server-sent events from stamped bytes.

Framing works on the joined bytes and maps the place where an event was complete back to the read that brought it. So
the events are the same however the network cut the bytes, by construction, and an event's time is that of the read
which completed it. Engines send one `data:` line an event; streams of that form are split by the C library at once,
and every other form goes line by line, to the same result.

The rules are the HTML standard's (WHATWG, 9.2.6): three line ends, several data lines an event, a byte order mark, and
comments and unknown fields that are passed over. Stricter in three places, where an answer would else be miscounted or
its failure be lost: data that is no UTF-8, a body of nothing but unknown lines (a page of HTML), and a field `error`,
by which older servers of llama.cpp say in mid-stream that they failed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from specbench_api.errors import SpecbenchError
from specbench_client.transport.exchange import Arrival

DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KNOWN = frozenset({b"", b"data", b"event", b"id", b"retry"})
"""Names of fields; a comment has the empty one."""
_FAILED = b"error"
_PREFIX = b"data: "
_SHOWN = 120


class MalformedStream(SpecbenchError):
    """What came is not a stream of server-sent events."""


class Event(NamedTuple):
    """One event's data, and the arrival of the read that completed it (monotonic ns, absolute).

    `gathered`: that read brought more after it, and its time is that of what it brought last.
    """

    ns: int
    data: str
    gathered: bool = False


_event: Callable[[tuple[int, str, bool]], Event] = partial(tuple.__new__, Event)
"""As `Event`, without a call into Python: there are as many as there are chunks."""


def events(arrivals: Sequence[Arrival]) -> list[Event]:
    """All complete events with data. What follows the last blank line is no event, but for a bare [DONE].

    An event may have empty data, as the standard wants it. Raises MalformedStream.
    """
    body = b"".join([arrival.data for arrival in arrivals])
    plain = _plain(body)
    return _stamped(arrivals, _framed(body) if plain is None else plain)


def _stamped(arrivals: Sequence[Arrival], framed: Iterable[tuple[int, str]]) -> list[Event]:
    """Each event with its time. Bytes of one read share their time, also where its framing cut them into several."""
    ends = list(accumulate([len(arrival.data) for arrival in arrivals]))
    times: list[int | None] = [arrival.ns for arrival in arrivals]
    times.append(None)  # nothing comes after the last one
    found = []
    for end, data in framed:
        at = bisect_left(ends, end)
        ns = arrivals[at][0]
        found.append(_event((ns, data, ends[at] > end or times[at + 1] == ns)))
    return found


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
    came, unknown = False, b""
    start = len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0
    for end in _LINE_END.finditer(body, start):
        line = body[start : end.start()]
        start = end.end()
        name, _, value = line.partition(b":")
        if name == b"data":
            came = True
            data.append(_decoded(value.removeprefix(b" "), line))
        elif name == _FAILED:
            raise MalformedStream(f"the stream says that it failed: {_shown(line)}")
        elif not line and data:
            yield end.end(), "\n".join(data)
            data = []
        elif name not in _KNOWN:
            unknown = unknown or line
    last = "\n".join([*data, *_rest(body[start:])])
    if last.strip() == DONE:
        yield len(body), DONE
    elif unknown and not came:
        raise MalformedStream(f"not an event stream: {_shown(unknown)}")


def _rest(line: bytes) -> list[str]:
    """The data of a last line that has no end: one string or none."""
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ").decode(errors="replace")] if name == b"data" else []


def _decoded(value: bytes, line: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedStream(f"not UTF-8: {line[:_SHOWN]!r}") from error


def _shown(line: bytes) -> str:
    return line[:_SHOWN].decode(errors="replace")
