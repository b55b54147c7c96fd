"""Connections are kept and opened ahead, against a server that counts connections and requests."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from specbench_client.transport import http_connection, kept_connections
from specbench_client.transport.error_class import ErrorClass
from specbench_client.transport.exchange import ConnectionsAhead, ConnectionUse, HttpExchange, HttpRequest
from specbench_client.transport.http_connection import HttpConnection
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.transport.kept_connections import KeptConnections
from specbench_client.transport.socket_poller import READ_BYTES
from specbench_client.transport.tls_socket import TlsSocket
from specbench_testing.closing_servers import accepting

pytestmark = pytest.mark.process
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"


@dataclass
class CountingServer:
    """Counts connections and requests."""

    url: str = ""
    connections: int = 0
    bodies: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    answer: Callable[[int], bytes | None] = lambda _: ANSWER
    """Number of the POST, from 0 → the answer; None: the connection is closed without one."""
    closes_after_answer: bool = False
    threads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1_000))
    """Each is taken by one connection until it ends."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        async with self.threads:
            while head := await _head(reader):
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                self.bodies.append(await reader.readexactly(length))
                answer = self.answer(len(self.bodies) - 1)
                await self.may_answer.wait()
                if answer is not None:
                    writer.write(answer)
                if answer is None or self.closes_after_answer:
                    break
            writer.close()

    def close_idle(self) -> None:
        """Close all connections, as a server does whose idle timeout has passed."""
        for writer in self.writers:
            writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, OSError):
        return b""


@pytest.fixture
async def server(trusted_tls: ssl.SSLContext) -> AsyncIterator[CountingServer]:
    counted = CountingServer()
    async with accepting(counted.serve, tls=trusted_tls, host="localhost") as counted.url:
        yield counted


@pytest.fixture
async def plain() -> AsyncIterator[CountingServer]:
    """The same over http."""
    counted = CountingServer()
    async with accepting(counted.serve) as counted.url:
        yield counted


@asynccontextmanager
async def opened(server: CountingServer, first: int = 0, spare: int = 0) -> AsyncIterator[KernelTransport]:
    async with KernelTransport(ahead=ConnectionsAhead(server.url, first, spare)) as transport:
        yield transport


async def send(transport: KernelTransport, server: CountingServer, body: bytes = b"{}") -> HttpExchange:
    return (await transport.exchange(HttpRequest(f"{server.url}/v1", body))).read()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- the kernel has no event to wait for
        await asyncio.sleep(0.005)


def uses(exchanges: list[HttpExchange]) -> list[str | None]:
    assert [one.error for one in exchanges if one.error] == []
    return [one.connection for one in exchanges]


async def test_one_handshake_serves_many_requests(server: CountingServer) -> None:
    async with opened(server) as transport:
        exchanges = [await send(transport, server) for _ in range(20)]
    assert server.connections == 1
    assert uses(exchanges) == [ConnectionUse.NEW, *[ConnectionUse.KEPT] * 19]


async def test_no_request_waits_for_a_handshake_if_connections_are_opened_ahead(server: CountingServer) -> None:
    async with opened(server, first=3, spare=2) as transport:
        await until(lambda: server.connections == 5)
        for _ in range(10):
            exchanges = await asyncio.gather(*(send(transport, server) for _ in range(3)))
            assert uses(exchanges) == [ConnectionUse.KEPT] * 3
    assert (server.connections, len(server.bodies)) == (5, 30)


