"""HTTP exchanges and control requests: every way they can end has an error, and received data keeps its timestamps."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from specbench_client.errors import EngineFailed
from specbench_client.known_secrets import key_remedy
from specbench_client.transport import http_transport
from specbench_client.transport.control_client import AccessRejected, ControlClient, ControlError
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.error_messages import REDIRECT_REMEDY
from specbench_client.transport.exchange import HttpExchange, HttpRequest, TimestampSource, Transport
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.limits import OutOfSockets
from specbench_client.transport.retry_after import pause_before_retry_s, retry_after_s
from specbench_testing.scripted_server import HEAD, Script, ScriptAction, response, serve_scripts, unused_url

Tls = ssl.SSLContext | None
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def send_request(transport: Transport, request: HttpRequest) -> HttpExchange:
    return (await transport.exchange(request)).read()


async def run_exchange(tls: Tls, *script: bytes | ScriptAction, idle_timeout_s: float = 20.0) -> HttpExchange:
    async with (
        serve_scripts(script, tls=tls) as (url, _),
        KernelTransport(idle_timeout_s=idle_timeout_s) as transport,
    ):
        return await send_request(transport, HttpRequest(f"{url}/v1", b"{}", {"X-Request-Id": "r"}))


def body_of(exchange: HttpExchange) -> bytes:
    return b"".join(arrival.data for arrival in exchange.arrivals)


async def test_response_is_kept_unchanged_with_ordered_timestamps(server_tls: Tls) -> None:
    async with (
        serve_scripts([HEAD, b"data: 1\n\n", b"data: 2\n\n"], tls=server_tls) as (url, server),
        KernelTransport() as transport,
    ):
        exchange = await send_request(transport, HttpRequest(f"{url}/v1", b'{"a": 1}', {"X-Request-Id": "r-7"}))
    (head, body), *others = server.requests
    assert not others
    assert body == b'{"a": 1}'
    assert b"X-Request-Id: r-7" in head
    assert b"Content-Type: application/json" in head
    assert b"Accept-Encoding: identity" in head
    assert (exchange.status, exchange.timestamp_source, exchange.error_class) == (200, TimestampSource.KERNEL, None)
    assert exchange.headers["content-type"] == "text/event-stream"
    assert body_of(exchange) == b"data: 1\n\ndata: 2\n\n"
    times = [exchange.sent_ns, exchange.first_byte_ns, *(one.ns for one in exchange.arrivals), exchange.ended_ns]
    known = [time for time in times if time is not None]
    assert len(known) == len(times)
    assert known == sorted(known)


async def test_each_http_request_has_its_own_connection() -> None:
    keep = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
    async with serve_scripts([keep, ScriptAction.STALL]) as (url, server), KernelTransport() as transport:
        for _ in range(3):
            assert (await send_request(transport, HttpRequest(url, b""))).error_class is None
    assert len(server.requests) == 3


async def test_closed_port_is_a_refused_connection(server_tls: Tls) -> None:
    before_ns = time.monotonic_ns()
    async with KernelTransport() as transport:
        exchange = await send_request(transport, HttpRequest(unused_url("https" if server_tls else "http"), b""))
    assert exchange.error_class is ErrorClass.REFUSED
    assert exchange.sent_ns is None
    assert exchange.connect_ns is not None
    assert before_ns <= exchange.connect_ns <= exchange.ended_ns


@pytest.mark.process
async def test_slow_accept_is_distinguished_from_a_late_client() -> None:
    """The accept queue is full, so the kernel drops the SYN: the client has connected on time but cannot send yet."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = server.getsockname()
        async with KernelTransport() as transport:
            with socket.create_connection(address):
                pending = asyncio.create_task(
                    send_request(transport, HttpRequest(f"http://127.0.0.1:{address[1]}", b""))
                )
                while not is_connecting(address[1]):  # noqa: ASYNC110 -- the kernel has no event to wait for
                    await asyncio.sleep(0)
                accepts_ns = time.monotonic_ns()
                server.accept()[0].close()
            connection, _ = await asyncio.get_running_loop().run_in_executor(None, server.accept)
            connection.sendall(response(200, b"x"))
            exchange = await pending
            connection.close()
    assert exchange.connect_ns is not None
    assert exchange.sent_ns is not None
    assert exchange.connect_ns < accepts_ns < exchange.sent_ns


