"""Our own sockets: the same answer however it was cut on its way, times from the kernel, nothing left open."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench_client.cooperative import run_to_completion
from specbench_client.errors import BadInput
from specbench_client.transport.exchange import ErrorClass, HttpExchange, HttpRequest, TimestampSource
from specbench_client.transport.http_connection import ParsedResponse, parse_response
from specbench_client.transport.kernel_timestamps import (
    CLOCK_STEP_NS,
    KernelClock,
    PollPass,
    arrival_times,
    wall_clock_offset_ns,
)
from specbench_client.transport.kernel_transport import KernelTransport, encode_request
from specbench_client.transport.sse import parse_events
from specbench_testing.scripted_server import Script, ScriptAction, serve_scripts

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


WALL_NS = 1_700_000_000 * 10**9
CLOCKS_APART_NS = 1_000_000
"""The kernel's stamps come over from the wall clock."""


def stamp(ns: int) -> bytes:
    """The kernel's struct timespec for a moment on a monotonic clock that is WALL_NS behind the wall clock."""
    seconds, rest = divmod(WALL_NS + ns, 10**9)
    return seconds.to_bytes(8, sys.byteorder) + rest.to_bytes(8, sys.byteorder)


async def exchanged(*script: bytes | ScriptAction, body: bytes = b"{}") -> HttpExchange:
    async with serve_scripts(script) as (url, heard), KernelTransport() as transport:
        unread = await transport.exchange(HttpRequest(url, body))
        assert heard.requests[0][1] == body
        return run_to_completion(unread.read())


def parsed(wire: bytes, cuts: list[int], *, closed: bool = True) -> ParsedResponse:
    places = [0, *sorted({min(cut, len(wire)) for cut in cuts}), len(wire)]
    reads = [wire[start:end] for start, end in pairwise(places) if end > start]
    return run_to_completion(parse_response(reads, list(range(len(reads))), closed=closed))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 140), max_size=6, unique=True))
async def test_an_answer_is_whole_however_it_was_cut(cuts: list[int]) -> None:
    wire = b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunk(b"data: 1\n\n") + chunk(b"data: 2\n\n") + b"0\r\n\r\n"
    places = [0, *sorted({min(cut, len(wire)) for cut in cuts}), len(wire)]
    exchange = await exchanged(*(wire[start:end] for start, end in pairwise(places)), ScriptAction.STALL)
    assert (exchange.status, exchange.error) == (200, None)
    assert b"".join(one.data for one in exchange.arrivals) == b"data: 1\n\ndata: 2\n\n"


