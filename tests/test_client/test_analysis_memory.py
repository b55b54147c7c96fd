"""Memory of an analysis does not grow with the length of answers, and only by a few bytes per record."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.estimates.point_rows import load_stored_rows
from specbench_client.analysis.lossless.losslessness import losslessness
from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.summary.cells import MeasuredCell, evaluate_cell
from specbench_client.metrics import pairing, rows
from specbench_client.metrics.divergence import divergence
from specbench_client.metrics.tidy_frame import TIMES, tidy
from specbench_client.store.scratch import DiskColumnStore
from specbench_testing.synthetic_records import SyntheticRun

FEW, MANY = 5_000, 30_000
"""Requests of one arm."""
PART = 1_000
WORLD = SyntheticRun(prompts=40, concurrency=(3,), repeats=1)
LISTS = ["tokens_of_chunks", "coalesced", "accepted_of_steps", "walk"]
LISTS_BYTES = 200
"""Memory for a row's lists; it was 700 when each list was an object."""
READ_BYTES = 16
"""Memory that a further record may keep after it is written: the location of its block's columns."""
RECORD_BYTES = 64
"""Memory that a further record may add at any time; it was 520 when rows were kept in memory."""


@cache
def part_of(point: str) -> pd.DataFrame:
    """Return the steady records of the point."""
    frame = WORLD.records(next(each for each in WORLD.plan.points if each.hash == point))
    return frame[(frame["phase"] == "steady").to_numpy(bool)].reset_index(drop=True)


def records_of(point: str, count: int) -> Iterator[pd.DataFrame]:
    """Yield `count` records of one point: the same records repeatedly, each time later and in a separate pass."""
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


def measured(arm: str, count: int) -> MeasuredCell:
    """Return one arm with its rows on disk."""
    (workload,), (level,) = WORLD.plan.workloads, WORLD.plan.load.levels
    points = tuple(WORLD.honest(point) for point in WORLD.plan.points if point.arm == arm)
    records = {point.hash: records_of(point.hash, count // len(points)) for point in points}
    laid = load_stored_rows(WORLD.plan, points, records, DiskColumnStore())
    return MeasuredCell(WORLD.plan, WORLD.plan.arm(arm), workload, level, laid, points)


def compare_arms(mine: MeasuredCell, base: MeasuredCell) -> None:
    """Run the whole analysis of two arms."""
    diverged = divergence(mine.rows, base.rows)
    evaluate_cell(base, None)
    evaluate_cell(mine, base, diverged)
    losslessness(diverged, mine.rows, base.rows, {}, mine.workload.sampling)


def peak(work: Callable[[], object]) -> int:
    """Return the peak memory in bytes."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks, buckets and pieces as small relative to these few rows as they are relative to a million."""
    monkeypatch.setattr(rows, "BLOCK_ROWS", 2_000)
    monkeypatch.setattr(pairing, "BUCKET_ROWS", 4_000)
    monkeypatch.setattr(bootstrap, "PIECE_VALUES", 20_000)


@pytest.mark.process
def test_condensed_lists_are_short_and_counts_are_32_bit() -> None:
    laid = tidy([part_of(WORLD.plan.points[1].hash)], "h")
    assert laid[LISTS].memory_usage(deep=True).sum() / len(laid) < LISTS_BYTES
    assert laid.dtypes[["tokens", "steps", "last_token_ns"]].tolist() == [np.float32, np.float32, np.float64]


@pytest.mark.process
@pytest.mark.usefixtures("small_blocks")
def test_each_further_record_adds_few_bytes() -> None:
    peaks = []
    for count in (FEW, MANY):
        mine, base = (measured(arm, count) for arm in ("ngram", "none"))
        assert len(mine.rows) > 0.8 * count
        peaks.append((peak(partial(compare_arms, mine, base)), len(mine.rows) + len(base.rows)))
    (few, fewer), (many, more) = peaks
    assert (many - few) / (more - fewer) < RECORD_BYTES, f"{(many - few) / (more - fewer):.1f} bytes a record"


@pytest.mark.process
@pytest.mark.usefixtures("small_blocks")
def test_reading_records_needs_the_memory_of_one_block() -> None:
    few, many = (peak(partial(measured, "ngram", count)) for count in (FEW, MANY))
    assert (many - few) / (MANY - FEW) < READ_BYTES, f"{(many - few) / (MANY - FEW):.1f} bytes a record"
