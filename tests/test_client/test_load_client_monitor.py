"""Client health: lateness, event loop lag, coalesced reads and CPU share."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace
from functools import partial

import pytest

from specbench_client.documents.record import Record
from specbench_client.documents.summary import ClientHealth
from specbench_client.load.client_monitor import (
    SAMPLE_INTERVAL_S,
    EventLoopMonitor,
    RecordTally,
    WarmupResult,
    WorkerDone,
    percentile,
    summarize_client_health,
)
from specbench_client.load.steady_state import LoadTimeline, LoadTimestamps, SteadyBounds
from specbench_testing.conversation_turns import blank_record

SECOND = 1_000_000_000
MS = 1_000_000


def record(**known: object) -> Record:
    return replace(blank_record(), **{"phase": "steady", "turn": 0, **known})  # type: ignore[arg-type]


def tally(*records: Record) -> RecordTally:
    counted = RecordTally()
    for one in records:
        counted.add(one)
    return counted


@pytest.mark.parametrize(
    ("values", "share", "expected"), [([], 0.99, None), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0)]
)
def test_percentile_is_one_of_the_values(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


async def watched(lags_ms: list[int]) -> EventLoopMonitor:
    """Return the monitor of an event loop that was late by these times, one sample after the other."""
    now_ns = 0
    left, enough = iter(lags_ms), asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal now_ns
        if (lag_ms := next(left, None)) is None:
            enough.set()
            await asyncio.Future()
        else:
            now_ns += int(seconds * 1e9) + lag_ms * MS
            await asyncio.sleep(0)

    async with EventLoopMonitor(clock=lambda: now_ns, cpu_s=lambda: now_ns / 4e9, sleep=sleep) as watcher:
        await enough.wait()
    assert now_ns == len(lags_ms) * int(SAMPLE_INTERVAL_S * 1e9) + sum(lags_ms) * MS
    return watcher


@pytest.mark.parametrize(
    ("lags_ms", "p99_ms", "max_ms"),
    [
        ([], None, None),
        ([0, 0, 7, *[1] * 47], 7.0, 7.0),
        ([*[1] * 999, 19], 1.0, 19.0),
        ([*[1] * 899, 2000, 1], 1800.0, 2000.0),
        ([*[1] * 19_900, 2000], 1.0, 2000.0),
        ([*[10, 1] * 20, *[1] * 960], 10.0, 10.0),
    ],
    ids=["none", "few", "one late", "one pause of a tenth", "the same in a long load", "many small"],
)
async def test_lag_is_a_percentile_over_time_so_that_one_pause_counts_by_its_length(
    lags_ms: list[int], p99_ms: float | None, max_ms: float | None
) -> None:
    watcher = await watched(lags_ms)
    assert (watcher.lag_p99_ms, watcher.lag_max_ms) == (p99_ms, max_ms)


async def test_monitor_measures_cpu_share() -> None:
    assert (await watched([1, 2])).cpu_share == 0.25


async def test_monitor_stops_with_its_block_and_propagates_errors() -> None:
    with pytest.raises(ZeroDivisionError):
        async with EventLoopMonitor():
            raise ZeroDivisionError
    assert len(asyncio.all_tasks()) == 1


def test_lateness_counts_first_turns_of_the_steady_state_only() -> None:
    on_time = record(intended_ns=10, connect_ns=10 + 2 * MS)
    later_turn = record(intended_ns=10, connect_ns=10 + 90 * MS, turn=1)
    ramp = record(intended_ns=10, connect_ns=10 + 90 * MS, phase="ramp")
    assert tally(on_time, later_turn, ramp, record(connect_ns=None)).lateness_p99_ms == 2
    assert tally(ramp).lateness_p99_ms is None


def test_slow_accept_by_the_server_does_not_count_as_client_lateness() -> None:
    assert tally(record(intended_ns=10, connect_ns=10 + MS, sent_ns=10 + 3_000 * MS)).lateness_p99_ms == 1


def streamed(chunk_ns: list[int] | None, *coalesced: int, tokens: int = 5) -> Record:
    """Return an answer; `coalesced` lists the chunks whose read contained further data."""
    flags = None if chunk_ns is None else [number in coalesced for number in range(len(chunk_ns))]
    last_ns = chunk_ns[-1] if chunk_ns else None
    return record(chunk_ns=chunk_ns, chunk_coalesced=flags, output_tokens=tokens, last_token_ns=last_ns)


def test_coalesced_share_counts_chunks_whose_read_contained_more() -> None:
    counted = tally(streamed([1, 1, 1, 2, 3], 0, 1), streamed([4, 5, 5], 1, 2), streamed(None))
    assert counted.coalesced_share == 4 / 8
    assert counted.coalesced_end_share == 1 / 2, "the second answer's last chunk was read together with its end"
    nothing = tally(streamed([]), streamed(None))
    assert (nothing.coalesced_share, nothing.coalesced_end_share, nothing.answers_in_one_read) == (None, None, None)


def test_answers_of_several_tokens_in_one_read_are_counted() -> None:
    at_once = [streamed([3, 3], 0, 1), streamed([3], 0)]
    others = [streamed([3], 0, tokens=1), streamed([3, 4])]
    assert tally(*at_once, *others).answers_in_one_read == 2
    assert tally(*others).answers_in_one_read == 0


def test_kernel_share_is_counted_over_answers() -> None:
    kernel, user = record(first_byte_ns=1, timestamp_source="kernel"), record(first_byte_ns=1, timestamp_source="user")
    assert tally(kernel, kernel, user, record(first_byte_ns=None)).kernel_share == 2 / 3
    assert tally().kernel_share is None


def test_worst_workers_lag_and_cpu_share_are_reported() -> None:
    logs = [
        LoadTimestamps(array("q", [0, 0]), array("q", [5 * SECOND, 10 * SECOND]), array("q", [0, 0])),
        LoadTimestamps(),
    ]
    ended = [WorkerDone(logs[0], 3.0, 40.0, 0.25), WorkerDone(logs[1], 2.0, 900.0, 0.5)]
    timeline = LoadTimeline(logs, 0, SteadyBounds(0, 10 * SECOND))
    summarize = partial(
        summarize_client_health, has_slots=False, warm_up=None, load_per_core=None, interrupted_before=False
    )
    closed = summarize(ended, timeline, RecordTally(), is_open=False)
    assert closed == ClientHealth(
        workers=2, loop_lag_p99_ms=3.0, loop_lag_max_ms=900.0, cpu_share=0.5, reached_concurrency=1.5, steady_share=1.0,
        duration_s=10.0,
    )  # fmt: skip
    idle = [WorkerDone(log, None, None, None) for log in logs]
    unknown = summarize(idle, timeline, RecordTally(), is_open=False)
    assert (unknown.loop_lag_p99_ms, unknown.loop_lag_max_ms) == (None, None)
    late = tally(record(connect_ns=5_000_000, intended_ns=0))
    watched = summarize(ended, timeline, late, is_open=True, warm_up=WarmupResult(12, steady=True), load_per_core=2.5)
    assert (watched.warmup_requests, watched.warmup_steady) == (12, True)
    assert (watched.reached_rate, watched.in_flight_growth) == (0, 0.5)
    assert (watched.load_per_core, watched.send_lateness_p99_ms) == (2.5, 5.0)
    waited = summarize(ended, timeline, late, is_open=True, has_slots=True)
    assert waited.send_lateness_p99_ms is None, "a request that waits for a slot is not late"
