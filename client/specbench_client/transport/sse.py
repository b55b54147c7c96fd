"""Parses server-sent events from timestamped bytes.

Events are parsed from the joined bytes, and the offset at which an event is complete is mapped back to the read that
contained it. So the events do not depend on how the network split the bytes, and an event's time is that of the read
that completed it. Engines send one `data:` line for each event: streams of that form are split with `bytes.split`, all
others are parsed line by line, with the same result.

The rules are those of the HTML standard (WHATWG, 9.2.6): three kinds of line end, several data lines for one event,
and comments. What differs is what servers do without it, where an answer would otherwise be
miscounted or its failure lost:

- Data that is not UTF-8, and a body of nothing but unknown lines (an HTML page), are errors.
- An event with the name `error`, and a field `error` (older llama.cpp servers), become data `{"error": …}`, the last.
- The first unknown line after the first data becomes an event of its own: a proxy may end a stream with its own page.
- A JSON object, or [DONE], that follows a whole JSON object begins another event, also without a blank line between.
  The last of them needs no blank line either.
- Spaces and null bytes at the beginning of a line are ignored: some servers send them to keep a connection alive. So
  is a byte order mark: some write one before each event.

Streams with more lines or events than any answer has are errors too: parsing them would take gigabytes of memory.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, repeat
from typing import NamedTuple

from specbench_api.errors import SpecbenchError
from specbench_client.transport.exchange import ReceivedBytes

DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_KNOWN_FIELDS = frozenset({b"", b"data", b"event", b"id", b"retry"})
"""Field names of the standard; a comment has an empty name."""
_ERROR = b"error"
_PADDING = b" \0\xef\xbb\xbf"  # the last three bytes are a byte order mark
_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_FIELD_NAME = re.compile(r"^(?:data)?: ?")
_JSON_END, _JSON_BEGIN = "}", "{"
_PREFIX = b"data: "
_EVENT_END = b"\n\n"
_EXCERPT_BYTES = 120
_WORDS_BYTES = 2_000
"""Longest excerpt of an error event or of a page; messages have fewer characters."""


class MalformedStream(SpecbenchError):
    """The body is not a valid stream of server-sent events."""


class NotAnEventStream(MalformedStream):
    """The body contains no line of an event stream; the message has its first bytes, escaped."""


class SseEvent(NamedTuple):
    """The data of one event, and the arrival time of the read that completed it (monotonic ns, absolute).

    `coalesced`: that read also contained later bytes, so the time is that of the last of them.
    """

    ns: int
    data: str
    coalesced: bool = False


_new_event: Callable[[tuple[int, str, bool]], SseEvent] = partial(tuple.__new__, SseEvent)
"""Constructs an SseEvent without a Python-level call: it runs once for each chunk."""


MAX_LINES = 2_000_000
"""Most lines of a stream. 131,072 tokens, each in an event of its own with a blank line, are 262,144 lines."""


def parse_events(arrivals: Sequence[ReceivedBytes]) -> list[SseEvent]:
    """Return all complete events with data.

    An event may have empty data, as in the standard. An incomplete last line is ignored, except for a bare [DONE].
    Raises MalformedStream.
    """
    body = b"".join([arrival.data for arrival in arrivals])
    if len(body) > MAX_LINES and body.count(b"\n") + body.count(b"\r") > MAX_LINES:
        raise MalformedStream(f"the stream has more than {MAX_LINES:,} lines, which no answer has")
    times = _EventTimes(arrivals)
    simple = _split_simple(body)
    try:
        return _read_simple(simple, times) if simple is not None else _read_lines(body, times)
    except UnicodeDecodeError:
        return _read_lines(body, times)


class _EventTimes:
    """Adds each event's time. Reads with the same time are one arrival."""

    def __init__(self, arrivals: Sequence[ReceivedBytes]) -> None:
        ends = accumulate([len(arrival.data) for arrival in arrivals])
        last_end_at = dict(zip([arrival.ns for arrival in arrivals], ends, strict=True))
        self._times, self._ends = list(last_end_at), list(last_end_at.values())

    def events(self, ends: Sequence[int], datas: Sequence[str]) -> list[SseEvent]:
        """Return the events with these end offsets and data."""
        arrival_ends, times = self._ends, self._times
        return [
            _new_event((times[index], data, arrival_ends[index] > end))
            for index, end, data in zip(map(bisect_left, repeat(arrival_ends), ends), ends, datas, strict=False)
        ]


