"""A proxy between one operator and the API server, which can be partitioned and records the requests that it forwards.

The operator connects by plain HTTP to 127.0.0.1, and the proxy by TLS to the API server.
"""

from __future__ import annotations

import base64
import re
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
        self._sockets: set[socket.socket] = set()
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
        self._refusing = True
        self._close_all()

    def hold(self) -> None:
        """Forward nothing more, in either direction, and keep all connections and what was sent."""
        self._flowing.clear()

    def heal(self) -> None:
        """Accept connections again, and deliver what was held, also from connections that the operator has given up."""
        self._refusing = False
        self._flowing.set()

    def __enter__(self) -> Self:
        _start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._flowing.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
            else:
                _start(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        self._flowing.wait()
        with client, suppress(OSError):  # either side may close the connection at any time
            connected = socket.create_connection(self._server)
            with self._tls.wrap_socket(connected, server_hostname=self._server[0]) as server:
                with self._lock:
                    self._sockets |= {client, server}
                answers = _start(partial(self._pump, server, client))
                self._pump(client, server, record=True)
                answers.join()
                with self._lock:
                    self._sockets -= {client, server}

    def _pump(self, source: socket.socket, sink: socket.socket, *, record: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                if record and (request := _REQUEST.match(data)):
                    method, path = (part.decode() for part in request.groups())
                    self.forwarded.append(ForwardedRequest(time.monotonic(), method, path))
                sink.sendall(data)
        self._flowing.wait()
        _shut_down(source, sink)

    def _close_all(self) -> None:
        with self._lock:
            _shut_down(*self._sockets)


def _shut_down(*sockets: socket.socket) -> None:
    """End the connections. The threads that use them close them."""
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="API server proxy", daemon=True)
    thread.start()
    return thread