async def test_time_to_connect_is_between_connect_and_sent_of_a_new_connection_only(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shake_hands, shaken_ns = TlsSocket.shake_hands, list[int]()

    async def noted(self: TlsSocket) -> None:
        await shake_hands(self)
        shaken_ns.append(time.monotonic_ns())

    monkeypatch.setattr(TlsSocket, "shake_hands", noted)
    async with opened(server) as transport:
        new, kept = [await send(transport, server) for _ in range(2)]
    times = [new.connect_ns, *shaken_ns, new.sent_ns, kept.connect_ns, kept.sent_ns]
    known = [each for each in times if each is not None]
    assert len(known) == 5
    assert known == sorted(known)


async def test_idle_connection_that_the_server_closed_is_replaced_before_sending(server: CountingServer) -> None:
    async with opened(server) as transport:
        await send(transport, server, b"1")
        server.close_idle()
        await until(lambda: unacknowledged_bytes(server.writers[0]) == 0)
        assert uses([await send(transport, server, b"2")]) == [ConnectionUse.NEW]
    assert server.bodies == [b"1", b"2"]


async def test_close_that_the_event_loop_has_not_noticed_is_found_before_sending(server: CountingServer) -> None:
    """Closing and sending in one pass of the event loop: only the kernel knows that the connection is closed."""
    async with opened(server) as transport:
        await send(transport, server, b"1")
        close_in_kernel(server)
        exchange = await send(transport, server, b"2")
        assert uses([exchange]) == [ConnectionUse.NEW]
    assert server.bodies == [b"1", b"2"]


def close_in_kernel(server: CountingServer) -> None:
    """End every connection so that the peer receives FIN at once; the server's event loop does not run meanwhile."""
    for writer in server.writers:
        writer.get_extra_info("socket").shutdown(1)


async def test_request_that_never_reached_a_closed_connection_is_sent_again_once(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close crosses the request on its way: the check before sending does not see it."""
    monkeypatch.setattr(kept_connections, "_is_open", lambda *_: True)
    async with opened(server) as transport:
        await send(transport, server, b"1")
        reset_in_kernel(server)
        exchange = await send(transport, server, b"2")
        after = await send(transport, server, b"3")
    assert uses([exchange, after]) == [ConnectionUse.REOPENED, ConnectionUse.KEPT]
    assert server.bodies == [b"1", b"2", b"3"]
    assert server.connections == 2


def reset_in_kernel(server: CountingServer) -> None:
    """Close the sockets themselves: whatever is sent to them afterwards is neither received nor acknowledged."""
    for writer in server.writers:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER 0: RST
        writer.transport.abort()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("follows", [False, True])
async def test_request_whose_kept_connection_ended_without_an_answer_is_sent_again_once(
    plain: CountingServer, server: CountingServer, scheme: str, *, follows: bool
) -> None:
    used = plain if scheme == "http" else server
    keeping = {used.url: True}
    lost_ns = list[int]()

    def answer(number: int) -> bytes | None:
        if number != 1:
            return ANSWER
        lost_ns.append(time.monotonic_ns())
        return None

    used.answer = answer
    async with KernelTransport(keeping=keeping) as transport:
        first, second = pair_of_requests(used)
        first.follow = first.follow if follows else None
        exchanges = [(await transport.exchange(each)).read() for each in (first, second)]
    assert uses(exchanges) == [ConnectionUse.NEW, ConnectionUse.REOPENED]
    times = [*lost_ns, exchanges[1].connect_ns, exchanges[1].sent_ns]
    known = [each for each in times if each is not None]
    assert (len(known), known) == (3, sorted(known))
    assert used.bodies == [b"1", b"2", b"2"]
    assert keeping == {used.url: False}


async def test_request_that_is_lost_again_fails(server: CountingServer) -> None:
    server.answer = lambda number: ANSWER if number == 0 else None
    async with opened(server) as transport:
        await send(transport, server, b"1")
        lost = await send(transport, server, b"2")
    assert (lost.error_class, lost.connection) == (ErrorClass.RESET, ConnectionUse.REOPENED)
    assert server.bodies == [b"1", b"2", b"2"]


@pytest.mark.parametrize(("begun", "within_s"), [(b"H", 60.0), (None, -1.0)], ids=["a-byte-arrived", "ended-late"])
async def test_request_that_the_server_has_processed_is_never_sent_again(
    plain: CountingServer, monkeypatch: pytest.MonkeyPatch, begun: bytes | None, within_s: float
) -> None:
    monkeypatch.setattr(http_connection, "RESENT_WITHIN_S", within_s)
    plain.answer = lambda number: begun if number == 1 else ANSWER
    async with KernelTransport(keeping={plain.url: True}) as transport:
        await send(transport, plain, b"1")
        plain.closes_after_answer = True
        lost = await send(transport, plain, b"2")
    assert (lost.error_class, lost.connection) == (ErrorClass.RESET, ConnectionUse.KEPT)
    assert plain.bodies == [b"1", b"2"]


@pytest.mark.parametrize("spare", [0, 2])
async def test_server_that_closes_after_each_answer_fails_no_request(server: CountingServer, spare: int) -> None:
    """As llama.cpp does after a stream, although it announces keep-alive."""
    server.closes_after_answer = True
    async with opened(server, spare=spare) as transport:
        exchanges = [await send(transport, server, b"%d" % number) for number in range(20)]
    assert [one.error for one in exchanges if one.error] == []
    assert server.bodies == [b"%d" % number for number in range(20)]


async def test_spare_connections_are_opened_again_when_the_server_closes_them(server: CountingServer) -> None:
    async with opened(server, spare=2) as transport:
        await until(lambda: server.connections == 2)
        server.close_idle()
        await until(lambda: server.connections == 4)
        assert uses([await send(transport, server)]) == [ConnectionUse.KEPT]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
    ids=["announced", "http-1.0", "more-than-requested", "without-a-framed-body"],
)
async def test_connection_is_not_used_again_after_an_answer_that_may_have_ended_it(
    server: CountingServer, answer: bytes
) -> None:
    server.answer = lambda _: answer
    async with opened(server) as transport:
        exchanges = [await send(transport, server) for _ in range(3)]
    assert [one.connection for one in exchanges] == [ConnectionUse.NEW] * 3


async def test_bytes_that_nothing_asked_for_end_an_idle_connection(server: CountingServer) -> None:
    async with opened(server) as transport:
        await send(transport, server)
        server.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: unacknowledged_bytes(server.writers[0]) == 0)
        assert uses([await send(transport, server)]) == [ConnectionUse.NEW]


def unacknowledged_bytes(writer: asyncio.StreamWriter) -> int:
    """Return how many sent bytes the other side's kernel has not received yet."""
    return int(struct.unpack("i", fcntl.ioctl(writer.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4)))[0])


async def test_connection_that_was_idle_for_too_long_is_replaced(
    server: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server) as transport:
        await send(transport, server)
        monkeypatch.setattr(kept_connections, "KEPT_IDLE_S", 0.0)
        assert uses([await send(transport, server)]) == [ConnectionUse.NEW]


async def test_unreachable_server_fails_the_requests_and_not_the_opening(server: CountingServer) -> None:
    server.url = "https://localhost:1"
    async with opened(server, first=2, spare=1) as transport:
        assert (await send(transport, server)).error_class is ErrorClass.REFUSED


async def test_no_socket_is_left_open(server: CountingServer) -> None:
    before = open_files()
    async with opened(server, first=2, spare=1) as transport:
        await asyncio.gather(*(send(transport, server) for _ in range(8)))
    server.close_idle()
    await until(lambda: open_files() <= before)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(("closes", "expected"), [(False, ConnectionUse.KEPT), (True, ConnectionUse.NEW)])
async def test_http_connections_are_kept_once_the_server_has_kept_one(
    plain: CountingServer, closes: bool, expected: ConnectionUse
) -> None:
    plain.closes_after_answer, keeping = closes, dict[str, bool]()
    async with KernelTransport(keeping=keeping) as transport:
        assert uses([await send(transport, plain) for _ in range(2)]) == [ConnectionUse.NEW] * 2
        await until(lambda: plain.url in keeping)
        assert uses([await send(transport, plain) for _ in range(2)]) == [expected] * 2
    assert keeping == {plain.url: not closes}
    async with KernelTransport(keeping=keeping) as transport:
        assert uses([await send(transport, plain) for _ in range(2)]) == [ConnectionUse.NEW, expected]


@pytest.mark.parametrize(
    ("answered", "closed", "watched_s", "idle_s", "keeps"),
    [
        (True, False, 0.0, 60.0, True),
        (True, False, 60.0, 60.0, None),
        (False, False, 0.0, 60.0, None),
        (True, True, 60.0, 60.0, False),
        (True, True, 0.0, 0.0, None),
        (False, True, 0.0, 60.0, None),
    ],
    ids=["stayed-open", "for-too-short-a-time", "opened-ahead", "closed", "closed-when-idle", "closed-unused"],
)
def test_what_an_idle_connection_shows_of_its_server(
    monkeypatch: pytest.MonkeyPatch,
    *,
    answered: bool,
    closed: bool,
    watched_s: float,
    idle_s: float,
    keeps: bool | None,
) -> None:
    monkeypatch.setattr(kept_connections, "WATCHED_S", watched_s)
    monkeypatch.setattr(kept_connections, "HTTP_IDLE_S", idle_s)
    own, other = socket.socketpair()
    own.setblocking(False)
    kept = KeptConnections({}, "server", tls=True)
    kept.put(own, answered=answered)
    if closed:
        other.close()
    kept.close_unusable()
    assert (kept.count, kept.keeps) == (0 if closed else 1, keeps)
    kept.close()
    other.close()


def test_one_closed_connection_outweighs_all_that_are_kept() -> None:
    kept = KeptConnections({}, "server", tls=True)
    for keeps, expected in ((True, True), (False, False), (True, False)):
        kept.learn(keeps=keeps)
        assert kept.keeps is expected


async def test_http_connections_are_not_used_again_once_the_server_has_closed_one(plain: CountingServer) -> None:
    plain.closes_after_answer, keeping = True, {plain.url: True}
    async with KernelTransport(keeping=keeping) as transport:
        await send(transport, plain)
        await until(lambda: not keeping[plain.url])
        plain.closes_after_answer = False
        assert uses([await send(transport, plain) for _ in range(2)]) == [ConnectionUse.NEW] * 2


async def test_idle_http_connection_is_closed_before_servers_do(
    plain: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_connections, "HTTP_IDLE_S", 0.0)
    async with KernelTransport(keeping={plain.url: True}) as transport:
        assert uses([await send(transport, plain) for _ in range(2)]) == [ConnectionUse.NEW] * 2


def pair_of_requests(server: CountingServer) -> tuple[HttpRequest, HttpRequest]:
    """A request, and the one that follows it."""
    following = HttpRequest(f"{server.url}/v1", b"2")
    return HttpRequest(f"{server.url}/v1", b"1", follow=lambda: following), following


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_request_follows_an_answer_before_anyone_waits_for_it(
    plain: CountingServer, server: CountingServer, scheme: str
) -> None:
    used = plain if scheme == "http" else server
    async with KernelTransport(keeping={used.url: True}) as transport:
        first, following = pair_of_requests(used)
        answered = (await transport.exchange(first)).read()
        await until(lambda: used.bodies == [b"1", b"2"])
        followed = (await transport.exchange(following)).read()
        after = await send(transport, used, b"3")
    assert uses([answered, followed, after]) == [ConnectionUse.NEW, ConnectionUse.KEPT, ConnectionUse.KEPT]
    times = [answered.ended_ns, followed.connect_ns, followed.sent_ns, followed.first_byte_ns]
    known = [each for each in times if each is not None]
    assert (len(known), known) == (4, sorted(known))
    assert (used.connections, used.bodies) == (1, [b"1", b"2", b"3"])


@pytest.mark.parametrize("keeps", [None, False])
async def test_nothing_follows_if_the_server_may_close_the_connection(
    plain: CountingServer, keeps: bool | None
) -> None:
    async with KernelTransport(keeping={} if keeps is None else {plain.url: keeps}) as transport:
        first, following = pair_of_requests(plain)
        await transport.exchange(first)
        assert uses([(await transport.exchange(following)).read()]) == [ConnectionUse.NEW]
    assert plain.bodies == [b"1", b"2"]


async def test_nothing_follows_an_answer_that_ends_its_connection(plain: CountingServer) -> None:
    plain.answer = lambda _: b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with KernelTransport(keeping={plain.url: True}) as transport:
        first, following = pair_of_requests(plain)
        await transport.exchange(first)
        assert uses([(await transport.exchange(following)).read()]) == [ConnectionUse.NEW]


async def test_nothing_is_sent_after_a_request_that_was_answered_before_it_was_sent_whole() -> None:
    """A server may reject a long request before it has read it: the next one would become a part of its body."""
    heads = list[bytes]()

    async def answer_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await _head(reader))
        writer.write(ANSWER)
        await reader.read()

    async with accepting(answer_at_once) as url, KernelTransport(keeping={url: True}) as transport:
        following = HttpRequest(f"{url}/v1", b"2")
        long = HttpRequest(f"{url}/v1", bytes(64 * 1024 * 1024), follow=lambda: following)
        answers = [(await transport.exchange(each)).read() for each in (long, following)]
    assert uses(answers) == [ConnectionUse.NEW] * 2
    assert len(heads) == 2


