"""What a cell's answer needs does not grow with the length of answers, and by little with their number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.estimates.figures import Sample, figures_of
from specbench_client.metrics.frame import tidy
from specbench_client.metrics.window import deliveries
from specbench_testing.records import World

FEW, MANY = 2_000, 10_000
WORLD = World(prompts=40, concurrency=(3,), repeats=1)
LISTS = ["tokens_of_chunks", "gathered", "accepted_of_steps", "walk"]
LISTS_BYTES = 200
"""What stands for a row's lists; it was 700 while each was an object."""


def rows_of(count: int) -> pd.DataFrame:
    """Records of a few prompts over and over, in passes of their own."""
    frame = WORLD.records(WORLD.plan.points[1])
    copies = -(-count // len(frame))
    parts = [frame.assign(conversation_id=frame["conversation_id"] + f"#{number}") for number in range(copies)]
    return tidy(parts, "h").iloc[:count].reset_index(drop=True)


def grown(work: Callable[[pd.DataFrame], object]) -> float:
    """Bytes at most, a further row, beyond the rows themselves."""
    peaks = []
    for count in (FEW, MANY):
        rows = rows_of(count)
        tracemalloc.start()
        work(rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / (MANY - FEW)


def test_what_stands_for_lists_is_short_and_counts_are_half_as_long_as_times() -> None:
    rows = rows_of(MANY)
    assert rows[LISTS].memory_usage(deep=True).sum() / len(rows) < LISTS_BYTES
    assert rows.dtypes[["tokens", "steps", "last_token_ns"]].tolist() == [np.float32, np.float32, np.float64]


@pytest.mark.process
@pytest.mark.parametrize(
    ("work", "most"),
    [
        (lambda rows: figures_of(Sample(rows, 1), 3, 0), 400),
        (deliveries, 200),
    ],
    ids=["figures", "throughput"],
)
def test_what_is_made_of_the_rows_is_not_many_times_as_large(work: Callable[[pd.DataFrame], object], most: int) -> None:
    """Figures took 720 bytes a row while each ratio kept its parts; throughput 290, all of a row."""
    assert grown(work) < most
