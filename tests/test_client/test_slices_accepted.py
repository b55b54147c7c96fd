"""The acceptance map: each step at its start position, answers sorted by length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.breakdown import AcceptedMap
from specbench_api.outcome.layout import run_root
from specbench_client.analysis.breakdown import acceptance_map
from specbench_client.analysis.breakdown.acceptance_map import (
    COLUMNS,
    COLUMNS_MAX,
    REQUESTS_MAX,
    ROWS_MAX,
    build_acceptance_map,
)
from specbench_client.store.folder import FolderStore
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

pytestmark = pytest.mark.runs

STEPS = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def row(drafts: Sequence[int], **edits: Any) -> dict[str, Any]:
    """Return a steady request whose steps accepted these numbers of drafts."""
    fields = {
        "prompt_id": "p",
        "phase": "steady",
        "error_class": None,
        "steps": len(drafts),
        "output_tokens": sum(drafts) + len(drafts) + 1,
        "output_tokens_client": None,
        "step_accepted": list(drafts),
        "chunk_tokens": None,
    }
    return {**fields, **edits}


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=COLUMNS)


def acceptance_map_of(*rows: dict[str, Any]) -> AcceptedMap:
    found = build_acceptance_map([frame(*rows)], 0)
    assert found is not None
    return found


def test_steps_are_at_their_start_and_answers_sorted_by_length() -> None:
    found = acceptance_map_of(row([3, 0, 1]), row([1, 0]))
    assert [(each.first, each.last) for each in found.rows] == [(4, 4), (8, 8)]
    assert [(each.first, each.last) for each in found.columns] == [(place, place) for place in range(1, 8)]
    assert found.emitted == [
        [2, None, 1, None, None, None, None],
        [4, None, None, None, 1, 2, None],
    ]
    assert (found.requests, found.repeat) == (2, 0)


def test_steps_are_located_by_chunks_if_the_engine_lists_none() -> None:
    assert acceptance_map_of(row([1, 0], step_accepted=None, chunk_tokens=[1, 2, 1])).emitted == [[2, None, 1]]


@given(st.lists(STEPS, min_size=1, max_size=60))
def test_map_is_bounded_and_values_are_within_the_emitted_range(answers: list[list[int]]) -> None:
    found = acceptance_map_of(*(row(drafts) for drafts in answers))
    assert len(found.rows) == len(found.emitted) <= ROWS_MAX
    assert all(len(values) == len(found.columns) <= COLUMNS_MAX for values in found.emitted)
    known = [value for values in found.emitted for value in values if value is not None]
    assert min(known) >= 1
    assert max(known) <= 1 + max(max(drafts) for drafts in answers)
    assert all(values[0] is not None for values in found.emitted), "every answer's first step starts at position 1"
    firsts = [each.first for each in found.rows]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize(
    "edits",
    [
        {"phase": "warmup"},
        {"phase": "drain"},
        {"error_class": "timeout"},
        {"steps": None},
        {"output_tokens": None},
        {"output_tokens": 99},
        {"step_accepted": None},
        {"step_accepted": [1]},
        {"step_accepted": [1.0, float("nan")]},
    ],
)
def test_requests_without_located_steps_or_not_steady_have_no_row(edits: dict[str, Any]) -> None:
    assert build_acceptance_map([frame(row([1, 0], **edits))], 0) is None
    assert acceptance_map_of(row([1, 0], **edits), row([2])).requests == 1


def test_only_the_needed_records_are_read() -> None:
    def parts() -> Iterator[pd.DataFrame]:
        for _ in range(-(-REQUESTS_MAX // 50)):
            yield frame(*(row([1]) for _ in range(50)))
        raise AssertionError("one part too many was read")

    found = build_acceptance_map(parts(), 2)
    assert found is not None
    assert (found.requests, found.repeat) == (REQUESTS_MAX, 2)


def test_run_has_a_map_at_the_lowest_load(tmp_path: Path) -> None:
    plan = store_results(SyntheticRun(prompts=6, concurrency=(1, 2)), tmp_path, "a")
    summary = conclude(plan, FolderStore(tmp_path / run_root(plan.namespace, plan.name, plan.uid)))
    found = {(cell.arm, cell.level.label) for cell in summary.cells if cell.breakdown.accepted_map is not None}
    assert found == {("ngram", "1")}


def test_values_are_means_of_neighbouring_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance_map, "ROWS_MAX", 1)
    assert acceptance_map_of(row([3]), row([1])).emitted == [[3, None, None, None]]
    assert np.isclose(acceptance_map_of(row([3]), row([1]), row([0])).emitted[0][0] or 0, 7 / 3, atol=1e-3)
