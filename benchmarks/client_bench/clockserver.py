"""A mock OpenAI-compatible streaming server that records its true send times. Uses only the standard library.

Two times are recorded for each request: when the kernel had received it completely (SO_TIMESTAMPNS, which excludes
delays of the server's own loop), and when each chunk was passed to `send()` (CLOCK_MONOTONIC, read right before, and
after encrypting).
It uses raw sockets and epoll in one loop, because an asyncio server would be slower than the clients under test.
"""

from __future__ import annotations

import argparse
import json
import select
import signal
import socket
import ssl
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from client_bench.kernel_timestamps import SO_TIMESTAMPNS, arrived_ns, await_stamps
from client_bench.server_responses import NUMBER, STREAM_HEAD, header_fields, length, page, pieces, whole
from client_bench.server_tls import TlsSession, server_context


class _Stopped(Exception):
    """SIGTERM or SIGINT was received."""


@dataclass(frozen=True)
class Pace:
    """The pace of the streams. `step_ms` 0: as fast as the sockets allow. `burst`: chunks per `send()`."""

    step_ms: float = 20.0
    burst: int = 1


@dataclass(slots=True)
class Answer:
    """One request: its true times and the progress of its stream."""

    number: int
    request_id: str | None
    received_ns: int
    pieces: Sequence[bytes]
    chunk_ns: array[int] = field(default_factory=lambda: array("q"))
    unsent: bytes = b""

    @property
    def digits(self) -> bytes:
        return b"%016d" % self.number

    def truth(self) -> dict[str, Any]:
        """Return the record for the truth file; `complete` is False if the client disconnected."""
        return {
            "number": self.number,
            "request_id": self.request_id,
            "received_ns": self.received_ns,
            "complete": len(self.chunk_ns) == len(self.pieces) and not self.unsent,
            "chunk_ns": self.chunk_ns.tolist(),
        }


@dataclass(slots=True)
class Connection:
    """A socket, the bytes received so far, and the response in progress.

    `closes`: the client requested that the server closes the connection after the answer, as engines do.
    """

    sock: socket.socket
    tls: TlsSession | None = None
    received: bytes = b""
    answer: Answer | None = None
    closes: bool = False


