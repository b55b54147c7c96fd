"""The proxy between an operator and the API server, in front of a local TLS server."""

from __future__ import annotations

import base64
import http.client
import json
import random
import select
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from specbench_testing.api_server_proxy import ApiServerProxy
from specbench_testing.cluster import Cluster
from specbench_testing.operator_process import eventually

TICKETS = 50
"""Session tickets after each handshake: the more, the longer they are processed."""
CONNECTIONS = 200
WAIT_S = 30.0
QUIET_S = 0.3
"""How long a test waits to see that nothing arrives."""


class Server(ThreadingHTTPServer):
    """An HTTPS server that answers with the request's body."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self._tls = tls
        self.received: list[tuple[str, str]] = []
        """Method and path of every request that arrived completely."""
        self.shaking_hands, self.answering = threading.Event(), threading.Event()
        self.shaking_hands.set()
        self.answering.set()
        self.began = self.ended = 0
        """How many connections began and ended."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.began += 1
        try:
            self.shaking_hands.wait(WAIT_S)
            with self._tls.wrap_socket(request, server_side=True) as connection:
                super().finish_request(connection, client_address)
        finally:
            self.ended += 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The proxy may close a connection at any time."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.received.append((self.command, self.path))
        self.server.answering.wait(WAIT_S)
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path == "/close"

    do_GET = do_PATCH = do_POST  # noqa: N815 -- names of the base class

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name of the base class
        """Log nothing."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1; its key is beside it."""
    folder = tmp_path_factory.mktemp("tls")
    files = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    names = ("-subj", "/CN=apiserver", "-addext", "subjectAltName=IP:127.0.0.1")
    call = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    subprocess.run([*call, *files, *names], check=True, capture_output=True)
    return folder / "tls.crt"


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    tls.num_tickets = TICKETS
    with Server(tls) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def proxy(server: Server, certificate: Path, tmp_path: Path) -> Iterator[ApiServerProxy]:
    authority = base64.b64encode(certificate.read_bytes()).decode()
    address = {"server": f"https://127.0.0.1:{server.server_port}", "certificate-authority-data": authority}
    kubeconfig = {
        "clusters": [{"name": "local", "cluster": address}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "current-context": "local",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    with ApiServerProxy(Cluster.at(tmp_path / "kubeconfig")) as running:
        yield running


class Connection(http.client.HTTPConnection):
    """The operator's connection, closed by the `with` block."""

    def __init__(self, proxy: ApiServerProxy, wait_s: float = WAIT_S) -> None:
        super().__init__(proxy.url.removeprefix("http://"), timeout=wait_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchange(self, method: str, path: str, body: bytes = b"") -> bytes:
        self.request(method, path, body)
        return self.answer()

    def answer(self) -> bytes:
        with self.getresponse() as response:
            assert response.status == 200
            return response.read()

    def give_up(self, *, reset: bool) -> None:
        """Close it before the answer. `reset`: as the operating system does if something was received and not read."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def is_quiet(self) -> bool:
        """Whether nothing is received for a while."""
        return not select.select([self.sock], [], [], QUIET_S)[0]


def requests(proxy: ApiServerProxy) -> list[tuple[str, str]]:
    return [(request.method, request.path) for request in proxy.forwarded]


def test_the_first_request_of_every_connection_is_answered(proxy: ApiServerProxy, server: Server) -> None:
    def exchange(number: int) -> bytes:
        with Connection(proxy, 10) as connection:
            return connection.exchange("POST", f"/{number}", b"%d" % number)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(exchange, range(CONNECTIONS))) == [b"%d" % number for number in range(CONNECTIONS)]
    assert sorted(requests(proxy)) == sorted(server.received)
    eventually(lambda: server.ended == CONNECTIONS, "connections to the server were not closed", WAIT_S)


def test_large_requests_and_answers_are_forwarded_unchanged(proxy: ApiServerProxy) -> None:
    body = random.Random(1).randbytes(4 * 1024 * 1024)
    with Connection(proxy) as connection:
        assert [connection.exchange("POST", f"/{number}", body) == body for number in range(3)] == [True] * 3
    assert requests(proxy) == [("POST", f"/{number}") for number in range(3)]


def test_writes_are_the_products_own_since_a_time(proxy: ApiServerProxy) -> None:
    with Connection(proxy) as connection:
        connection.exchange("POST", "/jobs")
        began = time.monotonic()
        connection.exchange("GET", "/jobs")
        connection.exchange("PATCH", "/leases/operator")
        connection.exchange("POST", "/selfsubjectaccessreviews")
        connection.exchange("PATCH", "/jobs/engine")
    assert [request.path for request in proxy.writes()] == ["/jobs", "/jobs/engine"]
    assert [request.path for request in proxy.writes(began)] == ["/jobs/engine"]


def test_while_it_holds_nothing_is_forwarded_and_then_everything(proxy: ApiServerProxy, server: Server) -> None:
    with Connection(proxy) as answered, Connection(proxy) as opened, Connection(proxy) as late:
        opened.exchange("GET", "/before")
        server.answering.clear()
        answered.request("POST", "/answered", b"answered")
        before = [("GET", "/before"), ("POST", "/answered")]
        eventually(lambda: server.received == before, "a request does not arrive")
        proxy.hold()
        server.answering.set()
        opened.request("POST", "/opened", b"opened")
        late.request("POST", "/late", b"late")
        assert [each.is_quiet() for each in (answered, opened, late)] == [True] * 3
        assert requests(proxy) == server.received == before
        healed = time.monotonic()
        proxy.heal()
        assert [each.answer() for each in (answered, opened, late)] == [b"answered", b"opened", b"late"]
        assert {request.path for request in proxy.writes(healed)} == {"/opened", "/late"}
        assert opened.exchange("POST", "/again", b"again") == b"again"


@pytest.mark.parametrize(("size", "reset"), [(10, False), (10, True), (200_000, False)])
def test_requests_of_connections_given_up_meanwhile_are_delivered(
    proxy: ApiServerProxy, server: Server, size: int, reset: bool
) -> None:
    count = 20
    body = b"x" * size
    with ExitStack() as stack:
        opened = [stack.enter_context(Connection(proxy)) for _ in range(count)]
        assert [each.exchange("GET", "/before") for each in opened] == [b""] * count
        proxy.hold()
        late = [stack.enter_context(Connection(proxy)) for _ in range(count)]
        for number, connection in enumerate([*opened, *late]):
            connection.request("PATCH", f"/{number}", body)
            connection.give_up(reset=reset)
        time.sleep(QUIET_S)
        assert len(server.received) == count
        proxy.heal()
        expected = {("PATCH", f"/{number}") for number in range(2 * count)}
        eventually(lambda: expected <= set(server.received), "requests that were sent are missing", WAIT_S)
        assert expected <= set(requests(proxy))
        eventually(lambda: server.ended == 2 * count, "connections to the server were not closed", WAIT_S)


def test_a_cut_closes_connections_and_refuses_new_ones_until_it_heals(proxy: ApiServerProxy, server: Server) -> None:
    with Connection(proxy) as idle, Connection(proxy) as waiting:
        idle.exchange("GET", "/idle")
        server.answering.clear()
        waiting.request("PATCH", "/waiting", b"waiting")
        eventually(lambda: ("PATCH", "/waiting") in server.received, "the request does not arrive")
        proxy.cut()
        cut = time.monotonic()
        server.answering.set()
        assert [each.sock.recv(1) for each in (idle, waiting)] == [b"", b""]
        with suppress(OSError):
            idle.request("PATCH", "/idle", b"after the cut")
        with Connection(proxy) as refused, pytest.raises((OSError, http.client.HTTPException)):
            refused.exchange("PATCH", "/refused")
        eventually(lambda: server.ended == 2, "connections to the server were not closed", WAIT_S)
        proxy.heal()
        with Connection(proxy) as accepted:
            assert accepted.exchange("PATCH", "/accepted", b"accepted") == b"accepted"
    assert [request.path for request in proxy.writes(cut)] == ["/accepted"]
    assert server.received == [("GET", "/idle"), ("PATCH", "/waiting"), ("PATCH", "/accepted")]


def test_a_cut_during_the_handshake_ends_that_connection(proxy: ApiServerProxy, server: Server) -> None:
    server.shaking_hands.clear()
    with Connection(proxy) as connection:
        connection.request("PATCH", "/sent-before")
        eventually(lambda: server.began == 1, "the proxy does not connect")
        proxy.cut()
        server.shaking_hands.set()
        assert connection.sock.recv(1) == b""
        eventually(lambda: server.ended == 1, "the connection to the server was not closed")
    assert requests(proxy) == server.received == []


def test_a_connection_that_the_server_closes_is_closed_after_its_answer(proxy: ApiServerProxy) -> None:
    with Connection(proxy) as connection:
        assert connection.exchange("POST", "/close", b"last") == b"last"
        assert connection.sock.recv(1) == b""
