"""What the client saw of itself."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import replace
from itertools import chain, repeat

import pytest

from specbench_api.outcome.record import Record
from specbench_api.outcome.summary import ClientHealth
from specbench_client.load.client_monitor import (
    SAMPLE_INTERVAL_S,
    EventLoopMonitor,
    RecordTally,
    WarmupResult,
    percentile,
    summarize_client_health,
)
from specbench_client.load.in_flight import LoadTimeline, LoadTimestamps
from specbench_client.load.phases import SteadyBounds
from specbench_client.load.worker_messages import WorkerDone
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
    ("values", "share", "wanted"), [([], 0.99, None), ([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0)]
)
def test_a_percentile_is_one_of_the_values(values: list[float], share: float, wanted: float | None) -> None:
    assert percentile(values, share) == wanted


async def test_the_watch_tells_how_late_a_sleeper_was_woken_and_how_busy_the_process_was() -> None:
    now_ns = 0
    lateness_ms = chain([0, 0, 7], repeat(1))
    slept, enough = 0, asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal now_ns, slept
        if slept == 50:
            enough.set()
            await asyncio.Future()
        slept += 1
        now_ns += int(seconds * 1e9) + next(lateness_ms) * MS
        await asyncio.sleep(0)

    async with EventLoopMonitor(clock=lambda: now_ns, cpu_s=lambda: now_ns / 4e9, sleep=sleep) as watcher:
        await enough.wait()
    assert (watcher.lag_p99_ms, watcher.cpu_share) == (7.0, 0.25)
    assert now_ns == 50 * int(SAMPLE_INTERVAL_S * 1e9) + (7 + 47) * MS


async def test_the_watch_ends_with_its_block_and_lets_errors_through() -> None:
    with pytest.raises(ZeroDivisionError):
        async with EventLoopMonitor():
            raise ZeroDivisionError
    assert len(asyncio.all_tasks()) == 1


def test_late_is_what_was_begun_after_it_was_meant_to_be_in_first_turns_of_the_steady_state() -> None:
    on_time = record(intended_ns=10, connect_ns=10 + 2 * MS)
    later_turn = record(intended_ns=10, connect_ns=10 + 90 * MS, turn=1)
    ramp = record(intended_ns=10, connect_ns=10 + 90 * MS, phase="ramp")
    assert tally(on_time, later_turn, ramp, record(connect_ns=None)).lateness_p99_ms == 2
    assert tally(ramp).lateness_p99_ms is None


def test_a_server_that_accepts_late_does_not_make_the_client_late() -> None:
    assert tally(record(intended_ns=10, connect_ns=10 + MS, sent_ns=10 + 3_000 * MS)).lateness_p99_ms == 1


def streamed(chunk_ns: list[int] | None, *gathered: int, tokens: int = 5) -> Record:
    """An answer; `gathered`: the numbers of the chunks whose read brought more."""
    flags = None if chunk_ns is None else [number in gathered for number in range(len(chunk_ns))]
    return record(chunk_ns=chunk_ns, chunk_coalesced=flags, output_tokens=tokens)


def test_gathered_are_the_chunks_whose_read_brought_more_after_them() -> None:
    counted = tally(streamed([1, 1, 1, 2, 3], 0, 1), streamed([4, 5, 5], 1, 2), streamed(None))
    assert counted.coalesced_share == 4 / 8
    assert counted.coalesced_end_share == 1 / 2, "the last chunk of the second came with what ended it"
    nothing = tally(streamed([]), streamed(None))
    assert (nothing.coalesced_share, nothing.coalesced_end_share, nothing.answers_in_one_read) == (None, None, None)


def test_answers_of_several_tokens_that_came_at_one_time_are_counted() -> None:
    at_once = [streamed([3, 3], 0, 1), streamed([3], 0)]
    others = [streamed([3], 0, tokens=1), streamed([3, 4])]
    assert tally(*at_once, *others).answers_in_one_read == 2
    assert tally(*others).answers_in_one_read == 0


def test_whose_clock_it_was_is_counted_over_answers() -> None:
    kernel, user = record(first_byte_ns=1, timestamp_source="kernel"), record(first_byte_ns=1, timestamp_source="user")
    assert tally(kernel, kernel, user, record(first_byte_ns=None)).kernel_share == 2 / 3
    assert tally().kernel_share is None


def test_over_all_workers_the_worst_ones_lag_and_cpu_are_told() -> None:
    logs = [
        LoadTimestamps(array("q", [0, 0]), array("q", [5 * SECOND, 10 * SECOND]), array("q", [0, 0])),
        LoadTimestamps(),
    ]
    ended = [WorkerDone(logs[0], 3.0, 0.25), WorkerDone(logs[1], None, 0.5)]
    timeline = LoadTimeline(logs, 0, SteadyBounds(0, 10 * SECOND))
    closed = summarize_client_health(ended, timeline, RecordTally(), is_open=False, warm_up=None)
    assert closed == ClientHealth(
        workers=2, loop_lag_p99_ms=3.0, cpu_share=0.5, reached_concurrency=1.5, steady_share=1.0, duration_s=10.0
    )
    watched = summarize_client_health(
        ended, timeline, RecordTally(), is_open=True, warm_up=WarmupResult(12, steady=True)
    )
    assert (watched.warmup_requests, watched.warmup_steady) == (12, True)
    assert (watched.reached_rate, watched.in_flight_growth) == (0, 0.5)
