"""An HTTP proxy that acts at one write: it kills the writer, answers with an error, never answers, or hides the write.

What the writer is started as after a kill, and the loss of a namespace, are up to the caller. The proxy can also be
partitioned from the writer, and records the writes that it forwards.

It forwards requests one at a time, to a server that is reached by HTTP or TLS. `Host` is forwarded unchanged, because
signatures of S3 include it. Long answers, such as watches, are forwarded as they arrive.

Writes are described by the caller (`WriteKey`), so that a write can be recognised in another life of the same run.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import yaml

from specbench_testing.cluster import Cluster

_READS = ("GET", "HEAD")
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}
_PIECE = 64 * 1024
HIDDEN_S = 1.5
"""How long reads do not show a hidden write, unless the writer writes earlier."""
FORBIDDEN_S = 4.0
"""How long all requests about a subject are refused once its rights are lost."""


class FaultKind(StrEnum):
    """What happens at the write."""

    KILL_BEFORE = "killed before"
    KILL_AFTER = "killed after"
    CONFLICT = "answer 409"
    BUSY = "answer 429"
    FAILING = "answer 500"
    UNANSWERED = "applied, no answer"
    STALE = "stale reads"
    FORBIDDEN = "rights lost"
    UPGRADED = "upgraded after"
    ROLLED_BACK = "upgraded after, then rolled back"
    NAMESPACE_LOST = "namespace lost"


KILLS = (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER, FaultKind.UPGRADED, FaultKind.ROLLED_BACK)
STATUS_CODES = {FaultKind.CONFLICT: 409, FaultKind.BUSY: 429, FaultKind.FAILING: 500, FaultKind.FORBIDDEN: 403}


class WriteKey(NamedTuple):
    """A write of a subject's life. `occurrence`: how many equal ones precede it."""

    kind: str
    occurrence: int = 0

    def __str__(self) -> str:
        return self.kind + (f" ({self.occurrence + 1})" if self.occurrence else "")


class Described(NamedTuple):
    """The subject of a write, such as the name of a run, and what is written, the same in every life."""

    subject: str
    kind: str


Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""
JSON = [("Content-Type", "application/json")]


class Request(NamedTuple):
    """One request. `body` is complete."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; empty if it is not JSON."""
        try:
            return json.loads(self.body or b"{}")
        except ValueError:
            return {}


@dataclass
class ArmedFault:
    """A fault at one write of one subject."""

    kind: FaultKind
    at: WriteKey
    struck: threading.Event = field(default_factory=threading.Event)


@dataclass
class SubjectWrites:
    """The writes of one subject, in order, and the fault among them."""

    fault: ArmedFault | None = None
    keys: list[WriteKey] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Answer] = field(default_factory=dict)
    """The last answer to each read, which is given again while a write is hidden."""
    hidden_until: float = 0.0
    forbidden_until: float = 0.0


@dataclass(frozen=True)
class Upstream:
    """The server."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    def connect(self, timeout_s: float | None = None) -> http.client.HTTPConnection:
        """Open a connection."""
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, context=self.tls, timeout=timeout_s)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


def api_upstream(cluster: Cluster) -> Upstream:
    """The API server of a cluster."""
    given = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(given["certificate-authority-data"]).decode()
    url = urlsplit(given["server"])
    return Upstream(str(url.hostname), int(url.port or 443), ssl.create_default_context(cadata=authority))


@dataclass
class Writer:
    """Who writes, and to which kind of server."""

    describe: Callable[[Request], Described | None] = lambda _: None
    """Describes a write; None for one that is not counted."""
    refusal: Callable[[int], tuple[bytes, str]] = lambda _: (b"", "text/plain")
    """Body and content type of the server's answer with this status."""
    strike: Callable[[FaultKind], object] = lambda _: None
    """Causes what happens outside of the proxy: kills the writer and returns when it has ended, or deletes its objects.
    """
    subject_of: Callable[[str], str] = lambda _: ""
    """The subject that the path of a read is about; empty for none."""