async def test_nothing_follows_on_a_connection_on_which_bytes_are_waiting(plain: CountingServer) -> None:
    """The server answers twice, and the first answer is exactly one read."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    whole = head % (READ_BYTES - len(head % READ_BYTES)) + bytes(READ_BYTES - len(head % READ_BYTES))
    plain.answer = lambda number: ANSWER if number else whole * 2
    async with KernelTransport(keeping={plain.url: True}) as transport:
        first, following = pair_of_requests(plain)
        answers = [(await transport.exchange(each)).read() for each in (first, following)]
    assert len(whole) == READ_BYTES
    assert uses(answers) == [ConnectionUse.NEW] * 2
    assert [arrival.data for arrival in answers[1].arrivals] == [b"x"]


async def test_bytes_before_the_server_has_the_request_are_not_its_answer(
    plain: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = {plain.url: True}
    async with KernelTransport(keeping=keeping) as transport:
        await send(transport, plain, b"1")
        monkeypatch.setattr(http_connection, "_bytes_acked", lambda _: 100)
        early = await send(transport, plain, b"2")
        assert (early.error_class, early.connection, early.arrivals) == (ErrorClass.MALFORMED, ConnectionUse.KEPT, ())
        assert uses([await send(transport, plain, b"3")]) == [ConnectionUse.NEW]
    assert plain.bodies == [b"1", b"2", b"3"]
    assert keeping == {plain.url: False}


async def test_answers_are_read_where_the_system_does_not_count_acknowledged_bytes(
    plain: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "_bytes_acked", lambda _: 0)
    async with KernelTransport(keeping={plain.url: True}) as transport:
        exchanges = [await send(transport, plain) for _ in range(2)]
    assert uses(exchanges) == [ConnectionUse.NEW, ConnectionUse.KEPT]


async def test_kept_connection_gives_its_thread_to_a_stream_that_waits_for_it(plain: CountingServer) -> None:
    """Two streams and a server with one thread: the first one would send all of its requests before the other."""
    plain.threads, keeping = asyncio.Semaphore(1), {plain.url: True}
    plain.may_answer.clear()
    upcoming = [HttpRequest(f"{plain.url}/v1", b"stream 1")]

    def follow() -> HttpRequest:
        upcoming.append(HttpRequest(f"{plain.url}/v1", b"stream 1", follow=follow))
        return upcoming[-1]

    upcoming[0].follow = follow

    async def first_stream(transport: KernelTransport) -> None:
        for number in range(4):
            uses([(await transport.exchange(upcoming[number])).read()])
            if number == len(upcoming) - 1:
                follow()

    async with KernelTransport(keeping=keeping) as transport, asyncio.TaskGroup() as tasks:
        tasks.create_task(first_stream(transport))
        await until(lambda: len(plain.bodies) == 1)
        other = tasks.create_task(send(transport, plain, b"stream 2"))
        await until(lambda: plain.connections == 2)
        plain.may_answer.set()
        assert uses([await other]) == [ConnectionUse.NEW]
    assert plain.bodies == [b"stream 1", b"stream 1", b"stream 2", b"stream 1", b"stream 1"]
    assert keeping == {plain.url: False}


@dataclass
class SentRequest:
    """What `KeptConnections` reads of an `HttpConnection`."""

    sent_ns: int | None
    use: ConnectionUse = ConnectionUse.NEW
    datas: tuple[bytes, ...] = ()
    ended_ns: int | None = None


KEPT_REQUEST = SentRequest(2, ConnectionUse.KEPT, (b"x",), 3)


@pytest.mark.parametrize(
    ("waiting", "ended", "overtaken"),
    [
        (SentRequest(1), KEPT_REQUEST, True),
        (SentRequest(1), SentRequest(2, ConnectionUse.NEW, (b"x",), 3), False),
        (SentRequest(1, datas=(b"x",)), KEPT_REQUEST, False),
        (SentRequest(1, ended_ns=2), KEPT_REQUEST, False),
        (SentRequest(2), KEPT_REQUEST, False),
        (SentRequest(None), KEPT_REQUEST, False),
    ],
    ids=["overtaken", "on-a-new-connection", "is-answered", "failed", "sent-together", "not-sent"],
)
def test_request_on_a_new_connection_is_overtaken_by_later_ones_on_kept_ones(
    waiting: SentRequest, ended: SentRequest, *, overtaken: bool
) -> None:
    kept = KeptConnections({"server": True}, "server", tls=False)
    kept.opened(cast("HttpConnection", waiting))
    assert kept.has_overtaken(cast("HttpConnection", ended)) is overtaken
    kept.learn(keeps=False)
    kept.opened(cast("HttpConnection", SentRequest(1)))
    assert not kept.has_overtaken(cast("HttpConnection", KEPT_REQUEST))


@pytest.mark.parametrize(
    ("tls", "keeps", "kept_open"), [(True, False, 2), (False, True, 2), (False, None, 1), (False, False, 0)]
)
def test_connections_that_stay_open_after_their_answers(*, tls: bool, keeps: bool | None, kept_open: int) -> None:
    kept = KeptConnections({} if keeps is None else {"server": keeps}, "server", tls=tls)
    pairs = [socket.socketpair() for _ in range(2)]
    for own, _ in pairs:
        kept.put(own, answered=True)
    assert sum(own.fileno() >= 0 for own, _ in pairs) == kept_open
    kept.close()
    for _, other in pairs:
        other.close()


async def test_long_request_follows_an_answer_in_several_writes(plain: CountingServer) -> None:
    following = HttpRequest(f"{plain.url}/v1", bytes(32 * 1024 * 1024))
    async with KernelTransport(keeping={plain.url: True}) as transport:
        await transport.exchange(HttpRequest(f"{plain.url}/v1", b"1", follow=lambda: following))
        assert uses([(await transport.exchange(following)).read()]) == [ConnectionUse.KEPT]
    assert [len(body) for body in plain.bodies] == [1, 32 * 1024 * 1024]


async def test_followed_request_that_nobody_waits_for_leaves_no_socket_open(plain: CountingServer) -> None:
    before = open_files()
    async with KernelTransport(keeping={plain.url: True}) as transport:
        await transport.exchange(pair_of_requests(plain)[0])
    await until(lambda: open_files() <= before)
