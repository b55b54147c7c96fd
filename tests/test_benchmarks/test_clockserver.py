"""The reference server and the timestamps it records, with real sockets and a server in this process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.clockserver import ClockServer, Pace
from client_bench.server_responses import length, pieces
from client_bench.timing_accuracy import read_truth

UNPACED = Pace(step_ms=0)


@contextmanager
def serving(pace: Pace) -> Iterator[ClockServer]:
    """A server whose event loop runs in a thread until the end of the block."""
    server, ended = ClockServer(pace), threading.Event()

    def loop() -> None:
        while not ended.is_set():
            server.turn(patience_s=0.01)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield server
    finally:
        ended.set()
        thread.join()
        server.close()


def connected(server: ClockServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30)


def request(tokens: int, request_id: str = "") -> bytes:
    body = json.dumps({"model": "clock", "messages": [], "stream": True, "max_tokens": tokens}).encode()
    id_header = f"X-Request-Id: {request_id}\r\n" if request_id else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: clock\r\n{id_header}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_stream(sock: socket.socket) -> list[tuple[int, bytes]]:
    """All reads up to the end of the chunked body, each with its time."""
    reads: list[tuple[int, bytes]] = []
    while not b"".join(data for _, data in reads[-2:]).endswith(b"0\r\n\r\n"):
        data = sock.recv(65536)
        assert data, "the server closed"
        reads.append((time.monotonic_ns(), data))
    return reads


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.001)


@pytest.mark.parametrize("pace", [Pace(step_ms=1), UNPACED, Pace(step_ms=0, burst=8)], ids=str)
def test_recorded_send_times_are_after_the_request_and_before_the_chunk_arrives(pace: Pace) -> None:
    with serving(pace) as server, connected(server) as sock:
        sent_ns = time.monotonic_ns()
        sock.sendall(request(40, "mine"))
        reads = read_stream(sock)

    (recorded,) = read_truth(server.truth())
    assert (recorded.complete, recorded.request_id, len(recorded.chunk_ns)) == (True, "mine", length(0, 40))
    assert list(recorded.chunk_ns) == sorted(recorded.chunk_ns)
    clock_difference_ns = 1_000_000  # the kernel's timestamp is converted from the wall clock
    assert sent_ns - clock_difference_ns <= recorded.received_ns <= recorded.chunk_ns[0] + clock_difference_ns
    arrived = b""
    for at_ns, data in reads:
        arrived += data
        sent = arrived.count(b'"content":" word') + arrived.count(b'"content":"0000')
        assert all(one <= at_ns for one in recorded.chunk_ns[:sent])


def test_a_request_of_a_disconnected_client_is_not_complete() -> None:
    with serving(Pace(step_ms=1)) as server:
        with connected(server) as sock:
            sock.sendall(request(100_000))
            wait_until(lambda: bool(server.answers and server.answers[0].chunk_ns))
        wait_until(lambda: not server._streaming)

    (recorded,) = read_truth(server.truth())
    assert not recorded.complete


def test_streams_step_together_and_the_server_catches_up_after_a_late_step() -> None:
    now_ns = 0
    server = ClockServer(Pace(step_ms=1), clock=lambda: now_ns)
    socks = [connected(server) for _ in range(3)]
    for sock in socks:
        sock.sendall(request(20))
    while len(server.answers) < 3:
        server.turn()

    for now_ns in (999_999, 1_000_000, 1_500_000, 9_000_000, 9_000_000, 9_500_000):  # noqa: B007 -- read by the clock
        server.turn()

    sent = [list(recorded.chunk_ns) for recorded in read_truth(server.truth())]
    assert sent == [[1_000_000, 9_000_000, 9_000_000]] * 3
    assert (server.steps, server.late_steps) == (3, 1)
    for sock in socks:
        sock.close()
    server.close()


@given(number=st.integers(0, 10**6), most=st.integers(1, 4096))
def test_an_answer_has_between_half_and_all_of_max_tokens(number: int, most: int) -> None:
    assert most / 2 <= length(number, most) <= most


@given(tokens=st.integers(1, 300))
def test_each_send_contains_one_content_chunk_of_270_to_310_bytes(tokens: int) -> None:
    sent = pieces(tokens, 300)
    assert len(sent) == tokens
    assert all(270 <= len(piece) <= 310 for piece in sent[1:-1])
