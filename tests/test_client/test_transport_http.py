"""Kernel transport: framing independent of how bytes are split, kernel timestamps, and closed connections."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import re
import resource
import socket
import struct
import sys
import termios
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_client.errors import BadInput
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import HttpExchange, HttpRequest, TimestampSource
from specbench_client.transport.http_connection import ResponseParser
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.kernel_timestamps import (
    CLOCK_STEP_NS,
    KernelClock,
    PollPass,
    arrival_times,
    enable_kernel_timestamps,
    wall_clock_offset_ns,
)
from specbench_client.transport.limits import SOCKETS_AHEAD, raise_socket_limit
from specbench_client.transport.sse import parse_events
from specbench_testing.scripted_server import Script, ScriptAction, serve_scripts

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


WALL_NS = 1_700_000_000 * 10**9
CLOCKS_APART_NS = 1_000_000
"""Allowed error when a kernel timestamp is converted from the wall clock."""


def stamp(ns: int) -> bytes:
    """Return the kernel's struct timespec for a time on a monotonic clock that is WALL_NS behind the wall clock."""
    seconds, rest = divmod(WALL_NS + ns, 10**9)
    return seconds.to_bytes(8, sys.byteorder) + rest.to_bytes(8, sys.byteorder)


async def run_exchange(*script: bytes | ScriptAction, body: bytes = b"{}") -> HttpExchange:
    async with serve_scripts(script) as (url, server), KernelTransport() as transport:
        pending_response = await transport.exchange(HttpRequest(url, body))
        assert server.requests[0][1] == body
        return pending_response.read()


def parse_wire(wire: bytes, cuts: list[int], *, closed: bool = True) -> ResponseParser:
    places = [0, *sorted({min(cut, len(wire)) for cut in cuts}), len(wire)]
    reads = [wire[start:end] for start, end in pairwise(places) if end > start]
    return parsed(reads, closed=closed)


def parsed(reads: list[bytes], *, closed: bool) -> ResponseParser:
    parser = ResponseParser()
    for read in reads:
        parser.feed(read)
    parser.end(closed=closed)
    return parser


IDENTITY = b"HTTP/1.1 200 OK\r\ncontent-length: "
DONE = b"data: [DONE]\n\n"
CRLF_DONE = b"data: [DONE]\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "body"),
    [
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD, chunk(DONE), b"0\r\n\r\n", ScriptAction.STALL], DONE),
        ([HEAD + chunk(DONE) + b"0\r\n\r\n", ScriptAction.RESET], DONE),
        (
            [HEAD, b"8\r\n", b"xyz0\r\n\r\n", b"\r\n", chunk(b"more"), b"0\r\n\r\n", ScriptAction.STALL],
            b"xyz0\r\n\r\nmore",
        ),
        ([IDENTITY + b"6\r\n\r\nabc", b"def", ScriptAction.STALL], b"abcdef"),
        ([HEAD, chunk(DONE), b"0\r\nx-sum: 1\r\n", b"x-t: 2\r\n", b"\r\n", ScriptAction.STALL], DONE),
        ([HEAD, chunk(b"{}"), b"0\r\nx-sum: 1\r\n\r\n", ScriptAction.STALL], b"{}"),
        ([HEAD, chunk(DONE), b'00;sig=abc;q="x"\r\n\r\n', ScriptAction.STALL], DONE),
        ([HEAD, b"3;a=b\r\n{}\n\r\n0;sig\r\n\r\n", ScriptAction.STALL], b"{}\n"),
        ([HEAD, ScriptAction.WAIT, chunk(CRLF_DONE), ScriptAction.WAIT, b"0\r\n\r\n", ScriptAction.STALL], CRLF_DONE),
        ([b"HTTP/1.1 200 OK\r\n\r\nabc", b"def"], b"abcdef"),
        ([IDENTITY + b"3\r\n\r\nabcHTTP/1.1 500 X\r\n\r\n"], b"abc"),
        ([HEAD, b"3  \r\nabc\r\n0  \r\n\r\n", ScriptAction.STALL], b"abc"),
        ([b"HTTP/1.1 200 OK\r\nx-long: a\r\n b\r\ncontent-length: 3\r\n\r\nabc", ScriptAction.STALL], b"abc"),
        ([b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n3\r\nabc\r\n0\r\n\r\n", ScriptAction.STALL], b"abc"),
        (
            [
                HEAD.replace(b"coding:", b"coding :"),
                ScriptAction.WAIT,
                chunk(b"abc") + b"0\r\n\r\n",
                ScriptAction.STALL,
            ],
            b"abc",
        ),
        ([b"HTTP/1.1 200\r\nContent-Length : 3\r\n\r\nabc", ScriptAction.STALL], b"abc"),
    ],
    ids=[
        "open connection",
        "reset",
        "end marker in a chunk",
        "content length",
        "trailers",
        "trailer without done",
        "extension of the last chunk",
        "extensions without done",
        "line ends of two bytes",
        "end of connection",
        "data after the end",
        "blanks after the size of a chunk",
        "folded header line",
        "head without CR",
        "blank before the colon",
        "blank before the colon of a length, no reason phrase",
    ],
)
async def test_end_of_the_body_is_found(script: Script, body: bytes) -> None:
    exchange = await run_exchange(*script)
    assert (exchange.status, exchange.error) == (200, None)
    assert b"".join(one.data for one in exchange.arrivals) == body


