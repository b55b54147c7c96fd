"""The watch of benchmarks/operator continues where it was, and lists everything if the server lost events."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kubernetes import client
from operator_bench.watches import Watch
from specbench_testing.cluster import Cluster


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Collection(BaseHTTPRequestHandler):
    """A watch from version 1 delivers two events and ends; one from version 3 has expired; later ones stay open."""

    protocol_version = "HTTP/1.1"
    over = threading.Event()

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if "watch" not in query:
            first = query["limit"] == "1"
            items = [] if first else [item("a", 2), item("b", 4)]
            self.answer({"metadata": {"resourceVersion": "1" if first else "5"}, "items": items})
        elif query["resourceVersion"] == "1":
            self.events({"type": "ADDED", "object": item("a", 2)}, {"type": "BOOKMARK", "object": item("", 3)})
        elif query["resourceVersion"] == "3":
            self.events({"type": "ERROR", "object": {"code": 410}})
        else:
            self.events({"type": "DELETED", "object": item("b", 6)}, wait=True)

    def answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, *events: dict[str, Any], wait: bool = False) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            for part in (line[:10], line[10:]):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if wait:
            self.over.wait()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    Collection.over.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collection)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{server.server_port}"))
    yield Cluster(Path(), api)
    Collection.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_watch_continues_and_relists_after_lost_events(cluster: Cluster) -> None:
    seen: queue.Queue[tuple[str, str]] = queue.Queue()
    watch = Watch(cluster, "/runs", lambda kind, found, _: seen.put((kind, found["metadata"]["name"])))
    found = [seen.get(timeout=30) for _ in range(4)]
    watch.stop()
    assert found == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert watch.gaps == 1
