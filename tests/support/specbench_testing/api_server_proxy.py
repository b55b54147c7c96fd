"""A proxy between one operator and the API server, which can be partitioned and records the requests that it forwards.

The operator connects by plain HTTP to 127.0.0.1, and the proxy by TLS to the API server.
"""

from __future__ import annotations

import base64
import re
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import yaml

from specbench_testing.cluster import Cluster

_REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class ForwardedRequest:
    """A request that reached the API server. `at`: when it was forwarded (time.monotonic)."""

    at: float
    method: str
    path: str

    @property
    def writes_product(self) -> bool:
        """Whether it writes something other than the Lease. A question about its own rights is sent by POST."""
        return self.method != "GET" and "/leases" not in self.path and "/selfsubjectaccessreviews" not in self.path


class ApiServerProxy:
    """The proxy, within a `with` block."""

    def __init__(self, cluster: Cluster) -> None:
        given = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        authority = base64.b64decode(given["certificate-authority-data"]).decode()
        url = urlsplit(given["server"])
        self._server = (str(url.hostname), int(url.port or 443))
        self._tls = ssl.create_default_context(cadata=authority)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._clients: set[socket.socket] = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self.forwarded: list[ForwardedRequest] = []

    @property
    def url(self) -> str:
        """The address for the operator."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def writes(self, since: float = 0.0) -> list[ForwardedRequest]:
        """Writes forwarded since then, except those of the Lease."""
        return [request for request in list(self.forwarded) if request.at >= since and request.writes_product]

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        with self._lock:
            self._refusing = True
            for client in self._clients:
                _shut_down(client)  # its thread closes it, and the connection to the API server
            self._clients.clear()

    def hold(self) -> None:
        """Forward nothing more, in either direction, and keep all connections and what was sent."""
        with self._lock:
            self._flowing.clear()

    def heal(self) -> None:
        """Accept connections again, and deliver what was held, also from connections that the operator has given up."""
        self._refusing = False
        self._flowing.set()

    def __enter__(self) -> Self:
        self._accepting = _start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._flowing.set()
        _shut_down(self._listener)
        self._accepting.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._refusing:
                    client.close()
                else:
                    self._clients.add(client)
                    _start(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        with client:
            self._flowing.wait()
            with (
                suppress(OSError),  # either side may close the connection at any time
                socket.create_connection(self._server) as connected,
                self._tls.wrap_socket(connected, server_hostname=self._server[0]) as server,
            ):
                with suppress(OSError):
                    self._forward(client, server)
                server.shutdown(socket.SHUT_WR)  # ends TLS too: what follows is not decrypted
                while server.recv(_CHUNK):
                    """If it were closed with something unread, the server could lose the last request."""
            with self._lock:
                self._clients.discard(client)

    def _forward(self, client: socket.socket, server: ssl.SSLSocket) -> None:
        """Forward in both directions until either side closes its connection, or until it is cut.

        One thread does both, because the TLS connection must not be used by two threads at once: the first request
        would be lost if it were sent while the server's session tickets are received. While nothing may be forwarded,
        nothing is received either, so the operating system keeps what was sent.
        """
        with selectors.DefaultSelector() as sides:
            sides.register(client, selectors.EVENT_READ)
            sides.register(server, selectors.EVENT_READ)
            while True:
                self._flowing.wait()
                ready = [key.fileobj for key, _ in sides.select()]
                with self._lock:
                    if client not in self._clients:
                        return
                    if not self._flowing.is_set():
                        continue
                    requests = client.recv(_CHUNK) if client in ready else None
                    answers = _receive(server) if server in ready else None
                    self._record(requests or b"")
                if requests:
                    server.sendall(requests)
                if answers:
                    with suppress(OSError):  # further requests may have been sent before it was closed
                        client.sendall(answers)
                if b"" in (requests, answers):
                    return

    def _record(self, requests: bytes) -> None:
        if request := _REQUEST.match(requests):
            method, path = (part.decode() for part in request.groups())
            self.forwarded.append(ForwardedRequest(time.monotonic(), method, path))


def _receive(server: ssl.SSLSocket) -> bytes | None:
    """What the server sent, empty at the end; None if it was part of a record, or TLS's own, such as a session ticket.

    A record is smaller than _CHUNK, so nothing decrypted is left behind, which the selector would not report.
    """
    server.setblocking(False)
    try:
        return server.recv(_CHUNK)
    except ssl.SSLWantReadError:
        return None
    finally:
        server.setblocking(True)


def _shut_down(connection: socket.socket) -> None:
    """Wake the thread that uses a socket, and end its connection."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="API server proxy", daemon=True)
    thread.start()
    return thread
