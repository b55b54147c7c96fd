"""The server's truth: real sockets, a server in this process."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_bench.clockserver import ClockServer, Pace
from client_bench.server_responses import length, pieces
from client_bench.timing_accuracy import read_truth

UNPACED = Pace(step_ms=0)


@contextmanager
def serving(pace: Pace) -> Iterator[ClockServer]:
    """A server whose loop runs in a thread until the end of the block."""
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


def connected(server: ClockServer, receive_buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
    return sock


def request(tokens: int, request_id: str = "", *, stream: bool = True) -> bytes:
    body = json.dumps({"model": "clock", "messages": [], "stream": stream, "max_tokens": tokens}).encode()
    named = f"X-Request-Id: {request_id}\r\n" if request_id else ""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: clock\r\n{named}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_stream(sock: socket.socket) -> list[tuple[int, bytes]]:
    """Reads and when, to the end of the chunked body."""
    reads: list[tuple[int, bytes]] = []
    while not b"".join(data for _, data in reads[-2:]).endswith(b"0\r\n\r\n"):
        data = sock.recv(65536)
        assert data, "the server closed"
        reads.append((time.monotonic_ns(), data))
    return reads


def documents(stream: bytes) -> list[Any]:
    """The events of a body in chunked coding, each chunk of which must be one event."""
    found, place = [], stream.index(b"\r\n\r\n") + 4
    while place < len(stream):
        start = stream.index(b"\r\n", place) + 2
        event = stream[start : start + int(stream[place : start - 2], 16)]
        place = start + len(event) + 2
        if event and event != b"data: [DONE]\n\n":
            found.append(json.loads(event.removeprefix(b"data: ")))
    return found


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.001)


@pytest.mark.parametrize("pace", [Pace(step_ms=1), UNPACED, Pace(step_ms=0, burst=8)], ids=str)
def test_no_chunk_arrives_before_its_true_send_time_and_none_is_sent_before_the_request_came(pace: Pace) -> None:
    with serving(pace) as server, connected(server) as sock:
        asked_ns = time.monotonic_ns()
        sock.sendall(request(40, "mine"))
        reads = read_stream(sock)

    (true,) = read_truth(server.truth())
    assert (true.complete, true.request_id, len(true.chunk_ns)) == (True, "mine", length(0, 40))
    assert list(true.chunk_ns) == sorted(true.chunk_ns)
    clocks_apart_ns = 1_000_000  # the kernel's stamp comes over from the wall clock
    assert asked_ns - clocks_apart_ns <= true.received_ns <= true.chunk_ns[0] + clocks_apart_ns
    arrived = b""
    for at_ns, data in reads:
        arrived += data
        sent = arrived.count(b'"content":" word') + arrived.count(b'"content":"0000')
        assert all(one <= at_ns for one in true.chunk_ns[:sent])


def test_the_stream_is_vllms_and_says_which_request_it_answers() -> None:
    with serving(UNPACED) as server:
        for _ in range(3):
            with connected(server) as sock:
                sock.sendall(request(60))
                told = documents(b"".join(data for _, data in read_stream(sock)))

    role, *content, usage = told
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert int(content[0]["choices"][0]["delta"]["content"]) == 2
    assert [one["usage"]["completion_tokens"] for one in content] == list(range(1, length(2, 60) + 1))
    assert [one["choices"][0]["finish_reason"] for one in content] == [None] * (len(content) - 1) + ["stop"]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], len(content))
    assert {one["id"] for one in told} == {f"chatcmpl-{2:016d}"}


def test_a_client_that_does_not_read_loses_nothing_and_holds_nobody_up() -> None:
    with serving(UNPACED) as server, connected(server, receive_buffer=4096) as slow, connected(server) as quick:
        slow.sendall(request(30_000))
        until(lambda: bool(server.answers and server.answers[0].unsent))
        quick.sendall(request(10))
        read_stream(quick)
        assert server.answers[1].truth()["complete"]
        told = documents(b"".join(data for _, data in read_stream(slow)))
        assert len(told) == length(0, 30_000) + 2


def test_a_request_whose_client_went_away_is_not_complete() -> None:
    with serving(Pace(step_ms=1)) as server:
        with connected(server) as sock:
            sock.sendall(request(100_000))
            until(lambda: bool(server.answers and server.answers[0].chunk_ns))
        until(lambda: not server._streaming)

    (true,) = read_truth(server.truth())
    assert not true.complete


def test_streams_of_one_server_take_their_steps_together_and_a_late_step_is_followed_at_once() -> None:
    now_ns = 0
    server = ClockServer(Pace(step_ms=1), clock=lambda: now_ns)
    socks = [connected(server) for _ in range(3)]
    for sock in socks:
        sock.sendall(request(20))
    while len(server.answers) < 3:
        server.turn()

    for now_ns in (999_999, 1_000_000, 1_500_000, 9_000_000, 9_000_000, 9_500_000):  # noqa: B007 -- the clock reads it
        server.turn()

    sent = [list(true.chunk_ns) for true in read_truth(server.truth())]
    assert sent == [[1_000_000, 9_000_000, 9_000_000]] * 3
    assert (server.steps, server.late_steps) == (3, 1)
    for sock in socks:
        sock.close()
    server.close()


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/version", "/metrics"])
def test_the_pages_that_clients_look_at_are_there_on_one_connection(path: str) -> None:
    with serving(UNPACED) as server, connected(server) as sock:
        for _ in range(2):
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: clock\r\n\r\n".encode())
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_without_streaming_is_answered_whole_and_is_no_part_of_the_truth() -> None:
    with serving(UNPACED) as server, connected(server) as sock:
        sock.sendall(request(5, stream=False))
        assert json.loads(sock.recv(65536).partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 5
        assert server.answers == []


@given(number=st.integers(0, 10**6), most=st.integers(1, 4096))
def test_an_answer_has_between_half_and_all_of_what_was_asked_for(number: int, most: int) -> None:
    assert most / 2 <= length(number, most) <= most


@given(tokens=st.integers(1, 300))
def test_each_send_carries_one_content_chunk_of_about_280_bytes(tokens: int) -> None:
    sent = pieces(tokens, 300)
    assert len(sent) == tokens
    assert all(270 <= len(piece) <= 310 for piece in sent[1:-1])