def test_what_is_no_http_is_shown() -> None:
    assert "SSH-2.0" in (parse_wire(b"SSH-2.0-OpenSSH_9.6\r\n", []).broken or "")


async def test_end_of_body_split_over_reads_is_detected() -> None:
    exchange = await run_exchange(
        HEAD, chunk(b"data: [DONE]\n\n") + b"0\r\n", ScriptAction.WAIT, b"\r\n", ScriptAction.STALL
    )
    assert exchange.error is None
    assert exchange.ended_ns > exchange.arrivals[-1].ns, "the exchange ends with the last piece, not by a timeout"


async def test_done_marker_inside_an_event_does_not_end_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specbench_client.transport.http_connection.LINGER_AFTER_DONE_NS", 50_000_000)
    event = chunk(b'data: {"text": "\\ndata: [DONE]"}\n\n')
    parts = [part for _ in range(25) for part in (event, ScriptAction.WAIT)]
    exchange = await run_exchange(HEAD, *parts, chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n", ScriptAction.STALL)
    assert exchange.error is None
    assert len(exchange.arrivals) == 26


@pytest.mark.parametrize("cut", [0, 3])
async def test_data_after_the_done_event_is_not_read(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
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
    exchange = await run_exchange(HEAD, *parts, *pings, ScriptAction.STALL)
    assert exchange.error is None
    body = b"".join(one.data for one in exchange.arrivals)
    assert body.startswith(b"data: 1\n\ndata: [DONE]")
    assert b"ping" not in body


@pytest.mark.parametrize("status", [101, 204, 304])
async def test_bodiless_response_ends_with_its_head_on_an_open_connection(status: int) -> None:
    head = b"HTTP/1.1 %d X\r\nConnection: keep-alive, upgrade\r\nUpgrade: h2c\r\n\r\n" % status
    async with serve_scripts([head, ScriptAction.STALL]) as (url, _), KernelTransport(idle_timeout_s=3) as transport:
        pending_response = await transport.exchange(HttpRequest(url, b""))
    assert pending_response.error_class is None, "the transport does not wait for the timeout"
    exchange = pending_response.read()
    assert (exchange.status, exchange.error_class) == (status, ErrorClass.MALFORMED)


async def test_request_larger_than_the_socket_buffer_is_sent_completely() -> None:
    exchange = await run_exchange(HEAD, b"0\r\n\r\n", body=b"x" * 8_000_000)
    assert exchange.error is None


async def test_kernel_timestamps_are_between_sending_and_reading() -> None:
    before_ns = time.monotonic_ns()
    exchange = await run_exchange(HEAD, chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), b"0\r\n\r\n")
    assert exchange.timestamp_source == TimestampSource.KERNEL
    assert exchange.sent_ns is not None
    times = [before_ns, exchange.sent_ns, *(one.ns for one in exchange.arrivals), exchange.ended_ns]
    assert times == sorted(times)
    assert exchange.ended_ns <= time.monotonic_ns()


def await_receipt(connection: socket.socket) -> None:
    """Return when the other side's kernel has received all sent data, whether or not it was read."""
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        time.sleep(0.001)


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_timestamps_are_the_arrival_times_not_the_read_times(address: str, host: str) -> None:
    """The event loop sleeps while both chunks arrive, as in a busy client."""
    pause_s = 0.05
    server = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    async with KernelTransport() as transport:
        pending = asyncio.create_task(transport.exchange(HttpRequest(f"http://{host}:{server.getsockname()[1]}", b"")))
        accepted = asyncio.get_running_loop().run_in_executor(None, server.accept)
        connection, _ = await accepted
        began_ns = time.monotonic_ns() - CLOCKS_APART_NS
        for data in (HEAD, chunk(b"a"), chunk(b"b") + b"0\r\n\r\n"):
            connection.sendall(data)
        await_receipt(connection)
        received_ns = time.monotonic_ns()
        time.sleep(pause_s)  # noqa: ASYNC251 -- the test needs a blocked event loop
        exchange = (await pending).read()
        connection.close()
    server.close()
    assert exchange.timestamp_source == TimestampSource.KERNEL
    assert began_ns < exchange.ended_ns < received_ns + CLOCKS_APART_NS


async def test_cancelled_request_closes_its_connection() -> None:
    async with serve_scripts([HEAD, ScriptAction.STALL]) as (url, server), KernelTransport() as transport:
        pending = asyncio.create_task(transport.exchange(HttpRequest(url, b"")))
        while not server.requests:  # noqa: ASYNC110 -- the server has no event to wait for
            await asyncio.sleep(0)
        pending.cancel()
        await asyncio.wait([pending])
        assert transport._poller is not None
        assert not transport._poller.open_connections()


async def test_closing_the_transport_ends_open_exchanges() -> None:
    async with serve_scripts([HEAD, ScriptAction.STALL]) as (url, server):
        async with KernelTransport() as transport:
            pending = asyncio.create_task(transport.exchange(HttpRequest(url, b"")))
            while not server.requests:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0)
        assert (await pending).read().error_class is ErrorClass.RESET


