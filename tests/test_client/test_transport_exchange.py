"""The stopwatch: every way in which an exchange can end has its class, and what arrived is kept with its time."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from itertools import count
from pathlib import Path

import pytest

from specbench_client.cooperative import run_to_completion
from specbench_client.transport import aiohttp_transport, kernel_transport
from specbench_client.transport.aiohttp_transport import AiohttpTransport
from specbench_client.transport.exchange import (
    ErrorClass,
    HttpExchange,
    HttpRequest,
    OutOfSockets,
    TimestampSource,
    Transport,
)
from specbench_client.transport.kernel_transport import KernelTransport
from specbench_testing.scripted_server import HEAD, Script, ScriptAction, response, serve_scripts, unused_url

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


Kind = type[AiohttpTransport] | type[KernelTransport]
BOTH: list[Kind] = [AiohttpTransport, KernelTransport]
CLOCKS = {AiohttpTransport: TimestampSource.USER, KernelTransport: TimestampSource.KERNEL}


@pytest.fixture(params=BOTH)
def kind(request: pytest.FixtureRequest) -> Kind:
    transport: Kind = request.param
    return transport


async def asked(transport: Transport, request: HttpRequest) -> HttpExchange:
    return run_to_completion((await transport.exchange(request)).read())


async def exchanged(kind: Kind, *script: bytes | ScriptAction, idle_timeout_s: float = 20.0) -> HttpExchange:
    async with serve_scripts(script) as (url, _), kind(idle_timeout_s=idle_timeout_s) as transport:
        return await asked(transport, HttpRequest(f"{url}/v1", b"{}", {"X-Request-Id": "r"}))


def body_of(exchange: HttpExchange) -> bytes:
    return b"".join(arrival.data for arrival in exchange.arrivals)


async def test_an_answer_is_kept_as_it_came_with_its_times_in_order(kind: Kind) -> None:
    async with serve_scripts([HEAD, b"data: 1\n\n", b"data: 2\n\n"]) as (url, heard), kind() as transport:
        exchange = await asked(transport, HttpRequest(f"{url}/v1", b'{"a": 1}', {"X-Request-Id": "r-7"}))
    (head, body), *others = heard.requests
    assert not others
    assert body == b'{"a": 1}'
    assert b"X-Request-Id: r-7" in head
    assert b"Content-Type: application/json" in head
    assert b"Accept-Encoding: identity" in head
    assert (exchange.status, exchange.timestamp_source, exchange.error_class) == (200, CLOCKS[kind], None)
    assert exchange.headers["content-type"] == "text/event-stream"
    assert body_of(exchange) == b"data: 1\n\ndata: 2\n\n"
    times = [exchange.sent_ns, exchange.first_byte_ns, *(one.ns for one in exchange.arrivals), exchange.ended_ns]
    known = [time for time in times if time is not None]
    assert len(known) == len(times)
    assert known == sorted(known)


async def test_aiohttps_clock_is_the_callers() -> None:
    ticks = count()
    async with serve_scripts([HEAD, b"x"]) as (url, _), AiohttpTransport(clock=lambda: next(ticks)) as transport:
        exchange = await asked(transport, HttpRequest(url, b""))
    times = (exchange.connect_ns, exchange.sent_ns, exchange.first_byte_ns, exchange.arrivals[0].ns)
    assert times == (0, 1, 2, 3)


async def test_each_request_has_a_connection_of_its_own(kind: Kind) -> None:
    keep = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
    async with serve_scripts([keep, ScriptAction.STALL]) as (url, heard), kind() as transport:
        for _ in range(3):
            assert (await asked(transport, HttpRequest(url, b""))).error_class is None
    assert len(heard.requests) == 3


async def test_nobody_listening_is_refused(kind: Kind) -> None:
    before_ns = time.monotonic_ns()
    async with kind() as transport:
        exchange = await asked(transport, HttpRequest(unused_url(), b""))
    assert exchange.error_class is ErrorClass.REFUSED
    assert exchange.sent_ns is None
    assert exchange.connect_ns is not None
    assert before_ns <= exchange.connect_ns <= exchange.ended_ns


@pytest.mark.process
async def test_a_server_that_does_not_accept_is_told_from_a_client_that_is_late(kind: Kind) -> None:
    """Its accept queue is full, so the kernel drops our SYN: the client has done its part, and cannot send yet."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        async with kind() as transport:
            with socket.create_connection(address):
                asking = asyncio.create_task(asked(transport, HttpRequest(f"http://127.0.0.1:{address[1]}", b"")))
                while not is_connecting(address[1]):  # noqa: ASYNC110 -- the kernel has no event to wait for
                    await asyncio.sleep(0)
                accepts_ns = time.monotonic_ns()
                server.accept()[0].close()
            connection, _ = await asyncio.get_running_loop().run_in_executor(None, server.accept)
            connection.sendall(response(200, b"x"))
            exchange = await asking
            connection.close()
    assert exchange.connect_ns is not None
    assert exchange.sent_ns is not None
    assert exchange.connect_ns < accepts_ns < exchange.sent_ns


