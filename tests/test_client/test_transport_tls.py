"""TLS over the kernel's timestamps: records, certificates and ends of connections, against real TLS servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from specbench_client.transport.control_client import AccessRejected, ControlClient
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import (
    ConnectionsAhead,
    ConnectionUse,
    HttpExchange,
    HttpRequest,
    TimestampSource,
)
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.sse import parse_events
from specbench_testing.closing_servers import accepting
from specbench_testing.scripted_server import HEAD, Script, ScriptAction, serve_scripts

_PAUSE_S = 0.02
"""Long enough that the following bytes are read separately."""


class RawTlsConnection:
    """The server's side of one connection. What is encrypted is not sent before the test sends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: ssl.SSLContext) -> None:
        self.writer = writer
        self._reader = reader
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self, piece_bytes: int = 1 << 20) -> bytes:
        """Perform the handshake, with at most so many bytes in a send; return what follows it: session tickets."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self._outgoing.read(), piece_bytes)
                self._incoming.write(await self._read())
            else:
                return self._outgoing.read()

    async def receive_request(self) -> bytes:
        """Return the head and the body of the next request."""
        received = b""
        while True:
            head, end, body = received.partition(b"\r\n\r\n")
            if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split()[0]):
                return received
            try:
                received += self._tls.read(1 << 20)
            except ssl.SSLWantReadError:
                self._incoming.write(await self._read())

    def encrypt(self, *contents: bytes) -> bytes:
        """Return one record for each content."""
        for content in contents:
            self._tls.write(content)
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Return the record that ends the session."""
        with suppress(ssl.SSLWantReadError):  # It would wait for the client's.
            self._tls.unwrap()
        return self._outgoing.read()

    async def ends_with_close_notify(self) -> bool:
        """Read until the client closes the connection; return whether it ended the session before."""
        self._incoming.write(await self._reader.read())
        with suppress(ssl.SSLWantReadError):
            return self._tls.read(1) == b""
        return False

    async def send(self, ciphertext: bytes, piece_bytes: int = 1 << 20) -> None:
        """Send in pieces of this size."""
        for start in range(0, len(ciphertext), piece_bytes):
            self.writer.write(ciphertext[start : start + piece_bytes])
            await self.writer.drain()
            await asyncio.sleep(0)

    async def pause(self) -> None:
        """Wait until the client has read what was sent."""
        await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> bytes:
        data = await self._reader.read(1 << 16)
        if not data:
            raise ConnectionResetError
        return data


