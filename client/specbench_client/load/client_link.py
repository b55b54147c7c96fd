"""The clients that send one load together: their connections, one clock, and one worker table.

The workers of all clients are numbered together: worker w belongs to client w mod N. Every client computes the whole
load and runs its own workers' shares. The worker table has a row for each worker of every client; each client sends its
own rows to the others every EXCHANGE_INTERVAL_S. So phases, fillers and the start of a schedule are decided as with
one client, but a change in another client is visible a moment later.

The clients exchange JSON messages over TCP, with client 0 in the middle.

    client i → client 0    hello; then gather, rows (its own), ping, and failed
    client 0 → client i    welcome; then gathered, rows (of all clients), pong, and failed

A message is its length in 4 bytes (big-endian) and JSON. A client that ends, fails or is lost ends all others, because
its share of the load is missing. The kernel detects a lost node (TCP keep-alive), however busy the clients are.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import CLIENT_LOST
from specbench_client.bounded_json import parse_json
from specbench_client.errors import BadInput, ClientError, EngineFailed, NotDurable
from specbench_client.load.shared_state import WorkerColumn, WorkerTable

HELLO_BYTES_MAX = 4096
HELLO_WITHIN_S = 10.0
MESSAGE_BYTES_MAX = 1 << 28
"""Timestamps of a million requests are 32 MB."""
BUFFERED_BYTES_MAX = 1 << 20
"""Rows are not sent to a client that has not read as much; the next ones replace them."""
PINGS = 16
EXCHANGE_INTERVAL_S = 0.02
BEGIN_DELAY_NS = 20_000_000
"""Time from the decision to begin a load to its begin. A worker that is informed later begins late, which is recorded.
"""
BEGIN_DELAY_OF_CLIENTS_NS = 500_000_000
"""The same with several clients, whose main processes are informed first."""
TIME_COLUMNS = (WorkerColumn.STEADY_START_NS, WorkerColumn.IDLE_NS, WorkerColumn.MEASURED_END_NS)
_HEADER = struct.Struct(">I")
_KEEP_ALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}


class ClientLost(ClientError):
    """Another client of the same load ended or cannot be reached."""

    def __init__(self, message: str) -> None:
        super().__init__(message, CLIENT_LOST)


@dataclass(frozen=True)
class ClientClock:
    """The clocks of a client. `monotonic_ns` is that of its workers."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    wall_ns: Callable[[], int] = time.time_ns


@dataclass(frozen=True)
class ClockOffset:
    """What to add to this client's clocks to get those of client 0, and the maximum error of `monotonic_ns`."""

    monotonic_ns: int = 0
    wall_ns: int = 0
    error_ns: int = 0


