"""What the client saw of itself, and what was in flight."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.summary import SelfWatch
from specbench_client.load.flight import Flight
from specbench_client.load.watch import INTERVAL_S, SelfWatcher, percentile

SECOND = 1_000_000_000


def flown(*changes: tuple[int, int], concurrency: int = 2, dry: int | None = None, ended: int = 10) -> Flight:
    """A flight from second 0; each change is (second, +1 or -1)."""
    flight = Flight(concurrency, 0)
    for second, change in changes:
        if dry is not None and second >= dry:
            flight.ran_dry(dry * SECOND)
        if change > 0:
            flight.opened(second * SECOND)
        else:
            flight.closed(second * SECOND, in_ramp=False)
    flight.ended(ended * SECOND)
    return flight


def test_mean_in_flight_is_taken_over_the_steady_state_alone() -> None:
    flight = flown((0, 1), (2, 1), (4, -1), (5, 1), (8, -1), (10, -1), dry=8)
    assert flight.mean_in_flight == (2 * 2 + 1 * 1 + 2 * 3) / 6
    assert flight.steady_share == 0.6
    assert flight.duration_s == 10


def test_without_a_dry_stream_the_steady_state_lasts_to_the_end() -> None:
    assert flown((0, 1), (0, 1), (5, -1)).mean_in_flight == 1.5


def test_a_concurrency_that_was_never_reached_has_no_mean() -> None:
    flight = flown((0, 1), (5, -1))
    assert (flight.mean_in_flight, flight.steady_share) == (None, 0)


def test_a_flight_that_lasts_has_no_figures_yet() -> None:
    flight = Flight(1, 0)
    flight.opened(1)
    assert (flight.mean_in_flight, flight.steady_share, flight.duration_s) == (None, None, None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=12), st.integers(1, 4))
def test_mean_in_flight_is_never_more_than_what_was_open(spans: list[tuple[int, int]], concurrency: int) -> None:
    changes = sorted(chain.from_iterable([(start, 1), (start + length, -1)] for start, length in spans))
    mean = flown(*changes, concurrency=concurrency, ended=20).mean_in_flight
    assert mean is None or 0 <= mean <= len(spans)


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
        now_ns += int(seconds * 1e9) + next(lateness_ms) * 1_000_000
        await asyncio.sleep(0)

    async with SelfWatcher(clock=lambda: now_ns, cpu_s=lambda: now_ns / 4e9, sleep=sleep) as watcher:
        await enough.wait()
    flight = flown((0, 1), (0, 1), (5, -1))
    assert watcher.report(flight) == SelfWatch(
        loop_lag_p99_ms=7.0, cpu_share=0.25, reached_concurrency=1.5, steady_share=1.0, duration_s=10.0
    )
    assert now_ns == 50 * int(INTERVAL_S * 1e9) + (7 + 47) * 1_000_000


async def test_the_watch_ends_with_its_block_and_lets_errors_through() -> None:
    with pytest.raises(ZeroDivisionError):
        async with SelfWatcher():
            raise ZeroDivisionError
    assert len(asyncio.all_tasks()) == 1
