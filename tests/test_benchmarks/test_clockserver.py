"""The reference server and the timestamps it records, with real sockets and a server in this process."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.clockserver import ClockServer, Pace
from client_bench.server_responses import length, pieces
from client_bench.server_tls import make_certificate, server_context
from client_bench.timing_accuracy import read_truth

UNPACED = Pace(step_ms=0)


@contextmanager
def serving(pace: Pace, *, ends_together: bool = False, tls: ssl.SSLContext | None = None) -> Iterator[ClockServer]:
    """A server whose event loop runs in a thread until the end of the block."""
    server, ended = ClockServer(pace, ends_together=ends_together, tls=tls), threading.Event()

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


def connected(server: ClockServer, receive_buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
    return sock


def request(tokens: int, request_id: str = "", *, stream: bool = True) -> bytes:
    body = json.dumps({"model": "clock", "messages": [], "stream": stream, "max_tokens": tokens}).encode()
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


def documents(stream: bytes) -> list[Any]:
    """The events of a body in chunked transfer coding; each chunk must contain one event."""
    found, position = [], stream.index(b"\r\n\r\n") + 4
    while position < len(stream):
        start = stream.index(b"\r\n", position) + 2
        event = stream[start : start + int(stream[position : start - 2], 16)]
        position = start + len(event) + 2
        if event and event != b"data: [DONE]\n\n":
            found.append(json.loads(event.removeprefix(b"data: ")))
    return found


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


@pytest.mark.process
def test_answers_over_tls_on_one_connection_are_recorded_like_others(tmp_path: Path) -> None:
    trusting = ssl.create_default_context(cafile=make_certificate(tmp_path))
    with (
        serving(Pace(step_ms=1), tls=server_context(tmp_path)) as server,
        trusting.wrap_socket(connected(server), server_hostname="127.0.0.1") as sock,
    ):
        assert server.url.startswith("https://127.0.0.1:")
        for _ in range(2):
            sent_ns = time.monotonic_ns()
            sock.sendall(request(40))
            reads = read_stream(sock)

    recorded = read_truth(server.truth())
    assert [one.complete for one in recorded] == [True, True]
    assert sent_ns < recorded[1].chunk_ns[0] <= recorded[1].chunk_ns[-1] <= reads[-1][0]
    assert len(documents(b"".join(data for _, data in reads))) == length(1, 40) + 2


@pytest.mark.process
def test_a_client_that_rejects_the_certificate_is_disconnected(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    with serving(UNPACED, tls=server_context(tmp_path)) as server:
        with connected(server) as sock, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(sock, server_hostname="127.0.0.1")
        wait_until(lambda: not server._connections)


def test_the_stream_has_the_format_of_vllm_and_contains_the_request_number() -> None:
    with serving(UNPACED) as server:
        for _ in range(3):
            with connected(server) as sock:
                sock.sendall(request(60))
                received = documents(b"".join(data for _, data in read_stream(sock)))

    role, *content, usage = received
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert int(content[0]["choices"][0]["delta"]["content"]) == 2
    assert [one["usage"]["completion_tokens"] for one in content] == list(range(1, length(2, 60) + 1))
    assert [one["choices"][0]["finish_reason"] for one in content] == [None] * (len(content) - 1) + ["stop"]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], len(content))
    assert {one["id"] for one in received} == {f"chatcmpl-{2:016d}"}


def test_streams_that_end_together_have_all_of_the_requested_tokens() -> None:
    with serving(UNPACED, ends_together=True) as server:
        for _ in range(2):
            with connected(server) as sock:
                sock.sendall(request(60))
                read_stream(sock)

    assert length(1, 60) < 60
    assert [len(each.chunk_ns) for each in server.answers] == [60, 60]


def test_a_connection_is_closed_after_the_answer_if_the_client_requested_it() -> None:
    with serving(UNPACED) as server, connected(server) as sock:
        sock.sendall(request(5).replace(b"Host: clock", b"Connection: close"))
        read_stream(sock)
        assert sock.recv(1) == b""


def test_a_slow_client_receives_everything_and_does_not_delay_others() -> None:
    with serving(UNPACED) as server, connected(server, receive_buffer=4096) as slow, connected(server) as fast:
        slow.sendall(request(30_000))
        wait_until(lambda: bool(server.answers and server.answers[0].unsent))
        fast.sendall(request(10))
        read_stream(fast)
        assert server.answers[1].truth()["complete"]
        received = documents(b"".join(data for _, data in read_stream(slow)))
        assert len(received) == length(0, 30_000) + 2


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


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/version", "/metrics"])
def test_auxiliary_endpoints_answer_repeatedly_on_one_connection(path: str) -> None:
    with serving(UNPACED) as server, connected(server) as sock:
        for _ in range(2):
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: clock\r\n\r\n".encode())
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_without_streaming_is_answered_and_not_recorded() -> None:
    with serving(UNPACED) as server, connected(server) as sock:
        sock.sendall(request(5, stream=False))
        assert json.loads(sock.recv(65536).partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 5
        assert server.answers == []


@given(number=st.integers(0, 10**6), most=st.integers(1, 4096))
def test_an_answer_has_between_half_and_all_of_max_tokens(number: int, most: int) -> None:
    assert most / 2 <= length(number, most) <= most


@given(tokens=st.integers(1, 300))
def test_each_send_contains_one_content_chunk_of_270_to_310_bytes(tokens: int) -> None:
    sent = pieces(tokens, 300)
    assert len(sent) == tokens
    assert all(270 <= len(piece) <= 310 for piece in sent[1:-1])
