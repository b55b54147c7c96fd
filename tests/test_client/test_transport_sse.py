"""Server-sent events: independent of how bytes are split, with the time of the read that completed them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.sse import MalformedStream, NotAnEventStream, SseEvent, parse_events
from specbench_testing.engine_streams import arrivals

LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
DATA = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=3)


def events_of(reads: Sequence[ReceivedBytes]) -> list[SseEvent]:
    return parse_events(reads)


def data_of(body: bytes, *cuts: int) -> list[str]:
    return [event.data for event in events_of(arrivals(body, cuts))]


@given(st.lists(DATA, max_size=5), LINE_ENDS, st.lists(st.integers(0, 400), max_size=30))
def test_events_do_not_depend_on_how_the_bytes_are_split(expected: list[list[str]], end: str, cuts: list[int]) -> None:
    body = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in expected).encode()
    assert data_of(body, *cuts) == ["\n".join(lines) for lines in expected]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_arbitrary_bytes_give_events_or_a_malformed_stream_error(body: bytes, cuts: list[int]) -> None:
    outcomes = []
    for places in ([], cuts):
        try:
            outcomes.append(data_of(body, *places))
        except MalformedStream as error:
            outcomes.append([str(error)])
    assert outcomes[0] == outcomes[1]


def test_event_has_the_time_of_its_last_read_and_is_marked_if_coalesced() -> None:
    reads = [
        ReceivedBytes(10, b"data: a"),
        ReceivedBytes(20, b"\n"),
        ReceivedBytes(30, b"\ndata: b\n\nda"),
        ReceivedBytes(40, b"ta: c\n\n"),
    ]
    assert events_of(reads) == [
        SseEvent(30, "a", coalesced=True),
        SseEvent(30, "b", coalesced=True),
        SseEvent(40, "c"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_event_at_the_end_of_its_read_is_not_coalesced(end: str) -> None:
    """Pieces with equal times come from one read, even if HTTP framing splits them."""
    one, two = (f"data: {name}{end}{end}".encode() for name in "ab")
    assert [event.coalesced for event in events_of([ReceivedBytes(1, one), ReceivedBytes(2, two)])] == [False, False]
    assert [event.coalesced for event in events_of([ReceivedBytes(1, one), ReceivedBytes(1, two)])] == [True, False]
    assert [event.coalesced for event in events_of([ReceivedBytes(1, one), ReceivedBytes(1, b": ping")])] == [True]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", ["YHOO\n+2\n10"]),
        (": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         ["first event", "second event", " third event"]),
        ("data\n\ndata\ndata\n\ndata:", ["", "\n"]),
        ("data:test\n\ndata: test\n\n", ["test", "test"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_examples_of_the_standard_are_parsed(body: str, expected: list[str], end: str) -> None:
    """WHATWG HTML, section 9.2.6, with each of its three line ends."""
    wire = body.replace("\n", end).encode()
    assert data_of(wire) == expected
    assert data_of(b"\xef\xbb\xbf" + wire, *range(len(wire))) == expected, (
        "with a byte order mark, split into single bytes"
    )


@pytest.mark.parametrize("line", [b"x-trace: 7", b"id: 1", b"retry: 3", b"event: delta", b": \xff", b"nonsense"])
def test_fields_ignored_by_the_standard_do_not_lose_the_data(line: bytes) -> None:
    assert data_of(line + b"\ndata: a\n" + line + b"\n\n" + line + b"\n\ndata: b\n\n") == ["a", "b"]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ('error: {"code": 500}', {"code": 500}),
        ('event: error\ndata: {"code": 500}', {"code": 500}),
        ('data: {"code": 500}\nevent: error', {"code": 500}),
        ("event: error\ndata: out of memory\ndata: sorry", "out of memory\nsorry"),
        ("event: error\n: out of memory", "out of memory"),
        ("event:error", "no reason is given"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_error_event_becomes_data(event: str, error: Any, end: str) -> None:
    wire = f"data: a\n\n{event}\n\ndata: b\n\n".replace("\n", end).encode()
    found = data_of(wire)
    assert (found[0], json.loads(found[1])["error"], len(found)) == ("a", error, 2)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_objects_without_a_blank_line_between_are_events(end: str) -> None:
    wire = end.join(['data: {"a": 1}', 'data: {"b": [', "data: {}]}", 'data: {"c": 1}', "data: [DONE]", ""]).encode()
    events = events_of([ReceivedBytes(at, bytes([byte])) for at, byte in enumerate(wire)])
    assert [event.data for event in events] == ['{"a": 1}', '{"b": [\n{}]}', '{"c": 1}', "[DONE]"]
    assert events[0].ns == wire.index(b"data", 1) - 1, "the time is that of the line end"


def test_last_whole_object_needs_no_blank_line() -> None:
    assert data_of(b'data: {"a": 1}\n\ndata: {"b": 1}\n') == ['{"a": 1}', '{"b": 1}']


@pytest.mark.parametrize("padding", [b" ", b"\0", b"\0\0 \n", b"\xef\xbb\xbf"])
def test_padding_before_a_line_is_ignored(padding: bytes) -> None:
    assert data_of(b"data: a\n\n" + padding + b"data: b\n\n" + padding) == ["a", "b"]


@pytest.mark.parametrize("page", ["<html>\n<h1>502: Bad Gateway</h1>\n", "upstream error: reset", "<p>\n{\n}\n"])
def test_page_after_data_is_an_event(page: str) -> None:
    assert data_of(b"data: a\n\n" + page.encode()) == ["a", page]
    assert data_of(b'data: a\n\n{"error": 1}\n<p>\n') == ["a", '{"error": 1}']


@pytest.mark.parametrize("rest", [b"data: {", b"data: x", b"data: x\n"])
def test_data_after_the_last_blank_line_is_no_event(rest: bytes) -> None:
    assert data_of(b"data: x\n\n" + rest) == ["x"]


@pytest.mark.parametrize("rest", [b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE]"])
def test_done_marker_needs_no_blank_line(rest: bytes) -> None:
    assert data_of(b"data: x\n\n" + rest) == ["x", "[DONE]"]


@pytest.mark.parametrize(
    ("body", "excerpt"),
    [
        (b"<html>\n\n", r"b'<html>\n\n'"),
        (b"<html>login</html>", "b'<html>login</html>'"),
        (b"\x00\x01garbage\xff", r"b'\x00\x01garbage\xff'"),
        (b'{"id": "x"}', """b'{"id": "x"}'"""),
        (b"data-less", "b'data-less'"),
        (b"\n" + b"a" * 1000, "b'\\n" + "a" * 119 + "'"),
    ],
)
def test_body_that_is_no_event_stream_is_reported_with_its_first_bytes(body: bytes, excerpt: str) -> None:
    with pytest.raises(NotAnEventStream) as caught:
        data_of(body)
    assert str(caught.value) == f"it begins with {excerpt}"


@pytest.mark.parametrize("body", [b"", b"da", b"data", b"data: {", b": ping", b": ping\n\n", b"id: 1\n", b"retry: "])
def test_beginning_of_an_event_stream_has_no_events(body: bytes) -> None:
    assert data_of(body) == []


@pytest.mark.parametrize("body", [b"<html>\n\n", b'{"error": "no"}\n', b"data: \xff\xfe\n\n"])
def test_invalid_event_stream_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedStream):
        data_of(body)