async def test_the_end_of_a_chunked_body_is_seen_though_the_server_keeps_the_connection() -> None:
    exchange = await exchanged(HEAD, chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n", ScriptAction.STALL)
    assert exchange.error is None


async def test_an_end_that_comes_in_pieces_is_one() -> None:
    exchange = await exchanged(
        HEAD, chunk(b"data: [DONE]\n\n") + b"0\r\n", ScriptAction.WAIT, b"\r\n", ScriptAction.STALL
    )
    assert exchange.error is None
    assert exchange.ended_ns > exchange.arrivals[-1].ns, "it ended with the last piece, and was not given up"


async def test_an_answer_that_speaks_of_its_end_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_client.transport.http_connection.LINGER_AFTER_DONE_NS", 50_000_000)
    event = chunk(b'data: {"text": "\\ndata: [DONE]"}\n\n')
    parts = [part for _ in range(25) for part in (event, ScriptAction.WAIT)]
    exchange = await exchanged(HEAD, *parts, chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n", ScriptAction.STALL)
    assert exchange.error is None
    assert len(exchange.arrivals) == 26


async def test_an_answer_that_was_whole_before_the_connection_broke_is_an_answer() -> None:
    exchange = await exchanged(HEAD + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", ScriptAction.RESET)
    assert exchange.error is None


async def test_the_bytes_of_an_end_inside_a_chunk_do_not_end_the_answer() -> None:
    tricky = b"x" * 10 + b"0\r\n\r\n"
    first, rest = chunk(tricky)[:-2], chunk(tricky)[-2:]
    exchange = await exchanged(HEAD, first, rest, chunk(b"more"), b"0\r\n\r\n", ScriptAction.STALL)
    assert b"".join(one.data for one in exchange.arrivals) == tricky + b"more"


@pytest.mark.parametrize("cut", [0, 3])
async def test_a_stream_that_says_it_is_done_and_goes_on_ends_there(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    monkeypatch.setattr("specbench_client.transport.http_connection.LINGER_AFTER_DONE_NS", 50_000_000)
    done = chunk(b"data: [DONE]\n\n")
    pings: Script = [act for _ in range(3) for act in (chunk(b": ping\n\n"), ScriptAction.WAIT)]
    parts: Script = [
        chunk(b"data: 1\n\n"),
        ScriptAction.WAIT,
        done[: 12 + cut],
        ScriptAction.WAIT,
        done[12 + cut :],
        ScriptAction.WAIT,
    ]
    exchange = await exchanged(HEAD, *parts, *pings, ScriptAction.STALL)
    assert exchange.error is None
    body = b"".join(one.data for one in exchange.arrivals)
    assert body.startswith(b"data: 1\n\ndata: [DONE]")
    assert b"ping" not in body


async def test_a_broken_chunk_and_a_closed_connection_are_malformed() -> None:
    exchange = await exchanged(HEAD, chunk(b"data: x\n\n"), b"zz\r\n")
    assert exchange.error_class is ErrorClass.MALFORMED


async def test_a_body_with_a_length_ends_with_its_last_byte() -> None:
    exchange = await exchanged(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc", b"def", ScriptAction.STALL)
    assert (exchange.error, b"".join(one.data for one in exchange.arrivals)) == (None, b"abcdef")


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    exchange = await exchanged(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def")
    assert (exchange.error, b"".join(one.data for one in exchange.arrivals)) == (None, b"abcdef")


@pytest.mark.parametrize("status", [101, 204, 304])
async def test_an_answer_that_has_no_body_ends_with_its_head_on_a_connection_that_is_kept(status: int) -> None:
    head = b"HTTP/1.1 %d X\r\nConnection: keep-alive, upgrade\r\nUpgrade: h2c\r\n\r\n" % status
    async with serve_scripts([head, ScriptAction.STALL]) as (url, _), KernelTransport(idle_timeout_s=3) as transport:
        unread = await transport.exchange(HttpRequest(url, b""))
    assert unread.error_class is None, "it was not waited for until the timeout"
    exchange = run_to_completion(unread.read())
    assert (exchange.status, exchange.error_class) == (status, ErrorClass.MALFORMED)


async def test_what_follows_the_end_is_not_part_of_the_answer() -> None:
    exchange = await exchanged(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 500 X\r\n\r\n")
    assert (exchange.status, exchange.error, len(exchange.arrivals)) == (200, None, 1)


async def test_a_prompt_larger_than_the_sockets_buffer_is_sent_whole() -> None:
    exchange = await exchanged(HEAD, b"0\r\n\r\n", body=b"x" * 8_000_000)
    assert exchange.error is None


async def test_the_times_are_the_kernels_and_lie_between_sending_and_reading() -> None:
    before_ns = time.monotonic_ns()
    exchange = await exchanged(HEAD, chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), b"0\r\n\r\n")
    assert exchange.timestamp_source == TimestampSource.KERNEL
    assert exchange.sent_ns is not None
    times = [before_ns, exchange.sent_ns, *(one.ns for one in exchange.arrivals), exchange.ended_ns]
    assert times == sorted(times)
    assert exchange.ended_ns <= time.monotonic_ns()


def await_receipt(connection: socket.socket) -> None:
    """Return when the other side's kernel has received all that was sent, whether or not anybody read it."""
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        time.sleep(0.001)


async def test_times_are_when_bytes_came_not_when_we_got_to_read_them() -> None:
    """The loop sleeps through the arrival of both chunks, as a busy client does."""
    pause_s = 0.05
    server = socket.create_server(("127.0.0.1", 0))
    async with KernelTransport() as transport:
        asking = asyncio.create_task(
            transport.exchange(HttpRequest(f"http://127.0.0.1:{server.getsockname()[1]}", b""))
        )
        accepted = asyncio.get_running_loop().run_in_executor(None, server.accept)
        connection, _ = await accepted
        began_ns = time.monotonic_ns() - CLOCKS_APART_NS
        for data in (HEAD, chunk(b"a"), chunk(b"b") + b"0\r\n\r\n"):
            connection.sendall(data)
        await_receipt(connection)
        received_ns = time.monotonic_ns()
        time.sleep(pause_s)  # noqa: ASYNC251 -- the very thing that is tried
        exchange = run_to_completion((await asking).read())
        connection.close()
    server.close()
    assert exchange.timestamp_source == TimestampSource.KERNEL
    assert began_ns < exchange.ended_ns < received_ns + CLOCKS_APART_NS


async def test_a_read_that_gathered_several_writes_has_the_time_of_the_last_one() -> None:
    """What the kernel does, and why a chunk with something after it in its read is marked as coalesced."""
    pause_s = 0.05
    server = socket.create_server(("127.0.0.1", 0))
    async with KernelTransport() as transport:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        asking = asyncio.create_task(transport.exchange(HttpRequest(url, b"")))
        connection, _ = await asyncio.get_running_loop().run_in_executor(None, server.accept)
        began_ns = time.monotonic_ns()
        connection.sendall(HEAD + chunk(b"data: 1\n\n"))
        time.sleep(pause_s)  # noqa: ASYNC251 -- the client must not read in between
        connection.sendall(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await_receipt(connection)
        exchange = run_to_completion((await asking).read())
        connection.close()
    server.close()
    assert len({exchange.first_byte_ns, exchange.ended_ns, *(one.ns for one in exchange.arrivals)}) == 1
    assert exchange.ended_ns - began_ns > pause_s * 1e9 / 2
    assert [event.coalesced for event in parse_events(exchange.arrivals)] == [True, False]


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with serve_scripts([HEAD, ScriptAction.STALL]) as (url, heard), KernelTransport() as transport:
        asking = asyncio.create_task(transport.exchange(HttpRequest(url, b"")))
        while not heard.requests:  # noqa: ASYNC110 -- the server has no event to wait for
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert transport._poller is not None
        assert not transport._poller.open_connections()


async def test_a_transport_that_is_closed_ends_what_is_open() -> None:
    async with serve_scripts([HEAD, ScriptAction.STALL]) as (url, heard):
        async with KernelTransport() as transport:
            asking = asyncio.create_task(transport.exchange(HttpRequest(url, b"")))
            while not heard.requests:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0)
        assert run_to_completion((await asking).read()).error_class is ErrorClass.RESET


async def test_a_name_with_several_addresses_leads_to_the_one_that_answers() -> None:
    async with serve_scripts([HEAD, b"0\r\n\r\n"]) as (url, _), KernelTransport() as transport:
        named = url.replace("127.0.0.1", "localhost")
        assert run_to_completion((await transport.exchange(HttpRequest(named, b""))).read()).error is None


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "\0"])
def test_a_header_with_a_line_break_is_refused(value: str) -> None:
    with pytest.raises(BadInput, match="X-Key"):
        encode_request(HttpRequest("http://h/", b"", {"X-Key": value}))


def test_a_header_is_sent_once_in_whatever_case_it_was_given() -> None:
    head = encode_request(HttpRequest("http://h/", b"", {"accept": "*/*"})).lower()
    assert head.count(b"accept:") == 1
    assert b"accept: */*" in head


def test_the_request_is_plain_http() -> None:
    head, _, body = encode_request(HttpRequest("http://h:1/v1/x?a=b", b"{}", {"X-Request-Id": "r"})).partition(
        b"\r\n\r\n"
    )
    assert head.split(b"\r\n")[0] == b"POST /v1/x?a=b HTTP/1.1"
    assert {b"Host: h:1", b"Content-Length: 2", b"Connection: close", b"X-Request-Id: r"} <= set(head.split(b"\r\n"))
    assert body == b"{}"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 500), max_size=20))
def test_framing_gives_the_same_body_for_every_way_of_cutting(bodies: list[bytes], cuts: list[int]) -> None:
    wire = HEAD + b"".join(map(chunk, bodies)) + b"0\r\n\r\n"
    found = parsed(wire, cuts)
    assert found.complete
    assert b"".join(one.data for one in found.arrivals) == b"".join(bodies)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_framing_takes_any_bytes_without_an_error(wire: bytes, cuts: list[int]) -> None:
    parsed(wire, cuts)


@pytest.mark.parametrize(
    "wire", [HEAD, HEAD + b"4\r\nab", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b"HTTP/1.1 2"]
)
def test_an_answer_that_was_cut_off_is_not_complete(wire: bytes) -> None:
    assert not parsed(wire, []).complete


def test_a_stamp_is_brought_to_the_monotonic_clock() -> None:
    poll_passes = [PollPass(1_000, WALL_NS), PollPass(2_000, WALL_NS)]
    assert arrival_times([stamp(900), stamp(1_500)], poll_passes) == ([900, 1_500], True)


def test_bytes_that_came_while_we_were_reading_others_keep_their_stamp() -> None:
    assert arrival_times([stamp(1_700)], [PollPass(1_000, WALL_NS, until_ns=1_800)]) == ([1_700], True)


@pytest.mark.parametrize("told", [b"", stamp(10**12), b"short"])
def test_a_read_without_a_possible_stamp_gets_our_own_time_and_the_lower_grade(told: bytes) -> None:
    poll_passes = [PollPass(1_000, WALL_NS), PollPass(2_000, WALL_NS)]
    assert arrival_times([stamp(900), told], poll_passes) == ([900, 2_000], False)


def test_a_stamp_from_before_the_request_was_sent_is_of_a_clock_that_was_set() -> None:
    poll_passes = [PollPass(1_000, WALL_NS)]
    assert arrival_times([stamp(900)], poll_passes, since_ns=900) == ([900], True)
    assert arrival_times([stamp(900)], poll_passes, since_ns=901) == ([1_000], False)


def test_a_read_while_the_clock_was_set_gets_our_own_time() -> None:
    assert arrival_times([stamp(900)], [PollPass(1_000, None)]) == ([1_000], False)


def test_of_no_reads_there_are_no_times() -> None:
    assert arrival_times([], []) == ([], True)


def test_a_clock_that_was_set_gives_the_lower_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "specbench_client.transport.kernel_timestamps"
    real = wall_clock_offset_ns()
    distances = iter([real, real + 1_000, real + 2 * CLOCK_STEP_NS])
    now = iter([0, 10**9, 2 * 10**9])
    monkeypatch.setattr(f"{module}.wall_clock_offset_ns", lambda: next(distances))
    monkeypatch.setattr(f"{module}.time.monotonic_ns", lambda: next(now))
    clock = KernelClock()
    assert clock.start_pass().offset_ns == real + 1_000
    assert clock.start_pass().offset_ns is None


def test_times_of_a_connection_never_run_backwards() -> None:
    poll_passes = [PollPass(1_000, WALL_NS), PollPass(2_000, WALL_NS)]
    assert arrival_times([stamp(900), stamp(800)], poll_passes)[0] == [900, 900]