async def test_sockets_are_polled_between_the_checks_of_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = 0

    def check(*_: object) -> None:
        nonlocal checked
        checked += 1

    monkeypatch.setattr("specbench_client.transport.http_transport.CHECKS_PER_SLICE", 2)
    monkeypatch.setattr("specbench_client.transport.http_transport.TIMEOUT_CHECK_S", 0.05)
    monkeypatch.setattr(KernelTransport, "_check_timeout", check)
    async with serve_scripts([HEAD, ScriptAction.STALL]) as (url, _), KernelTransport() as transport:
        pending = [asyncio.create_task(transport.exchange(HttpRequest(url, b""))) for _ in range(9)]
        seen = [0]
        while checked < 9:
            await asyncio.sleep(0)
            seen.append(checked)
    assert max(later - earlier for earlier, later in pairwise(seen)) == 2
    await asyncio.gather(*pending)


async def test_all_addresses_of_a_host_name_are_tried() -> None:
    async with serve_scripts([HEAD, b"0\r\n\r\n"]) as (url, _), KernelTransport() as transport:
        named = url.replace("127.0.0.1", "localhost")
        assert (await transport.exchange(HttpRequest(named, b""))).read().error is None


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "\0"])
def test_header_value_with_a_line_break_is_rejected(value: str) -> None:
    with pytest.raises(BadInput, match="X-Key"):
        HttpRequest("http://h/", b"", {"X-Key": value})


def test_given_header_replaces_the_default_in_any_case() -> None:
    head = HttpRequest("http://h/", b"", {"accept": "*/*"}).message.lower()
    assert head.count(b"accept:") == 1
    assert b"accept: */*" in head


def test_request_is_encoded_as_http_1_1() -> None:
    request = HttpRequest("http://h:1/v1/x?a=b", b"{}", {"X-Request-Id": "r"})
    head, _, body = request.message.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"POST /v1/x?a=b HTTP/1.1"
    assert {b"Host: h:1", b"Content-Length: 2", b"Connection: keep-alive", b"X-Request-Id: r"} <= set(
        head.split(b"\r\n")
    )
    assert body == b"{}"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(0, 500), max_size=20))
def test_body_does_not_depend_on_how_the_bytes_are_split(bodies: list[bytes], cuts: list[int]) -> None:
    wire = b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"".join(map(chunk, bodies)) + b"0\r\n\r\n"
    found = parse_wire(wire, cuts)
    assert found.complete
    assert b"".join(content for _, content in found.contents) == b"".join(bodies)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_parser_accepts_arbitrary_bytes_without_an_error(wire: bytes, cuts: list[int]) -> None:
    parse_wire(wire, cuts)


@pytest.mark.parametrize(
    "wire", [HEAD, HEAD + b"4\r\nab", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b"HTTP/1.1 2"]
)
def test_truncated_response_is_not_complete(wire: bytes) -> None:
    assert not parse_wire(wire, []).complete