def _read_simple(datas: list[bytes], times: _EventTimes) -> list[SseEvent]:
    """Return the events of a stream that `_split_simple` has split. Raises UnicodeDecodeError."""
    ends = accumulate(len(data) + len(_PREFIX) + len(_EVENT_END) for data in datas)
    return times.events(list(ends), [data.decode() for data in datas])


def _read_lines(body: bytes, times: _EventTimes) -> list[SseEvent]:
    """Return the events of any stream. Raises MalformedStream."""
    framed = list(_parse_lines(body))
    return times.events([end for end, _ in framed], [data for _, data in framed])


def _split_simple(body: bytes) -> list[bytes] | None:
    """Return the events' data of a stream of nothing but `data: …` and blank lines; None for any other stream."""
    if not (body.startswith(_PREFIX) and body.endswith(_EVENT_END)) or b"\r" in body:
        return None
    datas = body[len(_PREFIX) : -len(_EVENT_END)].split(_EVENT_END + _PREFIX)
    return datas if body.count(b"\n") == len(_EVENT_END) * len(datas) else None


def _parse_lines(body: bytes) -> Iterator[tuple[int, str]]:
    """Yield the end offset and the data of each event."""
    data: list[str] = []
    has_data, has_unknown = False, False
    start = 0
    for end in _LINE_END.finditer(body):
        begin, start = start, end.end()
        line = body[begin : end.start()].lstrip(_PADDING)
        name, _, value = line.partition(b":")
        if name == b"data":
            has_data = True
            text = _decode(value.removeprefix(b" "), line)
            if data and data[-1].endswith(_JSON_END) and text.startswith((_JSON_BEGIN, DONE)):
                yield begin, "\n".join(data)
                data = []
            data.append(text)
        elif name == _ERROR or (name == b"event" and value.strip() == _ERROR):
            yield start, _error_data(data, body[begin : begin + _WORDS_BYTES])
            return
        elif not line and data:
            yield start, "\n".join(data)
            data = []
        elif name not in _KNOWN_FIELDS:
            if has_data and not has_unknown:
                yield start, _unknown_words(line, body[begin : begin + _WORDS_BYTES])
            has_unknown = True
    yield from _last_events(body, start, "\n".join(data), has_data=has_data, has_unknown=has_unknown)


def _last_events(
    body: bytes, start: int, whole: str, *, has_data: bool, has_unknown: bool
) -> Iterator[tuple[int, str]]:
    """Yield what the end of the body completes: data without a blank line, and a last line without a line end."""
    rest = body[start:].lstrip(_PADDING)
    if whole.endswith(_JSON_END) or whole.strip() == DONE:
        yield start, whole
    name, colon, value = rest.partition(b":")
    if name == b"data" and value.strip() == DONE.encode():
        yield len(body), DONE
    is_unknown = name not in _KNOWN_FIELDS and (bool(colon) or not any(one.startswith(name) for one in _KNOWN_FIELDS))
    if not has_data and (has_unknown or is_unknown):
        raise NotAnEventStream(f"it begins with {body[:_EXCERPT_BYTES]!r}")
    if is_unknown and not has_unknown:
        yield len(body), _unknown_words(rest, rest[:_WORDS_BYTES])


def _error_data(data: list[str], rest: bytes) -> str:
    """Return the data of an event `error` as JSON. `data`: of its lines before the name; `rest`: from the name on."""
    named, *lines = _BLANK_LINE.split(rest, 1)[0].decode(errors="replace").splitlines()
    value = named.partition(":")[2].strip()
    words = [*data, value if value != "error" else "", *(_FIELD_NAME.sub("", line) for line in lines)]
    text = "\n".join(filter(None, words))
    return f'{{"error": {text if text.startswith(_JSON_BEGIN) else json.dumps(text or "no reason is given")}}}'


def _unknown_words(line: bytes, rest: bytes) -> str:
    """Return what begins with an unknown line: the line if it may be JSON, else the page that it may begin."""
    return (line if line.startswith(b"{") else rest).decode(errors="replace")


def _decode(value: bytes, line: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedStream(f"not UTF-8: {line[:_EXCERPT_BYTES]!r}") from error