@asynccontextmanager
async def serve_raw_tls(
    tls: ssl.SSLContext, serve: Callable[[RawTlsConnection], Awaitable[None]]
) -> AsyncIterator[str]:
    """Serve each connection with this function, which closes it by returning; yields the URL."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(RawTlsConnection(reader, writer, tls))

    async with accepting(handle) as url:
        yield url.replace("http:", "https:")


pytestmark = pytest.mark.process
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def event(data: str) -> bytes:
    body = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


ANSWER = (CHUNKED, event("1"), event("2"), event("[DONE]"), END)


def body_of(exchange: HttpExchange) -> bytes:
    return b"".join(arrival.data for arrival in exchange.arrivals)


async def send(transport: KernelTransport, url: str, body: bytes = b"{}") -> HttpExchange:
    return (await transport.exchange(HttpRequest(f"{url}/v1", body))).read()


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["tls-1.2", "tls-1.3"])
def any_tls(request: pytest.FixtureRequest, trusted_tls: ssl.SSLContext) -> ssl.SSLContext:
    trusted_tls.minimum_version = trusted_tls.maximum_version = request.param
    return trusted_tls


MakeAnswer = Callable[[RawTlsConnection], bytes]


async def answered(tls: ssl.SSLContext, make: MakeAnswer, *, stays_open: bool = False) -> HttpExchange:
    """Return the exchange with a server that sends this ciphertext after the request."""
    over = asyncio.Event()

    async def serve(server: RawTlsConnection) -> None:
        await server.send(await server.shake_hands())
        await server.receive_request()
        await server.send(make(server))
        await (over.wait() if stays_open else server.pause())

    async with serve_raw_tls(tls, serve) as url, KernelTransport(idle_timeout_s=20) as transport:
        exchange = await send(transport, url)
        over.set()
        return exchange


# Records.


async def test_answer_is_complete_if_every_byte_is_sent_alone(any_tls: ssl.SSLContext) -> None:
    async def serve(server: RawTlsConnection) -> None:
        tickets = await server.shake_hands(piece_bytes=1)
        await server.send(tickets, piece_bytes=1)
        assert (await server.receive_request()).endswith(b"\r\n\r\n{}")
        await server.send(server.encrypt(*ANSWER), piece_bytes=1)
        await server.pause()

    async with serve_raw_tls(any_tls, serve) as url, KernelTransport() as transport:
        exchange = await send(transport, url)
    assert (exchange.status, exchange.error, exchange.timestamp_source) == (200, None, TimestampSource.KERNEL)
    events = parse_events(exchange.arrivals)
    assert [one.data for one in events] == ["1", "2", "[DONE]"]
    times = [exchange.connect_ns, exchange.sent_ns, exchange.first_byte_ns, *(one.ns for one in events)]
    known = [one for one in times if one is not None]
    assert known == sorted(known)
    assert len(known) == len(times)


async def test_record_split_over_reads_has_the_time_of_its_last_byte(trusted_tls: ssl.SSLContext) -> None:
    completed_ns: list[int] = []

    async def serve(server: RawTlsConnection) -> None:
        await server.send(await server.shake_hands())
        await server.receive_request()
        first, second = server.encrypt(CHUNKED + event("1")), server.encrypt(event("[DONE]") + END)
        await server.send(first + second[:-1])
        await server.pause()
        completed_ns.append(time.monotonic_ns())
        await server.send(second[-1:])
        await server.pause()

    async with serve_raw_tls(trusted_tls, serve) as url, KernelTransport() as transport:
        exchange = await send(transport, url)
    first, second = parse_events(exchange.arrivals)
    assert first.ns < completed_ns[0] < second.ns
    assert (first.coalesced, exchange.timestamp_source) == (False, TimestampSource.KERNEL)


async def test_records_of_one_read_have_its_time_and_are_marked(trusted_tls: ssl.SSLContext) -> None:
    exchange = await answered(trusted_tls, lambda server: server.encrypt(*ANSWER))
    events = parse_events(exchange.arrivals)
    assert [one.coalesced for one in events] == [True, True, False]
    assert {one.ns for one in events} == {exchange.first_byte_ns}


async def test_session_tickets_between_answers_do_not_end_a_kept_connection(trusted_tls: ssl.SSLContext) -> None:
    async def serve(server: RawTlsConnection) -> None:
        tickets = await server.shake_hands()
        assert tickets, "TLS 1.3 sends them after the handshake"
        await server.receive_request()
        await server.send(tickets[:50])
        await server.pause()
        await server.send(tickets[50:] + server.encrypt(*ANSWER))
        await server.receive_request()
        await server.send(server.encrypt(*ANSWER))
        await server.pause()

    async with serve_raw_tls(trusted_tls, serve) as url, KernelTransport() as transport:
        exchanges = [await send(transport, url) for _ in range(2)]
    assert [one.error for one in exchanges] == [None, None]
    assert [one.connection for one in exchanges] == [ConnectionUse.NEW, ConnectionUse.KEPT]


async def test_session_tickets_that_wait_on_an_idle_connection_do_not_end_it(trusted_tls: ssl.SSLContext) -> None:
    ready = asyncio.Event()

    async def serve(server: RawTlsConnection) -> None:
        await server.send(await server.shake_hands())
        await server.pause()
        ready.set()
        await server.receive_request()
        await server.send(server.encrypt(*ANSWER))
        await server.pause()

    async with (
        serve_raw_tls(trusted_tls, serve) as url,
        KernelTransport(ahead=ConnectionsAhead(url, first=1, spare=0)) as transport,
    ):
        await ready.wait()
        exchange = await send(transport, url)
    assert (exchange.error, exchange.connection) == (None, ConnectionUse.KEPT)


async def test_request_larger_than_the_socket_buffers_arrives_whole(trusted_tls: ssl.SSLContext) -> None:
    body = bytes(range(256)) * 32_000
    async with serve_scripts([CHUNKED, END], tls=trusted_tls) as (url, server), KernelTransport() as transport:
        assert (await send(transport, url, body)).error is None
    assert server.requests[0][1] == body


# Ends of connections.


def cut(server: RawTlsConnection) -> bytes:
    return server.encrypt(CHUNKED + event("1")) + server.encrypt(event("2"))[:-3]


def damaged(server: RawTlsConnection) -> bytes:
    good, changed = server.encrypt(CHUNKED + event("1")), bytearray(server.encrypt(event("2")))
    changed[-1] ^= 1
    return good + bytes(changed)


@pytest.mark.parametrize(
    ("make", "stays_open", "error"),
    [
        (cut, False, "ECONNRESET: the server closed the connection without a TLS close_notify"),
        (damaged, True, "decryption failed or bad record mac"),
        (lambda server: server.encrypt(HEAD + b"data: 1\n\n"), False, "without a TLS close_notify"),
        (lambda server: server.encrypt(HEAD + b"data: 1\n\n") + server.close_notify(), False, None),
        (lambda server: server.encrypt(HEAD + b"data: 1\n\n") + server.close_notify(), True, None),
    ],
    ids=["inside a record", "invalid record", "no close_notify", "close_notify", "close_notify and open"],
)
async def test_an_answer_ends_only_with_a_whole_body_or_a_close_notify(
    any_tls: ssl.SSLContext, *, make: MakeAnswer, stays_open: bool, error: str | None
) -> None:
    """The content before the end is kept."""
    exchange = await answered(any_tls, make, stays_open=stays_open)
    assert exchange.error_class is (ErrorClass.RESET if error else None)
    assert (error or "") in (exchange.error or "")
    assert body_of(exchange) == b"data: 1\n\n"


async def test_client_ends_its_session_with_a_close_notify(any_tls: ssl.SSLContext) -> None:
    ended = asyncio.get_running_loop().create_future()

    async def serve(server: RawTlsConnection) -> None:
        await server.send(await server.shake_hands())
        await server.receive_request()
        await server.send(server.encrypt(*ANSWER))
        ended.set_result(await server.ends_with_close_notify())

    async with serve_raw_tls(any_tls, serve) as url:
        async with KernelTransport() as transport:
            await send(transport, url)
        assert await ended


async def test_connection_that_ended_behind_its_session_tickets_is_not_used(trusted_tls: ssl.SSLContext) -> None:
    closed = asyncio.Event()

    async def serve(server: RawTlsConnection) -> None:
        await server.send(await server.shake_hands())
        if not closed.is_set():
            server.writer.close()
            await server.pause()
            closed.set()
            return
        await server.receive_request()
        await server.send(server.encrypt(*ANSWER))
        await server.pause()

    async with (
        serve_raw_tls(trusted_tls, serve) as url,
        KernelTransport(ahead=ConnectionsAhead(url, first=1, spare=0)) as transport,
    ):
        await closed.wait()
        exchange = await send(transport, url)
    assert (exchange.error, exchange.connection) == (None, ConnectionUse.NEW)


# Handshakes and certificates.


async def refused(url: str, connect_timeout_s: float = 10.0) -> str:
    """Return the message of a request that reached no server."""
    async with KernelTransport(connect_timeout_s=connect_timeout_s) as transport:
        exchange = await send(transport, url)
    assert (exchange.error_class, exchange.sent_ns, exchange.connection) == (
        ErrorClass.REFUSED,
        None,
        ConnectionUse.NEW,
    )
    assert exchange.error is not None
    return exchange.error


async def test_certificate_of_an_unknown_authority_is_rejected(tls: ssl.SSLContext) -> None:
    async with serve_scripts([*ANSWER], tls=tls) as (url, server):
        message = await refused(url)
    assert message == (
        "TlsError: the server's certificate is not trusted: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed:"
        " self-signed certificate: set SSL_CERT_FILE to a file with the certificate of the authority that signed it"
    )
    assert server.requests == []


@pytest.fixture
def server_of_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], ssl.SSLContext]:
    """Makes the context of a server with a new certificate, which this process trusts as an authority."""
    certificate, key, unsigned = (tmp_path / file for file in ("certificate.pem", "key.pem", "request.pem"))
    new = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"]
    sign = ["openssl", "x509", "-req", "-in", str(unsigned), "-signkey", str(key), "-copy_extensions", "copy"]

    def make(name: str, days: int) -> ssl.SSLContext:
        for command in (
            [*new, "-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(unsigned)],
            [*sign, "-days", str(days), "-out", str(certificate)],
        ):
            subprocess.run(command, check=True, capture_output=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    return make


@pytest.mark.parametrize(
    ("name", "days", "reason", "remedy"),
    [
        ("IP:127.0.0.1", -1, "certificate has expired", "renew the certificate, or correct the clock of this machine"),
        (
            "IP:127.0.0.2",
            1,
            "IP address mismatch, certificate is not valid for '127.0.0.1'",
            "give the address with a name that the certificate contains",
        ),
    ],
    ids=["expired", "another-name"],
)
async def test_certificate_that_is_not_valid_is_rejected(
    server_of_certificate: Callable[[str, int], ssl.SSLContext], name: str, days: int, reason: str, remedy: str
) -> None:
    context = server_of_certificate(name, days)
    async with serve_scripts([*ANSWER], tls=context) as (url, server):
        message = await refused(url)
    assert message.endswith(f"certificate verify failed: {reason}: {remedy}")
    assert server.requests == []


@pytest.mark.parametrize(("host", "expected"), [("localhost", ["localhost"]), ("127.0.0.1", [None])])
async def test_server_receives_the_name_of_the_host(
    trusted_tls: ssl.SSLContext, host: str, expected: list[str | None]
) -> None:
    """As SNI, by which a proxy chooses the certificate; an address is not a name."""
    names: list[str | None] = []
    trusted_tls.sni_callback = lambda _, name, __: names.append(name)
    async with serve_scripts([*ANSWER], tls=trusted_tls) as (url, _), KernelTransport() as transport:
        assert (await send(transport, url.replace("127.0.0.1", host))).error is None
    assert names == expected


async def test_final_dot_of_a_host_is_no_part_of_the_name(
    trusted_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates and SNI have names without it (RFC 6066, section 3)."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: resolve(host.rstrip("."), *rest, **named))
    names: list[str | None] = []
    trusted_tls.sni_callback = lambda _, name, __: names.append(name)
    async with serve_scripts([*ANSWER], tls=trusted_tls) as (url, _), KernelTransport() as transport:
        assert (await send(transport, url.replace("127.0.0.1", "localhost."))).error is None
    assert names == ["localhost"]


async def test_server_without_tls_is_a_failed_handshake_with_the_remedy() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with accepting(answer) as plain:
        url = plain.replace("http:", "https:")
        message = await refused(url)
        async with ControlClient(url) as control:
            with pytest.raises(AccessRejected) as caught:
                await control.text("/health")
    reason = (
        "the TLS handshake failed: [SSL: WRONG_VERSION_NUMBER] wrong version number: the server answers without TLS: if"
        " it serves http, give its address with http:// instead of https://"
    )
    assert (message, str(caught.value)) == (f"TlsError: {reason}", f"GET {url}/health: {reason}")


async def test_server_that_closes_during_the_handshake() -> None:
    async def close(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)

    async with accepting(close) as url:
        message = await refused(url.replace("http:", "https:"))
    assert message.endswith("the server closed the connection during the TLS handshake")


async def test_server_that_is_silent_during_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        message = await refused(f"https://127.0.0.1:{server.getsockname()[1]}", connect_timeout_s=0.1)
    assert message == "TimeoutError: no connection within 0.1 s"


async def test_cancelled_handshake_closes_its_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with KernelTransport() as transport:
            pending = asyncio.create_task(send(transport, f"https://127.0.0.1:{server.getsockname()[1]}"))
            accepted, _ = await asyncio.get_running_loop().run_in_executor(None, server.accept)
            with accepted:
                pending.cancel()
                await asyncio.wait([pending])
                accepted.settimeout(5)
                while accepted.recv(1 << 16):
                    pass  # Until the client closes.
    assert pending.cancelled()


async def test_stalled_answer_is_a_timeout_and_its_connection_is_not_used_again(trusted_tls: ssl.SSLContext) -> None:
    scripts: list[Script] = [[CHUNKED, event("1"), ScriptAction.STALL], [*ANSWER]]
    async with serve_scripts(*scripts, tls=trusted_tls) as (url, _), KernelTransport(idle_timeout_s=0.05) as transport:
        exchanges = [await send(transport, url) for _ in range(2)]
    assert [one.error_class for one in exchanges] == [ErrorClass.TIMEOUT, None]
    assert [one.connection for one in exchanges] == [ConnectionUse.NEW, ConnectionUse.NEW]


async def test_time_of_a_record_does_not_depend_on_when_it_is_read(trusted_tls: ssl.SSLContext) -> None:
    """The event loop is blocked while the record arrives and for 50 ms after it, as in a busy client."""
    sent_ns: list[int] = []

    async def serve(server: RawTlsConnection) -> None:
        await server.send(await server.shake_hands())
        await server.receive_request()
        ciphertext = server.encrypt(*ANSWER)
        sent_ns.append(time.monotonic_ns())
        server.writer.write(ciphertext)  # asyncio sends at once.
        sent_ns.append(time.monotonic_ns())
        time.sleep(0.05)  # noqa: ASYNC251 -- the test needs a blocked event loop

    async with serve_raw_tls(trusted_tls, serve) as url, KernelTransport() as transport:
        exchange = await send(transport, url)
    clocks_apart_ns = 1_000_000
    assert sent_ns[0] - clocks_apart_ns < exchange.ended_ns < sent_ns[1] + clocks_apart_ns