@dataclass
class ClientLink:
    """The end of one client. `failure` gets the error that ends all clients; nothing else reports it."""

    index: int
    count: int
    clock: ClientClock = field(default_factory=ClientClock)
    on_rows: Callable[[int, dict[str, Any]], None] = lambda client, rows: None  # noqa: ARG005 -- set for each load
    """Called with the sender's number and its rows."""

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[ClientError] = loop.create_future()
        self._all_joined: asyncio.Future[None] = loop.create_future()
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._given: dict[int, dict[int, Any]] = {}
        self._results: dict[int, asyncio.Future[list[Any]]] = {}
        self._pong: asyncio.Future[dict[str, int]] | None = None
        self._gathers = 0
        self._reading: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._ended = False

    # Joining

    async def listen(self, host: str, token: str) -> int:
        """Accept the other clients; return the port. Only client 0 calls this."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = await asyncio.start_server(
            lambda reader, writer: self._accept(reader, writer, token), host, 0, family=family
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def joined(self, within_s: float) -> None:
        """Wait until all clients have joined. Raises ClientLost."""
        try:
            async with asyncio.timeout(within_s):
                await self._all_joined
        except TimeoutError:
            missing = sorted(set(range(1, self.count)) - set(self._writers))
            raise ClientLost(
                f"{_names(missing)} did not join within {within_s:.0f} s: check that all {self.count} pods of the"
                " client's Job run and that they may connect to each other"
            ) from None

    async def connect(self, host: str, port: int, token: str) -> None:
        """Join client 0. Raises OSError, asyncio.IncompleteReadError or ValueError if there is no client 0."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            _keep_alive(writer)
            _write(writer, {"hello": self.index, "token": token})
            async with asyncio.timeout(HELLO_WITHIN_S):
                _require_welcome(await _read(reader, HELLO_BYTES_MAX), self.index)
        except BaseException:
            writer.close()
            raise
        self._writers[0] = writer
        self._start_reading(0, reader)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        try:
            async with asyncio.timeout(HELLO_WITHIN_S):
                hello = await _read(reader, HELLO_BYTES_MAX)
        except (OSError, EOFError, ValueError):
            writer.close()
            return
        client, known = hello.get("hello"), hmac.compare_digest(str(hello.get("token")).encode(), token.encode())
        if not known or not isinstance(client, int) or not 0 < client < self.count or client in self._writers:
            writer.close()
            return
        _keep_alive(writer)
        _write(writer, {"welcome": client})
        self._writers[client] = writer
        self._start_reading(client, reader)
        if len(self._writers) == self.count - 1 and not self._all_joined.done():
            self._all_joined.set_result(None)

    # Messages

    async def gather(self, value: Any, *, to_all: bool = True) -> list[Any]:
        """Wait until every client has called this, and return all values by client. `value` is JSON.

        All clients must gather in the same order. `to_all=False`: only client 0 gets the values, the others get [].
        """
        number, self._gathers = self._gathers, self._gathers + 1
        result: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._results[number] = result
        if self.index:
            self._send(0, {"gather": number, "value": value, "toAll": to_all})
        else:
            self._give(0, number, value, to_all=to_all)
        try:
            return await result
        finally:
            del self._results[number]

    def send_rows(self, rows: dict[str, Any], *, last: bool = False) -> None:
        """Send rows to client 0, or from there to all others. `last`: no others will replace them."""
        data = _encode({"rows": rows})
        for writer in self._writers.values():
            if last or writer.transport.get_write_buffer_size() < BUFFERED_BYTES_MAX:
                writer.write(data)

    async def measure_offset(self) -> ClockOffset:
        """Compare the clocks with those of client 0, by the exchange with the shortest round trip.

        Client 0 read its clock at some moment of the round trip, so the error is at most half of it.
        """
        if not self.index:
            return ClockOffset()
        best, shortest_ns = ClockOffset(), None
        for _ in range(PINGS):
            self._pong = asyncio.get_running_loop().create_future()
            wall_ns, began_ns = self.clock.wall_ns(), self.clock.monotonic_ns()
            self._send(0, {"ping": True})
            pong = await self._pong
            trip_ns = self.clock.monotonic_ns() - began_ns
            if shortest_ns is None or trip_ns < shortest_ns:
                shortest_ns, half_ns = trip_ns, trip_ns // 2
                best = ClockOffset(
                    pong["monotonic"] - began_ns - half_ns, pong["wall"] - wall_ns - half_ns, trip_ns - half_ns
                )
        return best

    # The end

    async def finish(self) -> None:
        """Wait until every client has finished; connections that close afterwards are no failure."""
        self._ended = not self.index  # The others learn from the answer that all have finished.
        await self.gather("finished")

    async def close(self, error: BaseException | None = None) -> None:
        """Close all connections. `error`: why this client ends early, which ends all others with the same error."""
        self._ended = True
        if error is not None and not self.failure.done():
            with suppress(OSError, TimeoutError):
                await self._send_to_all({"failed": _error_fields(error, self.index)})
        if self._server is not None:
            self._server.close()
        for writer in self._writers.values():
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(HELLO_WITHIN_S):
                    await writer.drain()
            writer.close()
        for task in self._reading:
            task.cancel()

    async def _send_to_all(self, message: dict[str, Any], *but: int) -> None:
        for client, writer in self._writers.items():
            if client not in but:
                writer.write(_encode(message))
                async with asyncio.timeout(HELLO_WITHIN_S):
                    await writer.drain()

    def _send(self, client: int, message: dict[str, Any]) -> None:
        _write(self._writers[client], message)

    def _start_reading(self, client: int, reader: asyncio.StreamReader) -> None:
        task = asyncio.create_task(self._read_on(client, reader))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read_on(self, client: int, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                await self._handle(client, await _read(reader, MESSAGE_BYTES_MAX))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other client cannot be understood any more
            closed = isinstance(error, OSError | EOFError)
            why = "its connection was closed" if closed else f"it sent an invalid message: {error!r}"
            what = f"client {client} of {self.count} was lost during the measurement: {why}; see the log of its pod"
            await self._fail(ClientLost(what), client)

    async def _handle(self, client: int, message: dict[str, Any]) -> None:
        match message:
            case {"gather": number, "value": value, "toAll": bool(to_all)} if not self.index:
                self._give(client, int(number), value, to_all=to_all)
            case {"gathered": number, "values": list(values), "last": bool(last)} if self.index:
                self._ended = self._ended or last
                self._results[number].set_result(values)
            case {"rows": dict(rows)}:
                self.on_rows(client, rows)
            case {"ping": True} if not self.index:
                self._send(client, {"pong": {"monotonic": self.clock.monotonic_ns(), "wall": self.clock.wall_ns()}})
            case {"pong": {"monotonic": int(), "wall": int()} as pong} if self._pong is not None:
                self._pong.set_result(pong)
            case {"failed": {"exit": int(code), "reason": str(reason), "message": str(text)}}:
                await self._fail(_error_of(code, reason, text), client)
            case _:
                raise ValueError(f"unknown message {sorted(message)}")

    def _give(self, client: int, number: int, value: Any, *, to_all: bool) -> None:
        given = self._given.setdefault(number, {})
        given[client] = value
        if len(given) < self.count:
            return
        values = [given[number] for number in range(self.count)]
        del self._given[number]
        data = _encode({"gathered": number, "values": values if to_all else [], "last": self._ended})
        for writer in self._writers.values():
            writer.write(data)
        self._results[number].set_result(values)

    async def _fail(self, error: ClientError, source: int) -> None:
        if self._ended or self.failure.done():
            return
        self.failure.set_result(error)
        if not self.index:
            with suppress(OSError, TimeoutError):
                await self._send_to_all({"failed": _error_fields(error, source)}, source)


def _require_welcome(answer: dict[str, Any], index: int) -> None:
    if answer != {"welcome": index}:
        raise ValueError("it is not client 0 of this run")


def _names(clients: Iterable[int]) -> str:
    numbers = [str(client) for client in clients]
    return f"client{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"


_ERRORS: dict[int, type[ClientError]] = {kind.exit: kind for kind in (BadInput, EngineFailed, NotDurable)}


def _error_fields(error: BaseException, client: int) -> dict[str, Any]:
    if isinstance(error, ClientError):
        return {"exit": int(error.exit), "reason": str(error.reason), "message": str(error)}
    what = "was stopped" if isinstance(error, asyncio.CancelledError) else f"failed: {type(error).__name__}: {error}"
    return {"exit": int(Exit.BUG), "reason": "", "message": f"client {client} {what}"}


def _error_of(code: int, reason: str, message: str) -> ClientError:
    """Return the error of another client; all clients end with the same exit code and reason, except after a bug."""
    kind = _ERRORS.get(code)
    return ClientLost(message) if kind is None else kind(message, reason)


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _encode(message: dict[str, Any]) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(data)) + data