@pytest.mark.parametrize(
    ("kept", "status", "contents"),
    [(0, None, []), (1, None, []), (2, 200, []), (3, 200, [(2, b"a")]), (4, 200, [(2, b"a"), (3, b"b")])],
)
def test_what_came_after_the_kept_reads_is_dropped(
    kept: int, status: int | None, contents: list[tuple[int, bytes]]
) -> None:
    parser = parsed([HEAD[:9], HEAD[9:], chunk(b"a"), chunk(b"b")], closed=False)
    parser.drop_after(kept)
    assert (parser.status, parser.head_read) == (status, status and 1)
    assert parser.contents == contents


def test_a_parsed_answer_leaves_no_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        assert parse_wire(HEAD + 100 * chunk(b"data: 1\n\n") + b"0\r\n\r\n", list(range(90, 900, 20))).complete
        assert gc.collect() == 0
    finally:
        gc.enable()


FIRST, SECOND = PollPass(1_000, WALL_NS), PollPass(2_000, WALL_NS)


@pytest.mark.parametrize(
    ("stamps", "passes", "since_ns", "expected"),
    [
        ([], [], 0, ([], True)),
        ([stamp(900), stamp(1_500)], [FIRST, SECOND], 0, ([900, 1_500], True)),
        ([stamp(1_700)], [PollPass(1_000, WALL_NS, until_ns=1_800)], 0, ([1_700], True)),  # during the read pass
        *(([stamp(900), bad], [FIRST, SECOND], 0, ([900, 2_000], False)) for bad in (b"", stamp(10**12), b"short")),
        ([stamp(900)], [FIRST], 900, ([900], True)),
        ([stamp(900)], [FIRST], 901, ([1_000], False)),  # before the request was sent
        ([stamp(900)], [PollPass(1_000, None)], 0, ([1_000], False)),  # the offset of the clocks is unknown
        ([stamp(900), stamp(800)], [FIRST, SECOND], 0, ([900, 900], True)),  # times never decrease
    ],
)
def test_arrivals_have_the_kernels_time_if_it_is_possible(
    stamps: list[bytes], passes: list[PollPass], since_ns: int, expected: tuple[list[int], bool]
) -> None:
    assert arrival_times(stamps, passes, since_ns=since_ns) == expected


async def test_kernel_timestamps_need_no_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    create_server = socket.create_server

    def without_ipv4(address: tuple[str, int], **options: Any) -> socket.socket:
        if ":" not in address[0]:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create_server(address, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv4)
    with await enable_kernel_timestamps() as stamped:
        assert stamped.family == socket.AF_INET6


def test_clock_step_invalidates_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "specbench_client.transport.kernel_timestamps"
    real = wall_clock_offset_ns()
    distances = iter([real, real + 1_000, real + 2 * CLOCK_STEP_NS])
    now = iter([0, 10**9, 2 * 10**9])
    monkeypatch.setattr(f"{module}.wall_clock_offset_ns", lambda: next(distances))
    monkeypatch.setattr(f"{module}.time.monotonic_ns", lambda: next(now))
    clock = KernelClock()
    assert clock.start_pass().offset_ns == real + 1_000
    assert clock.start_pass().offset_ns is None


async def test_read_of_several_writes_has_the_time_of_the_last_one() -> None:
    """This is kernel behaviour; therefore a chunk followed by other data in the same read is marked as coalesced."""
    pause_s = 0.05
    server = socket.create_server(("127.0.0.1", 0))
    async with KernelTransport() as transport:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        pending = asyncio.create_task(transport.exchange(HttpRequest(url, b"")))
        connection, _ = await asyncio.get_running_loop().run_in_executor(None, server.accept)
        began_ns = time.monotonic_ns()
        connection.sendall(HEAD + chunk(b"data: 1\n\n"))
        time.sleep(pause_s)  # noqa: ASYNC251 -- the client must not read in between
        connection.sendall(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await_receipt(connection)
        exchange = (await pending).read()
        connection.close()
    server.close()
    assert len({exchange.first_byte_ns, exchange.ended_ns, *(one.ns for one in exchange.arrivals)}) == 1
    assert exchange.ended_ns - began_ns > pause_s * 1e9 / 2
    assert [event.coalesced for event in parse_events(exchange.arrivals)] == [True, False]


def test_table_of_files_has_its_size_before_a_burst_of_connections() -> None:
    raise_socket_limit()
    (size,) = re.findall(r"^FDSize:\s*(\d+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert int(size) >= min(SOCKETS_AHEAD, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
