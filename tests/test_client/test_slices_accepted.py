"""A line a request: every step at the position at which it began, the shortest answer first, and nothing made up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.outcome.layout import run_root
from specbench_api.outcome.slices import AcceptedMap
from specbench_client.analysis.slices import accepted
from specbench_client.analysis.slices.accepted import COLUMNS, COLUMNS_MAX, REQUESTS_MAX, ROWS_MAX, accepted_map
from specbench_client.cli import cli
from specbench_client.drive.conclude import conclude
from specbench_client.report.plots.sections.requests import by_request
from specbench_client.store.folder import FolderStore
from specbench_testing.kept import keep
from specbench_testing.records import World

STEPS = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def row(drafts: Sequence[int], **edits: Any) -> dict[str, Any]:
    """A steady request whose steps accepted so many drafts each."""
    told = {
        "prompt_id": "p",
        "phase": "steady",
        "error_class": None,
        "steps": len(drafts),
        "output_tokens": sum(drafts) + len(drafts) + 1,
        "output_tokens_client": None,
        "step_accepted": list(drafts),
        "chunk_tokens": None,
    }
    return {**told, **edits}


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=COLUMNS)


def made(*rows: dict[str, Any]) -> AcceptedMap:
    found = accepted_map([frame(*rows)], 0)
    assert found is not None
    return found


def test_each_step_stands_where_it_began_and_the_shortest_answer_comes_first() -> None:
    found = made(row([3, 0, 1]), row([1, 0]))
    assert [(each.first, each.last) for each in found.rows] == [(4, 4), (8, 8)]
    assert [(each.first, each.last) for each in found.columns] == [(place, place) for place in range(1, 8)]
    assert found.emitted == [
        [2, None, 1, None, None, None, None],
        [4, None, None, None, 1, 2, None],
    ]
    assert (found.requests, found.repeat) == (2, 0)


def test_chunks_tell_the_steps_where_the_engine_lists_none() -> None:
    assert made(row([1, 0], step_accepted=None, chunk_tokens=[1, 2, 1])).emitted == [[2, None, 1]]


@given(st.lists(STEPS, min_size=1, max_size=60))
def test_it_stays_small_and_no_value_leaves_what_steps_emitted(answers: list[list[int]]) -> None:
    found = made(*(row(drafts) for drafts in answers))
    assert len(found.rows) == len(found.emitted) <= ROWS_MAX
    assert all(len(values) == len(found.columns) <= COLUMNS_MAX for values in found.emitted)
    known = [value for values in found.emitted for value in values if value is not None]
    assert min(known) >= 1
    assert max(known) <= 1 + max(max(drafts) for drafts in answers)
    assert all(values[0] is not None for values in found.emitted), "every answer's first step begins at position 1"
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
def test_a_request_whose_steps_cannot_be_placed_or_that_is_not_steady_has_no_line(edits: dict[str, Any]) -> None:
    assert accepted_map([frame(row([1, 0], **edits))], 0) is None
    assert made(row([1, 0], **edits), row([2])).requests == 1


def test_no_more_is_read_than_is_drawn() -> None:
    def parts() -> Iterator[pd.DataFrame]:
        for _ in range(-(-REQUESTS_MAX // 50)):
            yield frame(*(row([1]) for _ in range(50)))
        raise AssertionError("one part too many was asked for")

    found = accepted_map(parts(), 2)
    assert found is not None
    assert (found.requests, found.repeat) == (REQUESTS_MAX, 2)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a small run at two loads, with its answer."""
    world, folder = World(prompts=6, concurrency=(1, 2)), tmp_path_factory.mktemp("results")
    plan = keep(world, folder, "a")
    summary = conclude(plan, FolderStore(folder / run_root(plan.namespace, plan.name, plan.uid)))
    maps = {(cell.arm, cell.level.label): cell.slices.accepted_map if cell.slices else None for cell in summary.cells}
    assert {place for place, found in maps.items() if found is not None} == {("ngram", "1")}
    drawn = by_request(summary)
    assert drawn is not None
    assert "n 6 requests of one repeat" in drawn.caption
    return folder


def test_the_answer_of_a_run_has_it_at_the_lightest_load_and_a_command_draws_it(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "answers.html"
    done = CliRunner().invoke(cli, ["slices", str(stored), "--latest", "--by", "turn", "--plot", str(page)])
    assert done.exit_code == 0, done.output
    assert "Acceptance along each answer" in page.read_text(encoding="utf-8")


def test_an_arm_that_has_none_is_refused_with_what_to_do(stored: Path, tmp_path: Path) -> None:
    arguments = ["slices", str(stored), "--latest", "--arm", "none", "--plot", str(tmp_path / "none.svg")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code != 0
    assert "no step of these arms can be placed" in str(done.exception or done.output)


def test_values_are_means_of_neighbours_where_requests_are_more_than_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted, "ROWS_MAX", 1)
    assert made(row([3]), row([1])).emitted == [[3, None, None, None]]
    assert np.isclose(made(row([3]), row([1]), row([0])).emitted[0][0] or 0, 7 / 3, atol=1e-3)