def is_connecting(port: int) -> bool:
    """Whether a socket of this machine has sent a SYN to this port, and waits."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


async def test_a_name_that_does_not_exist_is_refused(kind: Kind) -> None:
    async with kind() as transport:
        exchange = await asked(transport, HttpRequest("http://engine.invalid/v1", b""))
    assert exchange.error_class is ErrorClass.REFUSED


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ([ScriptAction.RESET], ErrorClass.RESET),
        ([], ErrorClass.RESET),
        ([CHUNKED, b"3\r\nabc\r\n", ScriptAction.RESET], ErrorClass.RESET),
        ([CHUNKED, b"4\r\nda"], ErrorClass.RESET),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"], ErrorClass.RESET),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], ErrorClass.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], ErrorClass.MALFORMED),
        ([response(302, b"elsewhere")], ErrorClass.MALFORMED),
        ([response(204, b"")], ErrorClass.MALFORMED),
        ([response(404, b"")], ErrorClass.HTTP_4XX),
        ([response(503, b"")], ErrorClass.HTTP_5XX),
    ],
)
async def test_each_failure_has_its_class(kind: Kind, script: Script, wanted: ErrorClass) -> None:
    exchange = await exchanged(kind, *script)
    assert exchange.error_class is wanted
    assert exchange.error


async def test_what_came_before_a_reset_is_kept(kind: Kind) -> None:
    exchange = await exchanged(kind, CHUNKED, b"3\r\nabc\r\n", b"4\r\nda")
    assert exchange.error_class is ErrorClass.RESET
    assert body_of(exchange).startswith(b"abc")


@pytest.mark.parametrize("script", [[ScriptAction.STALL], [HEAD, b"data: 1\n\n", ScriptAction.STALL]])
async def test_silence_is_a_timeout(kind: Kind, script: Script) -> None:
    assert (await exchanged(kind, *script, idle_timeout_s=0.05)).error_class is ErrorClass.TIMEOUT


async def test_an_answer_that_takes_too_long_in_all_is_a_timeout(kind: Kind) -> None:
    async with serve_scripts([HEAD, b"x", ScriptAction.STALL]) as (url, _), kind(total_timeout_s=0.1) as transport:
        exchange = await asked(transport, HttpRequest(url, b""))
    assert exchange.error_class is ErrorClass.TIMEOUT


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"message": "no such model"}', "no such model"),
        (b'{"detail": [{"msg": "bad"}]}', '[{"msg": "bad"}]'),
        (b"  plain words\n", "plain words"),
        (b'{"other": 1}', '{"other": 1}'),
        (b"\xff", "\ufffd"),
        (b"[" * 100_000, "[" * 488 + "…"),
    ],
)
async def test_a_refusal_is_told_in_the_engines_own_words(kind: Kind, body: bytes, words: str) -> None:
    exchange = await exchanged(kind, response(400, body))
    assert (exchange.error or "").removeprefix("HTTP 400: ")[:480] == words[:480]


async def test_words_are_cut_to_what_a_record_holds(kind: Kind) -> None:
    exchange = await exchanged(kind, response(500, b"a" * 10_000))
    assert len(exchange.error or "") == 500


async def test_a_status_that_refuses_stays_one_when_its_body_is_cut(kind: Kind) -> None:
    exchange = await exchanged(kind, b"HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\nout of memory")
    assert exchange.error_class is ErrorClass.HTTP_5XX
    assert exchange.error == "HTTP 500: out of memory"


async def test_an_answer_without_end_is_not_kept_for_ever(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (aiohttp_transport, kernel_transport):
        monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 10)
    exchange = await exchanged(kind, HEAD, b"data: 1\n\ndata: 2\n\n", ScriptAction.STALL)
    assert exchange.error_class is ErrorClass.MALFORMED
    assert "longer than 10 bytes" in (exchange.error or "")


async def test_a_client_without_sockets_does_not_blame_the_engine(kind: Kind) -> None:
    async with serve_scripts([HEAD]) as (url, _), kind() as transport:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(OutOfSockets, match="ulimit -n"):
                await asked(transport, HttpRequest(url, b""))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
