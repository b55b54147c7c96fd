"""What a cell's answer needs does not grow with the length of answers, and by few bytes with their number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.estimates.rows import rows_laid_down
from specbench_client.analysis.lossless.judge import losslessness
from specbench_client.analysis.statistics import draws
from specbench_client.analysis.summary.cell import Measured, judge
from specbench_client.metrics import blocks, prompts
from specbench_client.metrics.divergence import divergence
from specbench_client.metrics.frame import TIMES, tidy
from specbench_client.store.shelf import DiskShelf
from specbench_testing.records import World

FEW, MANY = 5_000, 30_000
"""Requests of one arm."""
PART = 1_000
WORLD = World(prompts=40, concurrency=(3,), repeats=1)
LISTS = ["tokens_of_chunks", "gathered", "accepted_of_steps", "walk"]
LISTS_BYTES = 200
"""What stands for a row's lists; it was 700 while each was an object."""
READ_BYTES = 16
"""What a further record may leave behind once it is laid down: where its block's columns lie."""
RECORD_BYTES = 64
"""What a further record may add at any time; it was 520 while rows were held."""


@cache
def part_of(point: str) -> pd.DataFrame:
    """The steady records of the point."""
    frame = WORLD.records(next(each for each in WORLD.plan.points if each.hash == point))
    return frame[(frame["phase"] == "steady").to_numpy(bool)].reset_index(drop=True)


def records_of(point: str, count: int) -> Iterator[pd.DataFrame]:
    """So many of one point: the same ones over and over, each time later and as a pass of their own."""
    part = part_of(point)
    longest_ns = int(part["last_token_ns"].max())
    laps = [
        part.assign(
            conversation_id=part["prompt_id"] + f"#{lap}",
            **{name: part[name] + lap * longest_ns for name in TIMES},
        )
        for lap in range(PART // len(part))
    ]
    together = pd.concat(laps, ignore_index=True)
    for begun in range(0, count, len(together)):
        later = {name: together[name] + begun * longest_ns for name in TIMES}
        yield together.assign(conversation_id=together["conversation_id"] + f"-{begun}", **later)


def measured(arm: str, count: int) -> Measured:
    """One arm, laid on disk."""
    (workload,), (level,) = WORLD.plan.workloads, WORLD.plan.load.levels
    points = tuple(WORLD.honest(point) for point in WORLD.plan.points if point.arm == arm)
    records = {point.hash: records_of(point.hash, count // len(points)) for point in points}
    laid = rows_laid_down(WORLD.plan, points, records, DiskShelf())
    return Measured(WORLD.plan, WORLD.plan.arm(arm), workload, level, laid, points)


def compared(mine: Measured, base: Measured) -> None:
    """All that is done with two arms."""
    diverged = divergence(mine.rows, base.rows)
    judge(base, None)
    judge(mine, base, diverged)
    losslessness(diverged, mine.rows, base.rows, {}, mine.workload.sampling)


def peak(work: Callable[[], object]) -> int:
    """Bytes at most."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, buckets and pieces as small beside these few rows as they are beside a million."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 2_000)
    monkeypatch.setattr(prompts, "BUCKET_ROWS", 4_000)
    monkeypatch.setattr(draws, "PIECE_VALUES", 20_000)


@pytest.mark.process
def test_what_stands_for_lists_is_short_and_counts_are_half_as_long_as_times() -> None:
    laid = tidy([part_of(WORLD.plan.points[1].hash)], "h")
    assert laid[LISTS].memory_usage(deep=True).sum() / len(laid) < LISTS_BYTES
    assert laid.dtypes[["tokens", "steps", "last_token_ns"]].tolist() == [np.float32, np.float32, np.float64]


@pytest.mark.process
@pytest.mark.usefixtures("small")
def test_a_further_record_adds_few_bytes_to_all_that_is_done_with_two_arms() -> None:
    peaks = []
    for count in (FEW, MANY):
        mine, base = (measured(arm, count) for arm in ("ngram", "none"))
        assert len(mine.rows) > 0.8 * count
        peaks.append((peak(partial(compared, mine, base)), len(mine.rows) + len(base.rows)))
    (few, fewer), (many, more) = peaks
    assert (many - few) / (more - fewer) < RECORD_BYTES, f"{(many - few) / (more - fewer):.1f} bytes a record"


@pytest.mark.process
@pytest.mark.usefixtures("small")
def test_reading_records_holds_a_block_of_them_and_no_more() -> None:
    few, many = (peak(partial(measured, "ngram", count)) for count in (FEW, MANY))
    assert (many - few) / (MANY - FEW) < READ_BYTES, f"{(many - few) / (MANY - FEW):.1f} bytes a record"
