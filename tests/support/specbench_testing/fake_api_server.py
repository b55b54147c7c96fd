"""A local HTTP server in the place of the API server, and the operator's client for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client
from specbench_operator.cluster.api import KubernetesApi
from specbench_operator.cluster.leader_election import Leadership

Answer = Callable[[str, str, Mapping[str, list[str]]], tuple[int, bytes]]
"""Method, path and query of a request → status and JSON."""


@contextmanager
def api_server(answer: Answer) -> Iterator[str]:
    """Run the server; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            url = urlsplit(self.path)
            status, body = answer(self.command, url.path, parse_qs(url.query))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has read enough
                self.wfile.write(body)

        do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 -- names of the base class

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def api_of(url: str, leadership: Leadership | None = None) -> KubernetesApi:
    """The operator's client for this server. Without `leadership`, it may always write."""
    configuration = client.Configuration(host=url)
    return KubernetesApi(client.ApiClient(configuration), 10, leadership)
