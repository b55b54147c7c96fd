"""The connections among clients, over 127.0.0.1 in one process, and the rules by which they divide a load."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.plan.expansion import expand
from specbench_client.documents.manifest import StoredFile
from specbench_client.drive.load_planning import ArrivalPlan, LoadPlanner
from specbench_client.errors import BadInput, ClientError, EngineFailed, NotDurable
from specbench_client.load.client_link import ClientClock, ClientLink, ClientLost, ClockOffset, LoadClients
from specbench_client.load.client_monitor import (
    ClientResult,
    RecordTally,
    WarmupResult,
    WorkerDone,
    clock_error_ms,
    clock_skew_ms,
    combined_warm_up,
)
from specbench_client.load.load_shares import (
    ClosedLoopShare,
    OpenLoopShare,
    WorkerLoad,
    closed_loop_load,
    open_loop_load,
)
from specbench_client.load.phases import LoadTimestamps, closed_loop_bounds
from specbench_client.load.shared_state import WorkerColumn
from specbench_testing.load_loops import shared
from specbench_testing.resources import run_of

HOST, TOKEN = "127.0.0.1", "secret"
WITHIN_S = 60.0


@asynccontextmanager
async def linked(*shifts_ns: int) -> AsyncIterator[list[ClientLink]]:
    """Connected clients; the clocks of each are ahead by its shift."""
    links = [
        ClientLink(client, len(shifts_ns), ClientClock(shifted(time.monotonic_ns, by), shifted(time.time_ns, by)))
        for client, by in enumerate(shifts_ns)
    ]
    try:
        port = await links[0].listen(HOST, TOKEN)
        for link in links[1:]:
            await link.connect(HOST, port, TOKEN)
        await links[0].joined(WITHIN_S)
        yield links
    finally:
        for link in links:
            await link.close()


def shifted(clock: Callable[[], int], by: int) -> Callable[[], int]:
    return lambda: clock() + by


async def failure_of(link: ClientLink) -> ClientError:
    async with asyncio.timeout(WITHIN_S):
        return await link.failure


async def test_all_clients_get_the_values_of_all_in_their_order() -> None:
    async with linked(0, 0, 0) as links:
        for turn in range(3):
            results = await asyncio.gather(*(link.gather([link.index, turn]) for link in reversed(links)))
            assert results == [[[client, turn] for client in range(3)]] * 3
        only_first = await asyncio.gather(*(link.gather(link.index, to_all=False) for link in links))
        assert only_first == [[0, 1, 2], [], []]


async def test_offset_of_a_clock_is_right_within_its_error() -> None:
    shift_ns = 2_000_000_000
    async with linked(0, shift_ns) as (_, link):
        offset = await link.measure_offset()
    assert abs(offset.monotonic_ns + shift_ns) <= offset.error_ns
    assert offset.error_ns < shift_ns


@pytest.mark.parametrize(("client", "token"), [(1, "other"), (0, TOKEN), (2, TOKEN)])
async def test_strangers_and_unknown_clients_are_refused(client: int, token: str) -> None:
    first = ClientLink(0, 2)
    stranger = ClientLink(client, 2)
    try:
        port = await first.listen(HOST, TOKEN)
        with pytest.raises((OSError, EOFError, ValueError)):
            await stranger.connect(HOST, port, token)
        with pytest.raises(ClientLost, match="client 1 did not join"):
            await first.joined(0)
    finally:
        await first.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\x0f\xa0" + b"[" * 4000, b"\0\0\0\x02[]"],
    ids=["nothing", "http", "huge", "deep", "no-object"],
)
async def test_bytes_of_a_stranger_end_its_connection_only(sent: bytes) -> None:
    async with linked(0, 0) as links:
        assert links[0]._server is not None
        reader, writer = await asyncio.open_connection(*links[0]._server.sockets[0].getsockname()[:2])
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(WITHIN_S):
            assert await reader.read() == b""
        writer.close()
        assert await asyncio.gather(*(link.gather(link.index) for link in links)) == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BadInput("no prompts"), "BadInput"),
        (EngineFailed("gone", "EngineLost"), "EngineLost"),
        (NotDurable("full", "DiskFull"), "DiskFull"),
    ],
)
async def test_error_of_one_client_ends_the_others_with_the_same_error(error: ClientError, reason: str) -> None:
    async with linked(0, 0, 0) as links:
        await links[1].close(error)
        for link in (links[0], links[2]):
            failure = await failure_of(link)
            assert (type(failure), failure.reason, str(failure)) == (type(error), reason, str(error))


async def test_client_that_is_gone_ends_the_others() -> None:
    async with linked(0, 0, 0) as links:
        links[2]._writers[0].transport.abort()  # as a killed process would
        for link in links[:2]:
            failure = await failure_of(link)
            assert failure.reason == "ClientLost"
            assert "client 2 of 3 was lost" in str(failure)


async def test_connections_that_close_after_the_end_are_no_failure() -> None:
    async with linked(0, 0) as links:
        await asyncio.gather(*(link.finish() for link in links))
        await links[1].close()
        await links[0].close()
        assert not any(link.failure.done() for link in links)


async def test_every_client_knows_the_final_rows_of_all_on_its_own_clock() -> None:
    shifts = (0, 5_000_000_000, -3_000_000_000)
    async with linked(*shifts) as links:
        clients = [LoadClients(link.index, 3, link) for link in links]
        await asyncio.gather(*(each.align_clocks() for each in clients))
        tables = [shared(3).worker_table(3) for _ in clients]
        now_ns = time.monotonic_ns()

        async def run(each: LoadClients) -> None:
            table = tables[each.index]
            each.receive_rows(table)
            await each.begin_ns(time.monotonic_ns)
            async with each.exchanging(table):
                table.put(each.index, WorkerColumn.MEASURED, 10 + each.index)
                table.put(each.index, WorkerColumn.STEADY_START_NS, now_ns + shifts[each.index] + each.index)

        await asyncio.gather(*map(run, clients))
    for each, table, shift in zip(clients, tables, shifts, strict=True):
        assert table.column(WorkerColumn.MEASURED) == [10, 11, 12]
        start_ns = closed_loop_bounds(table).steady_start_ns
        assert start_ns is not None, "the steady state begins when the streams of all clients have begun"
        error_ns = sum(one.offset.error_ns for one in clients)
        assert abs(start_ns - (now_ns + 2 + shift)) <= error_ns, each.index


@given(st.integers(1, 64), st.integers(1, 300), st.integers(1, 130), st.integers(0, 500))
def test_clients_divide_a_closed_loop_without_rest(
    clients: int, streams: int, workers: int, conversations: int
) -> None:
    load = closed_loop_load(streams, max(workers, clients), conversations)
    counter, sent, used = shared().conversation_counter, list[int](), list[int]()
    for client in (LoadClients(index, clients) for index in range(clients)):
        own = [load.shares[worker] for worker in client.own_workers(load.workers)]
        used += [stream for share in own if isinstance(share, ClosedLoopShare) for stream in share.streams]
        if own:
            counter.open(conversations, client.index, client.active(load.workers), load.streams)
            sent += counter
    assert sorted(used) == list(range(streams))
    assert sorted(sent) == list(range(conversations))


def planned_load(cores: int, **load: Any) -> WorkerLoad:
    plan = expand(run_of({"spec.load": {"repeats": 1, **load}}))
    return LoadPlanner(plan, ArrivalPlan(plan.load, None), cores).of(plan.points[0], 1)


@given(st.integers(1, 64), st.integers(1, 300), st.integers(1, 8), st.integers(1, 500))
def test_a_client_gets_the_conversations_of_its_streams(
    clients: int, streams: int, cores: int, conversations: int
) -> None:
    """Otherwise one client would run dry long before the others, and its streams would only send fillers."""
    clients = min(clients, streams)
    load = planned_load(cores, concurrency=[streams], clients=clients, requests=conversations)
    counter = shared().conversation_counter
    for client in (LoadClients(index, clients) for index in range(clients)):
        shares = [load.shares[worker] for worker in client.own_workers(load.workers)]
        own = {stream for share in shares if isinstance(share, ClosedLoopShare) for stream in share.streams}
        if own:
            counter.open(conversations, client.index, client.active(load.workers), load.streams)
            assert list(counter) == [number for number in range(conversations) if number % streams in own]


@given(st.integers(1, 64), st.floats(0.1, 20_000), st.integers(1, 8))
def test_clients_have_the_same_number_of_workers(clients: int, rate: float, cores: int) -> None:
    load = planned_load(cores, rate=[rate], slots=1, clients=clients, requests=1_000, arrival={"process": "Constant"})
    assert load.workers % clients == 0


@given(st.integers(1, 64), st.integers(1, 130), st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_clients_send_exactly_the_schedule_of_one_client(clients: int, workers: int, gaps: list[int]) -> None:
    times = np.cumsum(np.array(gaps, np.int64))
    load = open_loop_load(times, max(workers, clients))
    sent = [
        arrival
        for client in (LoadClients(index, clients) for index in range(clients))
        for share in (load.shares[worker] for worker in client.own_workers(load.workers))
        if isinstance(share, OpenLoopShare)
        for arrival in zip(share.conversations, share.offsets_ns, strict=True)
    ]
    assert sorted(sent) == list(enumerate(times.tolist()))


def result_of(
    client: int, *, late: float, error_ms: float, begins_ns: int, warm_up: WarmupResult | None
) -> ClientResult:
    log = LoadTimestamps(array("q", [10, 20]), array("q", [30]), array("q"))
    tally = RecordTally(array("d", [late]), 1, 2, 3, 4, 5, 6, 7)
    offset = ClockOffset(1000 * client, 2_000_000 * client, int(error_ms * 1e6))
    file = StoredFile(key=f"points/a/records/{client}-1.parquet", size=1, sha256="", rows=1)
    return ClientResult([WorkerDone(log, late, 2 * late, 0.5)], tally, warm_up, begins_ns, offset, file)


def test_results_of_clients_are_combined_on_one_clock() -> None:
    own = [
        result_of(0, late=1.0, error_ms=0.0, begins_ns=1000, warm_up=WarmupResult(4, steady=True)),
        result_of(1, late=3.0, error_ms=0.5, begins_ns=500, warm_up=WarmupResult(0, steady=False)),
    ]
    results = [ClientResult.from_message(each.to_message()) for each in own]

    assert [list(each.ended[0].log.opened) for each in results] == [[10, 20], [1010, 1020]]
    assert [each.begins_ns for each in results] == [1000, 1500]
    assert results[1].ended[0].log.began == array("q")
    assert [(each.ended[0].lag_p99_ms, each.ended[0].lag_max_ms) for each in results] == [(1.0, 2.0), (3.0, 6.0)]
    tally = RecordTally.sum_of([each.tally for each in results])
    assert (tally.lateness_p99_ms, tally.counts) == (3.0, [2, 4, 6, 8, 10, 12, 14])
    assert combined_warm_up(results) == WarmupResult(4, steady=True), "a client without a stream has no say"
    assert clock_error_ms(results) == pytest.approx(0.5 + 0.0005)
    assert clock_skew_ms(results) == 2.0