class ClockServer:
    """The server: create `ClockServer(Pace())`, call `turn()` repeatedly, then read `truth()`."""

    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        ends_together: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.pace = pace
        self.ends_together = ends_together
        self.answers: list[Answer] = []
        self.steps = self.late_steps = 0
        self._clock = clock
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit both options
        self._listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        await_stamps()
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._streaming: list[Connection] = []
        self._due_ns = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def turn(self, patience_s: float | None = None) -> None:
        """Wait for a socket or the next step, and handle what is due."""
        until_due_s = max(0.0, (self._due_ns - self._clock()) / 1e9) if self._streaming else patience_s
        for number, events in self._poll.poll(until_due_s):
            connection = self._connections.get(number)
            if connection is None:
                self._accept()
            elif events & select.EPOLLOUT:
                self._flush(connection)
            else:
                self._read(connection)
        if self._streaming and self._clock() >= self._due_ns:
            self._step()

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._listener.close()
        self._poll.close()

    def truth(self) -> dict[str, Any]:
        """Return the true times of all requests."""
        requests = [answer.truth() for answer in self.answers]
        return {"steps": self.steps, "late_steps": self.late_steps, "requests": requests}

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            self._connections[sock.fileno()] = Connection(sock, TlsSession(self._tls) if self._tls else None)
            self._poll.register(sock, select.EPOLLIN)

    def _read(self, connection: Connection) -> None:
        try:
            data, stamps, _, _ = connection.sock.recvmsg(65536, 64)
            if data and connection.tls is not None:
                data, reply = connection.tls.receive(data)
                if reply:
                    self._send(connection, reply)
                if not data:
                    return  # The handshake, or a part of a record; a close_notify is followed by a close.
        except BlockingIOError:
            return
        except OSError:
            data = b""  # treat a reset, or a client that rejects the certificate, like a close
        if not data:
            self._drop(connection)
            return
        connection.received += data
        head, end, body = connection.received.partition(b"\r\n\r\n")
        fields = header_fields(head)
        if end and len(body) >= int(fields.get("content-length", 0)):
            connection.received = b""
            path = head.split(b" ", 2)[1].decode()
            if path.startswith("/v1/chat/completions"):
                connection.closes = fields.get("connection", "").lower() == "close"
                self._answer(connection, json.loads(body), fields.get("x-request-id"), arrived_ns(stamps))
            else:
                tokens = sum(len(answer.chunk_ns) for answer in self.answers)
                self._put(connection, page(path, len(self.answers), tokens))

    def _answer(
        self, connection: Connection, body_fields: dict[str, Any], request_id: str | None, received_ns: int
    ) -> None:
        most = body_fields.get("max_completion_tokens") or body_fields.get("max_tokens") or 128
        if not body_fields.get("stream"):
            self._put(connection, whole(most))
            return
        number = len(self.answers)
        tokens = most if self.ends_together else length(number, most)
        connection.answer = Answer(number, request_id, received_ns, pieces(tokens, most))
        self.answers.append(connection.answer)
        self._put(connection, STREAM_HEAD)
        if not self._streaming:
            self._due_ns = self._clock() + int(self.pace.step_ms * 1e6)
        self._streaming.append(connection)

    def _step(self) -> None:
        """Send every stream its next chunk, like a batch of an engine."""
        burst, clock, going_on, ended = self.pace.burst, self._clock, [], list[Connection]()
        for connection in self._streaming:
            answer = connection.answer
            if answer is None:  # its client disconnected
                continue
            if not answer.unsent:
                done = len(answer.chunk_ns)
                data = answer.pieces[done] if burst == 1 else b"".join(answer.pieces[done : done + burst])
                data = _on_the_wire(connection, data.replace(NUMBER, answer.digits))
                for _ in range(min(burst, len(answer.pieces) - done)):
                    answer.chunk_ns.append(clock())
                self._send(connection, data)
            if len(answer.chunk_ns) < len(answer.pieces):
                going_on.append(connection)
            elif connection.closes and not answer.unsent:
                ended.append(connection)
        for connection in ended:
            self._drop(connection)
        self._streaming = going_on
        step_ns, now = int(self.pace.step_ms * 1e6), self._clock()
        self.steps += 1
        self.late_steps += step_ns > 0 and now > self._due_ns + step_ns
        self._due_ns = max(self._due_ns + step_ns, now)  # after a late step, the next one starts immediately

    def _put(self, connection: Connection, data: bytes) -> None:
        self._send(connection, _on_the_wire(connection, data))

    def _send(self, connection: Connection, data: bytes) -> None:
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        if sent < len(data):
            if (
                connection.answer is None
            ):  # even an empty socket buffer does not accept the page: the client does not read
                self._drop(connection)
                return
            connection.answer.unsent += data[sent:]
            self._poll.modify(connection.sock, select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, connection: Connection) -> None:
        answer = connection.answer
        if answer is not None:
            data, answer.unsent = answer.unsent, b""
            self._poll.modify(connection.sock, select.EPOLLIN)
            self._send(connection, data)

    def _drop(self, connection: Connection) -> None:
        connection.answer = None
        if self._connections.pop(connection.sock.fileno(), None):
            connection.sock.close()  # closing also removes it from the epoll


def _on_the_wire(connection: Connection, data: bytes) -> bytes:
    return data if connection.tls is None else connection.tls.encrypt(data)


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise _Stopped


def main() -> None:
    """Print the address, serve, and write the truth file after a signal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--truth", type=Path, required=True, help="file for the true times, written at the end")
    parser.add_argument("--step-ms", type=float, default=20.0, help="0: as fast as the sockets accept data")
    parser.add_argument("--burst", type=int, default=1, help="chunks of a stream in one send()")
    parser.add_argument("--ends-together", action="store_true", help="return all of the requested tokens, always")
    parser.add_argument("--tls", type=Path, metavar="FOLDER", help="serve https with the certificate in this folder")
    options = parser.parse_args()
    server = ClockServer(
        Pace(options.step_ms, options.burst),
        ends_together=options.ends_together,
        tls=None if options.tls is None else server_context(options.tls),
    )
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        while True:
            server.turn()
    except _Stopped:
        options.truth.write_text(json.dumps(server.truth()))


if __name__ == "__main__":
    main()