def is_connecting(port: int) -> bool:
    """Return whether a local socket has sent a SYN to this port and waits for the answer."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


async def test_unknown_host_name_is_a_refused_connection(server_tls: Tls) -> None:
    url = f"{'https' if server_tls else 'http'}://engine.invalid/v1"
    async with KernelTransport() as transport:
        exchange = await send_request(transport, HttpRequest(url, b""))
    assert exchange.error_class is ErrorClass.REFUSED


@pytest.mark.parametrize(
    ("script", "expected_class"),
    [
        ([ScriptAction.RESET], ErrorClass.RESET),
        ([], ErrorClass.RESET),
        ([CHUNKED, b"3\r\nabc\r\n", ScriptAction.RESET], ErrorClass.RESET),
        ([CHUNKED, b"4\r\nda"], ErrorClass.RESET),
        ([CHUNKED, b"4\r\ndata\r\n", b"zz\r\n"], ErrorClass.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"], ErrorClass.RESET),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], ErrorClass.MALFORMED),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], ErrorClass.MALFORMED),
        ([response(302, b"elsewhere")], ErrorClass.MALFORMED),
        ([response(204, b"")], ErrorClass.MALFORMED),
        ([response(404, b"")], ErrorClass.HTTP_4XX),
        ([response(503, b"")], ErrorClass.HTTP_5XX),
    ],
)
async def test_each_failure_has_its_error_class(server_tls: Tls, script: Script, expected_class: ErrorClass) -> None:
    exchange = await run_exchange(server_tls, *script)
    assert exchange.error_class is expected_class
    assert exchange.error


@pytest.mark.parametrize("status", [201, 203])
async def test_a_created_or_transformed_answer_is_an_answer(server_tls: Tls, status: int) -> None:
    exchange = await run_exchange(server_tls, response(status, b"data: 1\n\n"))
    assert (exchange.status, exchange.error_class, exchange.error) == (status, None, None)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/mod\u00e8le/v1", "/mod%C3%A8le/v1"),
        ("/\u65e5/a%2Fb", "/%E6%97%A5/a%2Fb"),
        ("/a%2Fb~(c)", "/a%2Fb~(c)"),
        ("", "/"),
    ],
)
def test_path_is_percent_encoded(path: str, target: str) -> None:
    message = HttpRequest(f"http://h{path}?api-version=1", b"").message
    assert message.startswith(f"POST {target}?api-version=1 HTTP/1.1\r\nHost: h\r\n".encode())


def test_request_names_its_client_and_accepts_whole_answers() -> None:
    head = HttpRequest("http://h/", b"", {"host": "model.example"}).message.decode()
    assert "\r\nUser-Agent: specbench/" in head
    assert "\r\nAccept: text/event-stream, application/json\r\n" in head
    assert "\r\nhost: model.example\r\n" in head
    assert "Host: h" not in head


@pytest.mark.parametrize("script", [[ScriptAction.STALL], [HEAD, b"data: 1\n\n", ScriptAction.STALL]])
async def test_silence_is_a_timeout(server_tls: Tls, script: Script) -> None:
    assert (await run_exchange(server_tls, *script, idle_timeout_s=0.05)).error_class is ErrorClass.TIMEOUT


async def test_response_above_the_total_timeout_is_a_timeout(server_tls: Tls) -> None:
    async with (
        serve_scripts([HEAD, b"x", ScriptAction.STALL], tls=server_tls) as (url, _),
        KernelTransport(total_timeout_s=0.1) as transport,
    ):
        exchange = await send_request(transport, HttpRequest(url, b""))
    assert exchange.error_class is ErrorClass.TIMEOUT


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"message": "no such model"}', "no such model"),
        (b'{"detail": [{"msg": "bad"}]}', '[{"msg": "bad"}]'),
        (b'{"error": "Bad Request", "message": ["bad seed"], "statusCode": 400}', 'Bad Request: ["bad seed"]'),
        (b'{"error": "invalid_token", "error_description": "it expired"}', "invalid_token: it expired"),
        (b'{"error": {"message": "provider error", "metadata": {"raw": "too long"}}}', "provider error: too long"),
        (b'{"error": true, "message": "no such model", "detail": "no such model"}', "no such model"),
        (b"  plain words\n", "plain words"),
        (b'{"other": 1}', '{"other": 1}'),
        (b"\xff", "\ufffd"),
        (b"[" * 100_000, "[" * 488 + "…"),
        (b'{"message": "\\u001b[31mbad\\tkey\\u202e"}', r"\x1b[31mbad" + "\tkey" + r"\u202e"),
    ],
)
async def test_error_contains_the_engines_message(server_tls: Tls, body: bytes, message: str) -> None:
    exchange = await run_exchange(server_tls, response(400, body))
    assert (exchange.error or "").removeprefix("HTTP 400: ")[:480] == message[:480]
    assert len(exchange.error or "") <= 500


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("length", [0, 3, 10_000])
async def test_rejected_key_is_reported_with_the_remedy(server_tls: Tls, status: int, length: int) -> None:
    error = (await run_exchange(server_tls, response(status, b"a" * length))).error or ""
    assert error.startswith(f"HTTP {status}: aaa" if length else f"HTTP {status}: {key_remedy()}")
    assert error.endswith(f": {key_remedy()}")
    assert len(error) <= 500


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("http://other/v1", "http://other/v1"),
        ("/v1/chat/completions/?api-version=1", "{server}/v1/chat/completions/?api-version=1"),
        ("v2/chat/completions", "{server}/v2/chat/completions"),
        ("//other/v1", "{scheme}://other/v1"),
    ],
)
async def test_redirect_is_reported_with_its_location_and_the_remedy(
    server_tls: Tls, status: int, location: str, address: str
) -> None:
    moved = f"HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    async with serve_scripts([moved], tls=server_tls) as (url, _), KernelTransport() as transport:
        exchange = await send_request(transport, HttpRequest(f"{url}/v1", b"{}"))
    assert exchange.error_class is ErrorClass.MALFORMED
    address = address.format(server=url, scheme=url.partition(":")[0])
    assert (exchange.error or "").startswith(f"HTTP {status}: redirected to {address}: give this address")


NO_ADDRESSES = ("http://[other", "//[", "ftp://other/v1", "file:///etc/hosts", "javascript:alert(1)", "http://h:99999/")


@pytest.mark.parametrize("location", ["/v1/models", "", *NO_ADDRESSES])
async def test_a_redirect_to_itself_or_to_no_address_is_no_advice(location: str) -> None:
    moved = response(302, b"", f"Location: {location}".encode())
    async with (
        serve_scripts([moved], [moved]) as (url, _),
        ControlClient(url) as control,
        KernelTransport() as transport,
    ):
        exchange = await send_request(transport, HttpRequest(f"{url}/v1/models", b"{}"))
        with pytest.raises(AccessRejected) as caught:
            await control.text("/v1/models")
    target = location if location in NO_ADDRESSES else f"{url}/v1/models"
    for message in (exchange.error or "", str(caught.value)):
        assert message.endswith(f"HTTP 302: redirected to {target}: {REDIRECT_REMEDY}")


async def test_error_status_is_kept_when_its_body_is_truncated(server_tls: Tls) -> None:
    exchange = await run_exchange(server_tls, b"HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\nout of memory")
    assert exchange.error_class is ErrorClass.HTTP_5XX
    assert exchange.error == "HTTP 500: out of memory"


async def test_response_above_the_size_limit_is_malformed(server_tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transport, "MAX_ANSWER_BYTES", 10)
    exchange = await run_exchange(server_tls, HEAD, b"data: 1\n\ndata: 2\n\n", ScriptAction.STALL)
    assert exchange.error_class is ErrorClass.MALFORMED
    assert "longer than 10 bytes" in (exchange.error or "")


async def test_exhausted_file_descriptors_are_not_reported_as_an_engine_error(
    server_tls: Tls,
) -> None:
    async with serve_scripts([HEAD], tls=server_tls) as (url, _), KernelTransport() as transport:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            with pytest.raises(OutOfSockets, match="ulimit -n"):
                await send_request(transport, HttpRequest(url, b""))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


OK = [response(200, b'{"status": "ok"}')]
STARTING = [response(503, b'{"error": {"message": "Loading model"}}')]


async def test_wait_healthy_returns_when_the_engine_becomes_healthy() -> None:
    async with serve_scripts(STARTING, [], STARTING, OK) as (url, server), ControlClient(url) as control:
        await control.wait_healthy("/health", deadline_s=30)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("script", "message"),
    [(STARTING, "Loading model$"), ([response(404, b"not here")], "HTTP 404: not here$")],
    ids=["starting", "missing"],
)
async def test_wait_healthy_fails_with_the_engines_last_message(script: Script, message: str) -> None:
    async with serve_scripts(script) as (url, _), ControlClient(url) as control:
        with pytest.raises(EngineFailed, match=message) as caught:
            await control.wait_healthy("/ready", deadline_s=0)
    assert caught.value.reason == "NeverReady"


@pytest.mark.parametrize("status", [404, 405, 429])
async def test_a_running_server_may_lack_or_limit_its_health_route(status: int) -> None:
    async with serve_scripts([response(status, b"{}")]) as (url, server), ControlClient(url) as control:
        await control.wait_healthy("/v1/models", deadline_s=0, may_lack=True)
        assert len(server.requests) == 1


async def test_a_server_that_asks_to_wait_is_waited_for_beyond_the_deadline() -> None:
    later = [response(503, b"{}", b"Retry-After: 0")]
    async with serve_scripts(later, later, OK) as (url, server), ControlClient(url) as control:
        await control.wait_healthy("/health", deadline_s=0)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("script", "works"),
    [(OK, True), *(([response(status, b"{}")], status < 500) for status in (401, 404, 429, 500, 503))],
)
async def test_a_server_works_unless_it_fails_or_does_not_answer(script: Script, works: bool) -> None:
    async with serve_scripts(script) as (url, _), ControlClient(url) as control:
        assert await control.answers("/health") is works
    async with ControlClient(unused_url()) as control:
        assert not await control.answers("/health")


async def test_pages_are_read_with_long_headers_from_a_proxy_that_changed_them() -> None:
    page = b"HTTP/1.1 203 X\r\nContent-Length: 2\r\nSet-Cookie: " + b"a" * 9000 + b"\r\n\r\n{}"
    headers = {"host": "model.example"}
    async with serve_scripts([page]) as (url, server), ControlClient(url, headers=headers) as control:
        assert await control.text("/v1/models") == "{}"
    sent = server.requests[0][0].lower()
    assert sent.count(b"\r\nhost: ") == sent.count(b"\r\nhost: model.example\r\n") == 1
    assert b"\r\nuser-agent: specbench/" in sent


async def test_a_redirect_is_followed_once_and_only_on_the_same_server() -> None:
    moved = [response(307, b"", b"Location: /v1/models/")]
    async with serve_scripts(moved, OK) as (url, server), ControlClient(url) as control:
        assert await control.text("/v1/models") == '{"status": "ok"}'
        assert [head.split(b" ")[1] for head, _ in server.requests] == [b"/v1/models", b"/v1/models/"]
    async with serve_scripts(moved) as (url, _), ControlClient(url) as control:
        with pytest.raises(AccessRejected) as caught:
            await control.text("/v1/models")
        assert caught.value.location == f"{url}/v1/models/"
    for location in (b"http://127.0.0.1:1/v1/models", b"http://[bad/v1"):
        elsewhere = [response(307, b"", b"Location: " + location)]
        async with serve_scripts(elsewhere, OK) as (url, server), ControlClient(url) as control:
            with pytest.raises(AccessRejected) as caught:
                await control.text("/v1/models")
            assert (caught.value.status, caught.value.location) == (307, location.decode())
            assert len(server.requests) == 1
    async with serve_scripts(elsewhere, OK) as (url, server), ControlClient(url) as control:
        elsewhere[:] = [response(307, b"", f"Location: {url}0/v1/models".encode())]
        with pytest.raises(AccessRejected):
            await control.text("/v1/models")
        assert len(server.requests) == 1, "another port that begins with the same digits"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("1.5", 1.5),
        ("inf", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", 0.0),
        ("Wed Oct 21 07:28:00 2015", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
    ],
)
def test_retry_after_has_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": value}) == seconds
    assert retry_after_s({}) is None


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms"])
def test_milliseconds_of_azure_count_before_retry_after(name: str) -> None:
    assert retry_after_s({"retry-after": "10", name: "9250"}) == pytest.approx(9.25)
    assert retry_after_s({"retry-after": "10", name: "soon"}) == pytest.approx(10)


@pytest.mark.parametrize(
    ("asked_s", "waited_s", "most_s", "pause_s"),
    [
        (None, 0.0, 4.0, 2.0),
        (None, 3.9, 4.0, 2.0),
        (None, 4.0, 4.0, None),
        (0.5, 4.0, 4.0, 2.0),
        (30.0, 0.0, 4.0, 30.0),
        (30.0, 30.0, 4.0, 30.0),
        (30.0, 30.1, 4.0, None),
        (30.0, 60.0, 90.0, 30.0),
        (30.0, 61.0, 90.0, None),
    ],
)
def test_pause_before_a_retry(asked_s: float | None, waited_s: float, most_s: float, pause_s: float | None) -> None:
    assert pause_before_retry_s(asked_s, 2.0, waited_s, most_s) == pause_s


@pytest.mark.parametrize("form", ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
def test_retry_after_of_a_later_date_is_the_time_until_then(form: str) -> None:
    """In the three forms of RFC 9110, 5.6.7."""
    found = retry_after_s({"retry-after": (datetime.now(UTC) + timedelta(hours=1)).strftime(form)})
    assert found is not None
    assert 3500 < found <= 3600


async def test_closed_port_is_reported_with_the_next_step() -> None:
    url = unused_url()
    async with ControlClient(url) as control:
        with pytest.raises(EngineFailed, match=re.escape(f"start the engine, or correct the address ({url})")):
            await control.wait_healthy("/health", deadline_s=0)


async def test_healthy_returns_true_or_false() -> None:
    async with serve_scripts(OK, STARTING, [ScriptAction.RESET]) as (url, _), ControlClient(url) as control:
        assert [await control.healthy("/health") for _ in range(3)] == [True, False, False]
    async with serve_scripts([ScriptAction.STALL]) as (url, _):
        for endpoint in (unused_url(), url):
            async with ControlClient(endpoint, timeout_s=0.05) as control:
                assert not await control.healthy("/health")


async def test_missing_page_raises_with_its_path_and_message() -> None:
    async with serve_scripts([response(404, b"not here")]) as (url, _), ControlClient(url) as control:
        with pytest.raises(ControlError, match="/metrics: HTTP 404: not here"):
            await control.text("/metrics")


async def test_unavailable_documents_are_none() -> None:
    async with (
        serve_scripts(OK, [response(404, b"")], [response(200, b"no json")]) as (url, _),
        ControlClient(url) as control,
    ):
        assert await control.documents(["/a", "/b", "/c"]) == {"/a": {"status": "ok"}, "/b": None, "/c": None}
