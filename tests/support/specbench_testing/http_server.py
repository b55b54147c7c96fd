"""A local HTTP server whose answers are a function of its requests."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Request(NamedTuple):
    """A request. `target`: path and query."""

    method: str
    target: str
    headers: Message
    body: bytes


Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""
Answer = Callable[[Request], Reply]


class AnsweringHandler(BaseHTTPRequestHandler):
    """Answers every method with `answer`."""

    protocol_version = "HTTP/1.1"
    answer: Answer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, headers, content = self.answer(Request(self.command, self.path, self.headers, body))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has read enough
            self.wfile.write(b"" if self.command == "HEAD" else content)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 -- names of the base class

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
        """Log nothing."""


@contextmanager
def http_server(
    answer: Answer,
    *,
    handler: type[AnsweringHandler] = AnsweringHandler,
    tls: ssl.SSLContext | None = None,
    family: int = socket.AF_INET,
) -> Iterator[int]:
    """Run the server on a loopback address; yields its port."""

    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True

    bound = type("BoundHandler", (handler,), {"answer": staticmethod(answer)})
    server = Server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), bound)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