class ForwardedWrite(NamedTuple):
    """A write that reached the server. `at`: when it was forwarded (time.monotonic)."""

    at: float
    method: str
    path: str


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Either side may close a connection at any time."""


class FaultProxy:
    """The proxy, within a `with` block."""

    def __init__(self, upstream: Upstream, writer: Writer, unanswered_s: float | None = None) -> None:
        """`unanswered_s`: after this time, it closes a connection that gets no answer; None: the writer closes it."""
        self.upstream, self.writer, self.unanswered_s = upstream, writer, unanswered_s
        self._subjects: dict[str, SubjectWrites] = {}
        self.forwarded: list[ForwardedWrite] = []
        self.answer: Callable[[Request], Answer | None] = lambda _: None
        """The answer to a request in place of the server's; None: the server's."""
        self.flowing = threading.Event()
        self.flowing.set()
        self._refusing = False
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, self))

    @property
    def url(self) -> str:
        """The address for the writer."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def watch(self, subject: str, fault: ArmedFault | None = None) -> SubjectWrites:
        """Record the writes of a subject from now on, with this fault."""
        with self._lock:
            return self._subjects.setdefault(subject, SubjectWrites(fault))

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        with self._lock:
            self._refusing = True
            for client in self._clients:
                _shut_down(client)

    def hold(self) -> None:
        """Forward nothing more, in either direction, and keep all connections and what was sent."""
        self.flowing.clear()

    def heal(self) -> None:
        """Accept connections again, and deliver what was held, also from connections that the writer has given up."""
        self._refusing = False
        self.flowing.set()

    def connected(self, client: socket.socket) -> None:
        """Note a connection of the writer, which is closed at once while connections are refused."""
        with self._lock:
            self._clients.add(client)
            if self._refusing:
                _shut_down(client)

    def disconnected(self, client: socket.socket) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._clients.discard(client)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flowing.set()
        self._server.shutdown()
        self._server.server_close()

    def note(self, request: Request) -> tuple[SubjectWrites | None, ArmedFault | None]:
        """Record a write; returns the subject's writes, and the fault if it is armed for this write."""
        described = self.writer.describe(request)
        if described is None:
            return None, None
        with self._lock:
            writes = self._subjects.get(described.subject)
            if writes is None:
                return None, None
            key = WriteKey(described.kind, writes.counts[described.kind])
            writes.counts[described.kind] += 1
            writes.keys.append(key)
            writes.hidden_until = 0.0
            fault = writes.fault
            if fault is None or fault.at != key or fault.struck.is_set():
                return writes, None
            fault.struck.set()
            return writes, fault

    def reads(self, path: str) -> SubjectWrites | None:
        """The writes of the subject that a read is about."""
        with self._lock:
            return self._subjects.get(self.writer.subject_of(path))

    def hidden(self, line: bytes) -> float:
        """Until when this line of a watch is held back (time.monotonic)."""
        with self._lock:
            now = time.monotonic()
            names = [name for name, writes in self._subjects.items() if writes.hidden_until > now]
            return max((self._subjects[name].hidden_until for name in names if name.encode() in line), default=0.0)