def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(_encode(message))


async def _read(reader: asyncio.StreamReader, most: int) -> dict[str, Any]:
    (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if size > most:
        raise ValueError(f"a message of {size} bytes")
    message = parse_json(await reader.readexactly(size))
    if not isinstance(message, dict):
        raise ValueError("not an object")  # noqa: TRY004 -- an invalid message like the others
    return message


@dataclass
class LoadClients:
    """This client and the others. Without a `link` it is the only one."""

    index: int = 0
    count: int = 1
    link: ClientLink | None = None
    count_done: Callable[[], list[int]] = list
    """Returns what this client has done so far, for `others_done` of client 0."""
    offset: ClockOffset = field(default_factory=ClockOffset)
    _done: dict[int, list[int]] = field(default_factory=dict)

    def own_workers(self, workers: int) -> range:
        """Return the numbers of this client's workers, of a load with this many."""
        return range(self.index, workers, self.count)

    def active(self, workers: int) -> int:
        """Return the number of clients that have a worker, of a load with this many."""
        return min(self.count, workers)

    @property
    def others_done(self) -> list[int]:
        """At client 0: the sums of the other clients' `count_done`; empty before the first."""
        return [sum(counts) for counts in zip(*self._done.values(), strict=True)]

    async def gather(self, value: Any, *, to_all: bool = True) -> list[Any]:
        """See `ClientLink.gather`."""
        return [value] if self.link is None else await self.link.gather(value, to_all=to_all)

    async def align_clocks(self) -> None:
        """Measure the offset of this client's clocks."""
        if self.link is not None:
            self.offset = await self.link.measure_offset()

    async def offset_over_point(self) -> ClockOffset:
        """Measure the offset once more, and return it as used since then, with the error that its change implies."""
        if self.link is None:
            return self.offset
        now = await self.link.measure_offset()
        changed_ns = abs(now.monotonic_ns - self.offset.monotonic_ns)
        return replace(self.offset, error_ns=max(now.error_ns, self.offset.error_ns) + changed_ns)

    def to_common(self, own_ns: int) -> int:
        """Convert a time of this client's monotonic clock to client 0's, the common clock."""
        return own_ns + self.offset.monotonic_ns

    def to_own(self, common_ns: int) -> int:
        """Convert a time of the common clock to this client's monotonic clock."""
        return common_ns - self.offset.monotonic_ns

    async def agree(self, own_ns: int) -> int:
        """Return client 0's `own_ns` on this client's monotonic clock."""
        common_ns: int = (await self.gather(self.to_common(own_ns)))[0]
        return self.to_own(common_ns)

    async def begin_ns(self, clock: Callable[[], int]) -> int:
        """Return when a load begins: a moment after all clients have prepared it."""
        if self.link is None:
            return clock() + BEGIN_DELAY_NS
        await self.gather("ready")
        return await self.agree(clock() + BEGIN_DELAY_OF_CLIENTS_NS)

    def receive_rows(self, worker_table: WorkerTable) -> None:
        """Write the other clients' rows to this table from now on."""
        self._done.clear()
        if self.link is not None:
            self.link.on_rows = lambda client, rows: self._receive(worker_table, client, rows)

    @asynccontextmanager
    async def exchanging(self, worker_table: WorkerTable) -> AsyncIterator[None]:
        """Exchange rows in the block, and wait at its end until every client has the final rows of all."""
        if self.link is None:
            yield
            return
        sending = asyncio.create_task(self._send_on(self.link, worker_table))
        try:
            yield
        finally:
            sending.cancel()
        for step in ("ended", "known"):  # First client 0 gets the final rows of all, then the others get them.
            self.link.send_rows(self._rows(worker_table), last=True)
            await self.gather(step)

    async def _send_on(self, link: ClientLink, worker_table: WorkerTable) -> None:
        sent: dict[str, Any] = {}
        while True:
            await asyncio.sleep(EXCHANGE_INTERVAL_S)
            rows = self._rows(worker_table)
            if rows != sent:
                link.send_rows(rows)
                sent = rows

    def _rows(self, worker_table: WorkerTable) -> dict[str, Any]:
        """Return this client's rows, at client 0 those of all clients, with times of the common clock."""
        numbers = self.own_workers(worker_table.workers) if self.index else range(worker_table.workers)
        rows = [[number, *self._values(worker_table, number)] for number in numbers]
        return {"workers": rows, "done": self.count_done()}

    def _values(self, worker_table: WorkerTable, worker: int) -> Iterator[int]:
        for column in WorkerColumn:
            value = worker_table.get(worker, column)
            yield self.to_common(value) if column in TIME_COLUMNS and value else value

    def _receive(self, worker_table: WorkerTable, client: int, rows: dict[str, Any]) -> None:
        own = self.own_workers(worker_table.workers)
        for worker, *values in rows["workers"]:
            if worker not in own and 0 <= worker < worker_table.workers:
                for column, value in zip(WorkerColumn, values, strict=True):
                    is_time = column in TIME_COLUMNS and value
                    worker_table.put(worker, column, self.to_own(value) if is_time else value)
        self._done[client] = rows["done"]
