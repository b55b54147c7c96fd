"""Server-sent events: the same however the bytes were cut, timed by the read that completed them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.transport.exchange import ReceivedBytes
from specbench_client.transport.sse import MalformedStream, SseEvent, parse_events
from specbench_testing.engine_streams import arrivals

LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
DATA = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=3)


def data_of(body: bytes, *cuts: int) -> list[str]:
    return [event.data for event in parse_events(arrivals(body, cuts))]


@given(st.lists(DATA, max_size=5), LINE_ENDS, st.lists(st.integers(0, 400), max_size=30))
def test_events_are_the_same_for_every_way_of_cutting_the_bytes(
    wanted: list[list[str]], end: str, cuts: list[int]
) -> None:
    body = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in wanted).encode()
    assert data_of(body, *cuts) == ["\n".join(lines) for lines in wanted]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_any_bytes_are_events_or_a_malformed_stream(body: bytes, cuts: list[int]) -> None:
    outcomes = []
    for places in ([], cuts):
        try:
            outcomes.append(data_of(body, *places))
        except MalformedStream as error:
            outcomes.append([str(error)])
    assert outcomes[0] == outcomes[1]


def test_an_event_is_timed_by_the_read_that_completed_it_and_marked_where_that_read_went_on() -> None:
    reads = [
        ReceivedBytes(10, b"data: a"),
        ReceivedBytes(20, b"\n"),
        ReceivedBytes(30, b"\ndata: b\n\nda"),
        ReceivedBytes(40, b"ta: c\n\n"),
    ]
    assert parse_events(reads) == [
        SseEvent(30, "a", coalesced=True),
        SseEvent(30, "b", coalesced=True),
        SseEvent(40, "c"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_event_that_its_read_ends_with_was_not_gathered(end: str) -> None:
    """Bytes of one time are of one read, though its HTTP framing cut them into several pieces."""
    one, two = (f"data: {name}{end}{end}".encode() for name in "ab")
    assert [event.coalesced for event in parse_events([ReceivedBytes(1, one), ReceivedBytes(2, two)])] == [False, False]
    assert [event.coalesced for event in parse_events([ReceivedBytes(1, one), ReceivedBytes(1, two)])] == [True, False]
    assert [event.coalesced for event in parse_events([ReceivedBytes(1, one), ReceivedBytes(1, b": ping")])] == [True]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("data: YHOO\ndata: +2\ndata: 10\n\n", ["YHOO\n+2\n10"]),
        (": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         ["first event", "second event", " third event"]),
        ("data\n\ndata\ndata\n\ndata:", ["", "\n"]),
        ("data:test\n\ndata: test\n\n", ["test", "test"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_standards_own_examples_are_read_as_it_says(body: str, wanted: list[str], end: str) -> None:
    """WHATWG HTML, section 9.2.6, with each of its three line ends."""
    wire = body.replace("\n", end).encode()
    assert data_of(wire) == wanted
    assert data_of(b"\xef\xbb\xbf" + wire, *range(len(wire))) == wanted, "after a byte order mark, byte by byte"


@pytest.mark.parametrize("line", [b"x-trace: 7", b"id: 1", b"retry: 3", b"event: delta", b": \xff", b"nonsense"])
def test_what_the_standard_passes_over_does_not_lose_the_answer(line: bytes) -> None:
    assert data_of(line + b"\ndata: a\n" + line + b"\n\n" + line + b"\n\ndata: b\n\n") == ["a", "b"]


def test_an_engine_that_says_in_mid_stream_that_it_failed_is_heard() -> None:
    with pytest.raises(MalformedStream, match="out of memory"):
        data_of(b'data: a\n\nerror: {"message": "out of memory"}\n\n')


def test_comments_other_fields_and_events_without_data_are_passed_over() -> None:
    assert data_of(b": keep-alive\n\nevent: ping\nid: 1\nretry: 3\n\ndata: x\n\n") == ["x"]


def test_one_space_after_the_colon_is_not_data_and_a_second_one_is() -> None:
    assert data_of(b"data:a\n\ndata: a\n\ndata:  a \n\n") == ["a", "a", " a "]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert data_of(b"\xef\xbb\xbfdata: x\n\n") == ["x"]


@pytest.mark.parametrize("rest", [b"data: {", b"data: x", b"data: x\n"])
def test_what_follows_the_last_blank_line_is_no_event(rest: bytes) -> None:
    assert data_of(b"data: x\n\n" + rest) == ["x"]


@pytest.mark.parametrize("rest", [b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE]"])
def test_an_end_mark_needs_no_blank_line(rest: bytes) -> None:
    assert data_of(b"data: x\n\n" + rest) == ["x", "[DONE]"]


@pytest.mark.parametrize("body", [b"<html>\n\n", b'{"error": "no"}\n', b"data: \xff\xfe\n\n", b"error: {}\n\n"])
def test_what_is_no_event_stream_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedStream):
        data_of(body)