class _Handler(BaseHTTPRequestHandler):
    """One connection of the writer, with one connection to the server."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def __init__(self, proxy: FaultProxy, *args: Any) -> None:
        self._proxy = proxy
        self._server: http.client.HTTPConnection | None = None
        super().__init__(*args)

    def setup(self) -> None:
        super().setup()
        self._proxy.connected(self.connection)

    def handle_one_request(self) -> None:
        """Forward one request."""
        with suppress(OSError, http.client.HTTPException, ValueError):
            super().handle_one_request()
            return
        self.close_connection = True

    def finish(self) -> None:
        self._proxy.disconnected(self.connection)
        with suppress(OSError):
            super().finish()
        if self._server is not None:
            self._server.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name of the base class
        """Log nothing."""

    def _serve(self) -> None:
        request = Request(self.command, self.path, dict(self.headers.items()), self._body())
        self._proxy.flowing.wait()
        if answer := self._proxy.answer(request):
            self._answer(*answer)
            return
        if request.method in _READS:
            self._read(request)
            return
        writes, fault = self._proxy.note(request)
        if fault is None:
            self._answer_or_refuse(request, writes)
        else:
            assert writes is not None
            self._strike(request, fault, writes)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 -- names of the base class

    def _strike(self, request: Request, fault: ArmedFault, writes: SubjectWrites) -> None:
        kind = fault.kind
        if kind is FaultKind.KILL_BEFORE:
            self._proxy.writer.strike(kind)
            self._drop()
        elif code := STATUS_CODES.get(kind):
            if kind is FaultKind.FORBIDDEN:
                writes.forbidden_until = time.monotonic() + FORBIDDEN_S
            self._refuse(code)
        else:
            answer = self._forward(request)
            if kind in KILLS:
                self._proxy.writer.strike(kind)
                self._drop()
            elif kind is FaultKind.NAMESPACE_LOST:
                self._proxy.writer.strike(kind)
                self._answer(*answer)
            elif kind is FaultKind.UNANSWERED:
                if self._proxy.unanswered_s is None:
                    self._await_close()
                else:
                    time.sleep(self._proxy.unanswered_s)
                    self._drop()
            else:
                writes.hidden_until = time.monotonic() + HIDDEN_S
                self._answer(*answer)

    def _read(self, request: Request) -> None:
        if "watch=" in request.path:
            self._stream(request)
            return
        writes = self._proxy.reads(request.path)
        if writes is None or writes.forbidden_until > time.monotonic():
            self._answer_or_refuse(request, writes)
            return
        if writes.hidden_until > time.monotonic() and request.path in writes.answers:
            self._answer(*writes.answers[request.path])
            return
        answer = writes.answers[request.path] = self._forward(request)
        self._answer(*answer)

    def _answer_or_refuse(self, request: Request, writes: SubjectWrites | None) -> None:
        """Forward a request, unless the rights on its subject are lost."""
        if writes is not None and writes.forbidden_until > time.monotonic():
            self._refuse(STATUS_CODES[FaultKind.FORBIDDEN])
        else:
            self._answer(*self._forward(request))

    def _refuse(self, status: int) -> None:
        body, content_type = self._proxy.writer.refusal(status)
        self._answer(status, [("Content-Type", content_type)], body)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                """Trailers are not forwarded."""
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, request: Request, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name.lower() not in {*_HOP, "content-length"}:
                connection.putheader(name, value)
        if request.body or request.method not in _READS:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body or None)
        return connection.getresponse()

    def _forward(self, request: Request) -> Answer:
        """Send a request to the server; a kept connection that it has closed is replaced."""
        if request.method not in _READS:
            self._proxy.forwarded.append(ForwardedWrite(time.monotonic(), request.method, request.path))
        fresh = self._server is None
        connection = self._server = self._server or self._proxy.upstream.connect(60)
        try:
            response = self._send(request, connection)
            return response.status, response.getheaders(), response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._server = None
            if fresh:
                raise
            return self._forward(request)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self._proxy.flowing.wait()
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP and not (name.lower() == "content-length" and self.command != "HEAD"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, request: Request) -> None:
        """Forward a watch line by line. Lines about a hidden write are held back, and all lines after them."""
        connection = self._proxy.upstream.connect()
        try:
            response = self._send(request, connection)
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in {*_HOP, "content-length"}:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            threading.Thread(target=self._close_with_client, args=(connection,), daemon=True).start()
            while line := response.readline():
                while (wait_s := self._proxy.hidden(line) - time.monotonic()) > 0:
                    time.sleep(min(wait_s, 0.05))
                self._proxy.flowing.wait()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        finally:
            connection.close()
            self.close_connection = True

    def _close_with_client(self, connection: http.client.HTTPConnection) -> None:
        self._await_close()
        if connection.sock is not None:
            _shut_down(connection.sock)

    def _await_close(self) -> None:
        """Wait until the writer closes the connection."""
        self.close_connection = True
        with suppress(OSError):
            while self.connection.recv(_PIECE):
                """Nothing more is answered."""

    def _drop(self) -> None:
        self.close_connection = True
        _shut_down(self.connection)


def _shut_down(connection: socket.socket) -> None:
    """Wake the thread that uses a socket, and end its connection."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
