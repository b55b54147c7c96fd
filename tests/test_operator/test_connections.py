"""Connections to the API server are kept for all threads that use it: workers, and looks at stores."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from specbench_operator.cluster.api import RUN, connect
from specbench_operator.handlers.store_looks import THREADS_MAX
from specbench_operator.settings import OperatorSettings

THREADS = THREADS_MAX + OperatorSettings(client_image="c").workers


def test_no_connection_of_a_thread_is_discarded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    together = threading.Barrier(THREADS)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            together.wait(30)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

        def configure(client_configuration: Any) -> None:
            client_configuration.host = f"http://127.0.0.1:{server.server_address[1]}"

        monkeypatch.setattr("specbench_operator.cluster.api._config.load_incluster_config", configure)
        api = connect(30)
        with caplog.at_level(logging.WARNING), ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda name: api.get(RUN, "default", str(name)), range(THREADS)))
        server.shutdown()
    assert found == [{}] * THREADS
    assert "pool is full" not in caplog.text
