"""Memory of an analysis does not grow with the length of answers, and only by a few bytes per record."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from specbench_client.analysis.compare import effects
from specbench_client.analysis.compare.comparison import comparison
from specbench_client.analysis.compare.metrics import SHOWN_METRICS
from specbench_client.analysis.curves.build import build_curves
from specbench_client.analysis.drift.comparison import DriftOptions, drift_report
from specbench_client.analysis.estimates.point_rows import load_rows
from specbench_client.analysis.explanation.traffic_mix import TrafficMix, cells_of, predict_mix
from specbench_client.analysis.lossless.losslessness import losslessness
from specbench_client.analysis.statistics import bootstrap, percentiles, row_layout
from specbench_client.analysis.summary.cells import MeasuredCell, evaluate_cell
from specbench_client.metrics import pairing, rows, tidy_frame
from specbench_client.metrics.divergence import divergence
from specbench_client.metrics.tidy_frame import TIMES
from specbench_client.stored_runs.drift_requests import requests_of_cell
from specbench_client.stored_runs.run import Run
from specbench_testing.result_pairs import replaced, result_of
from specbench_testing.synthetic_records import SyntheticRun, record_table, tidy_frames
from specbench_testing.tables import arrays_of

FEW, MANY = 4_000, 12_000
"""Requests of one arm."""
PART = 1_000
WORLD = SyntheticRun(prompts=40, concurrency=(3,), repeats=1)
LOCATION = WORLD.plan.workloads[0].name, WORLD.plan.load.levels[0].label
WALL = "2026-01-01T00:00:00Z"
LISTS = ["tokens_of_chunks", "coalesced", "accepted_of_steps", "walk"]
LISTS_BYTES = 200
"""Memory for a row's lists; it was 700 when each list was an object."""
READ_BYTES = 16
"""Memory that a further record may add while it is read and written."""
RECORD_BYTES = 64
"""Memory that a further record may add at any time; it was 520 when rows were kept in memory."""
READ_RECORD_BYTES = 45
"""Memory that a further record may add to a command that reads it; it was 200 to 500 with the rows in memory."""


@cache
def part_of(point: str) -> pd.DataFrame:
    frame = WORLD.records(next(each for each in WORLD.plan.points if each.hash == point))
    return frame[(frame["phase"] == "steady").to_numpy(bool)].reset_index(drop=True)


def records_of(point: str, count: int) -> Iterator[pa.Table]:
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
        yield record_table(together.assign(conversation_id=together["conversation_id"] + f"-{begun}", **later))


def measured(arm: str, count: int) -> MeasuredCell:
    (workload,), (level,) = WORLD.plan.workloads, WORLD.plan.load.levels
    points = tuple(WORLD.honest(point) for point in WORLD.plan.points if point.arm == arm)
    records = {point.hash: records_of(point.hash, count // len(points)) for point in points}
    laid = load_rows(WORLD.plan, points, records)
    return MeasuredCell(WORLD.plan, WORLD.plan.arm(arm), workload, level, laid, points)


def compare_arms(mine: MeasuredCell, base: MeasuredCell) -> None:
    diverged = divergence(mine.rows, base.rows)
    evaluate_cell(base, None)
    evaluate_cell(mine, base, diverged)
    losslessness(diverged, mine.rows, base.rows, {}, mine.workload.sampling)


def peak(work: Callable[[], object]) -> int:
    gc.collect()
    gc.freeze()  # The more objects other tests left in the process, the later Python would collect those of `work`.
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gc.unfreeze()
    return most


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks, buckets and pieces as small relative to these few rows as they are relative to a million."""
    monkeypatch.setattr(rows, "PIECE_ROWS", 2_000)
    monkeypatch.setattr(pairing, "BUCKET_ROWS", 4_000)
    monkeypatch.setattr(bootstrap, "PIECE_VALUES", 20_000)
    monkeypatch.setattr(effects, "AT_ONCE_VALUES", 20_000)
    for module in (pairing, tidy_frame, row_layout, percentiles, effects):
        monkeypatch.setattr(module, "NUMBERS_TOGETHER", 4_000)


@pytest.mark.process
def test_condensed_lists_are_short_and_counts_are_32_bit() -> None:
    laid = tidy_frames([part_of(WORLD.plan.points[1].hash)], "h")
    lists = [each for name in LISTS for each in arrays_of(laid.column(name))]
    assert 0 < sum(each.nbytes for each in lists) / len(laid) < LISTS_BYTES
    kinds = [laid.array(name).dtype for name in ("tokens", "steps", "last_token_ns")]
    assert kinds == [np.float32, np.float32, np.float64]


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
    measured("ngram", PART)  # What is cached in the first call is not counted.
    few, many = (peak(partial(measured, "ngram", 2 * count)) for count in (FEW, MANY))  # Both are several blocks.
    added = (many - few) / (2 * MANY - 2 * FEW)
    assert added < READ_BYTES, f"{added:.1f} bytes a record"


class RepeatedRecords(Mapping[str, Iterator[pa.Table]]):
    """The records of each point of a result, `count` of them; read anew on each access."""

    def __init__(self, result: Run, count: int) -> None:
        self._points, self._count = result.point_summaries, count

    def __getitem__(self, point: str) -> Iterator[pa.Table]:
        return records_of(point, self._count)

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)


def stored(count: int) -> Run:
    """Return the world as a stored result with `count` requests of each arm."""
    result = result_of(WORLD)
    return replaced(result, records=RepeatedRecords(result, count))


def compare_results(count: int) -> int:
    found = comparison(stored(count), stored(count), WALL)
    assert [each.metric for each in found.cells if each.arm == "ngram"] == [each.label for each in SHOWN_METRICS]
    return 4 * count


def draw_curve(count: int) -> int:
    """Draw a curve of one place; return the number of records that were read."""
    found = build_curves("output-tokens", stored(count))
    assert sum(point.pairs for curve in found.curves for point in curve.points) > 0.8 * count
    return 2 * count


def project_to_mix(count: int) -> int:
    result = stored(count)
    (found,) = predict_mix(result, cells_of(result, None), TrafficMix({"code": 1.0, "chat": 3.0}))
    assert found.speedup.value is not None
    return 2 * count


def detect_drift(count: int) -> int:
    """Compare an arm with itself; return the number of records that were read."""
    result = stored(count)
    logs = [requests_of_cell(result, ("ngram", *LOCATION)) for _ in range(2)]
    report = drift_report(logs[0], logs[1], DriftOptions(window=count, run_length=10 * count))
    assert report.current.requests > 0.8 * count
    return 2 * count


@pytest.mark.process
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "analyse",
    [
        compare_results,
        draw_curve,
        project_to_mix,
        detect_drift,
    ],
    ids=["compare", "curve", "predict", "drift"],
)
def test_each_further_record_adds_few_bytes_to_a_command(analyse: Callable[[int], int]) -> None:
    records = analyse(PART) / PART  # What is cached in the first call is not counted.
    few, many = (peak(partial(analyse, count)) for count in (FEW, 3 * FEW))
    added = (many - few) / (records * 2 * FEW)
    assert added < READ_RECORD_BYTES, f"{added:.1f} bytes a record"
