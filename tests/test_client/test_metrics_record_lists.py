"""Condensed lists contain the same counts as the lists, however records are split, and are small."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.summary.point import summarise_point
from specbench_client.analysis.summary.run import summarise_run
from specbench_client.documents.summary import ClientHealth
from specbench_client.metrics.steady_window import steady_window, window_tokens
from specbench_client.metrics.tidy_frame import numbers
from specbench_testing.synthetic_records import (
    CREATED,
    NS_PER_MS,
    SyntheticRun,
    frame_of,
    record,
    record_table,
    tidy_frames,
)
from specbench_testing.tables import arrays_of

WORLD = SyntheticRun(prompts=40, concurrency=(3,), repeats=1, turns=2)
BASELINE, NGRAM = WORLD.plan.points
CUTS = (1, 7, 20, 21, 60)


def split_into_parts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Return parts of very different sizes, one of them empty."""
    bounds = [0, 0, *CUTS, len(frame)]
    return [frame.iloc[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize("point", WORLD.plan.points, ids=lambda point: point.arm)
def test_point_summary_does_not_depend_on_the_parts_of_its_records(point: object) -> None:
    frame = WORLD.records(point)  # type: ignore[arg-type]
    whole, parts = (
        summarise_point(WORLD.plan, point, tidy_frames(each), ClientHealth(), None, simulated=False)  # type: ignore[arg-type]
        for each in ([frame], split_into_parts(frame))
    )
    assert parts.to_json() == whole.to_json()


def test_tallies_count_the_values_of_the_lists() -> None:
    frame = WORLD.records(NGRAM)
    rows, lists = tidy_frames([frame]), frame[frame.phase != "warmup"]
    for column, listed in (("tokens_of_chunks", lists.chunk_tokens), ("accepted_of_steps", lists.step_accepted)):
        for kept, values in zip(rows.lists(column).arrays(), listed, strict=True):
            assert kept is not None
            assert kept.T.tolist() == [each.tolist() for each in np.unique(values, return_counts=True)]
    assert numbers(rows, "chunks").tolist() == [len(times) for times in lists.chunk_ns]


def test_tally_gives_cumulative_counts() -> None:
    rows = tidy_frames([frame_of([record(step_accepted=[3, 0, 1, 3])])])
    steps = rows.lists("accepted_of_steps")
    values, times = steps.entries.T
    assert [float(steps.sums((values >= value) * times)[0]) for value in range(5)] == [4, 3, 2, 2, 0]
    assert [float(steps.sums((values > value) * times)[0]) for value in range(5)] == [3, 2, 2, 0, 0]


def test_tokens_in_the_window_equal_those_of_the_full_lists() -> None:
    frame = WORLD.records(NGRAM)
    rows = tidy_frames([frame])
    window = steady_window(rows)
    assert window is not None
    measured = frame[frame.phase != "warmup"]
    inside = [
        sum(count for at, count in zip(times, counts, strict=True) if window.start_ns <= at <= window.end_ns)
        for times, counts in zip(measured.chunk_ns, measured.chunk_tokens, strict=True)
    ]
    assert 0 < sum(inside) < sum(measured.output_tokens)
    assert window_tokens(rows, window) == pytest.approx(sum(inside))


def test_coalesced_chunks_are_counted_with_their_tokens() -> None:
    at = [0, 10, 10, 20, 20, 20, 30]
    times, tokens = [ms * NS_PER_MS for ms in at], [1, 2, 3, 1, 1, 3, 1]
    counted = record(chunk_ns=times, chunk_tokens=tokens)
    uncounted = record(chunk_ns=times, chunk_tokens=None, output_tokens=14)
    rows = tidy_frames([frame_of([counted, uncounted, record(chunk_ns=[], chunk_tokens=[]), record(chunk_ns=None)])])
    first, spread, none, missing = rows.lists("coalesced").arrays()
    assert first is not None
    assert first.tolist() == [[5, 1 + 2]]
    assert spread is not None
    assert spread.tolist() == [[4, 1], [6, 2]]
    assert none is not None
    assert none.size == 0
    assert missing is None
    assert numbers(rows, "burst_chunks")[:2].tolist() == [3, 3]
    assert numbers(rows, "burst_tokens")[:2].tolist() == [5, 6]
    assert np.isnan(numbers(rows, "burst_chunks"))[2:].all()


def test_memory_of_a_steady_answer_does_not_grow_with_its_length() -> None:
    def memory_bytes(chunks: int) -> int:
        times = [NS_PER_MS * (50 + index) for index in range(chunks)]
        lists = {"chunk_ns": times, "chunk_tokens": [1, 4] * (chunks // 2), "step_accepted": [0, 3] * (chunks // 2)}
        rows = tidy_frames([frame_of([record(**lists, last_token_ns=times[-1])])])
        return sum(each.nbytes for name in rows.columns for each in arrays_of(rows.column(name)))

    assert memory_bytes(10_000) == memory_bytes(10) > 0


def test_only_answers_at_the_edges_of_the_window_keep_their_chunks() -> None:
    phases = [record(phase=phase) for phase in ("ramp", "steady", "drain")]
    rows = tidy_frames([frame_of([*phases, record(phase="drain", error_class="reset")])])
    assert rows.known("edge_ns").tolist() == [True, False, True, False]


@pytest.mark.draws
def test_run_summary_does_not_depend_on_the_parts_of_its_records() -> None:
    frames = {point.hash: WORLD.records(point) for point in WORLD.plan.points}
    points = [
        summarise_point(
            WORLD.plan, point, tidy_frames([frames[point.hash]], point.hash), ClientHealth(), None, simulated=False
        )
        for point in WORLD.plan.points
    ]
    whole = summarise_run(WORLD.plan, points, {name: [record_table(frame)] for name, frame in frames.items()}, CREATED)
    split = {name: [*map(record_table, split_into_parts(frame))] for name, frame in frames.items()}
    parts = summarise_run(WORLD.plan, points, split, CREATED)
    assert parts.to_json() == whole.to_json()
