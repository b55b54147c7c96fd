"""`specbench analyze breakdown`: what its tables hold, and what it says where there is nothing to show."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from specbench_api.outcome.breakdown import Breakdown
from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.summary import RunSummary
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.report.text.breakdown import DIMENSIONS, slices_dimensions, slices_markdown
from specbench_client.report.text.cells import csv, markdown
from specbench_testing.summary_variants import invalid
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

WORLD = SyntheticRun(prompts=20, repeats=3, turns=2)
UID = "0190a000-0000-7000-8000-000000000000"


@cache
def summary() -> RunSummary:
    """Of the world."""
    return run_of_world(WORLD)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A results folder with the world's answer and nothing else: no records are asked for."""
    root = tmp_path / run_root("local", "small", UID)
    root.mkdir(parents=True)
    (root / "plan.json").write_text(WORLD.plan.to_json())
    (root / SUMMARY).write_text(summary().to_json())
    return tmp_path


def test_every_dimension_has_a_table_with_a_row_for_each_class_of_each_cell() -> None:
    tables = dict(zip(DIMENSIONS, slices_dimensions(summary()), strict=True))
    baseline, ngram = (cell.breakdown for cell in summary().cells)
    assert baseline is not None
    assert ngram is not None
    assert len(tables["position"].table.rows) == len(ngram.by_position) > 2
    assert len(tables["turn"].table.rows) == 4
    assert len(tables["length"].table.rows) == len(baseline.by_length) + len(ngram.by_length)
    assert len(tables["length-position"].table.rows) == sum(len(group.by_position) for group in ngram.by_length)
    assert [row[0] for row in tables["request"].table.rows] == ["none", "ngram"]
    assert all(len(row) == len(table.table.columns) for table in tables.values() for row in table.table.rows)


def test_a_row_has_the_sample_and_the_interval_of_its_class() -> None:
    (table,) = slices_dimensions(summary(), ["position"])
    ngram = summary().cells[1].breakdown
    assert ngram is not None
    first = ngram.by_position[0]
    figure = first.figures["acceptance_length_emitted_pooled"]
    assert figure.interval is not None
    shown = f"{figure.value:.2f} [{figure.interval.low:.2f}, {figure.interval.high:.2f}]"
    assert table.table.rows[0] == ("ngram", "chat", "1", "1–15", f"{first.steps:,}", "120", "20", shown)


def test_rows_of_a_cell_that_a_check_made_invalid_say_so() -> None:
    tables = slices_dimensions(invalid(summary()))
    assert {row[2] for table in tables for row in table.table.rows} == {"1 invalid"}


def test_why_a_dimension_is_missing_is_told_once_for_the_cells_that_lack_it() -> None:
    position, part = slices_dimensions(summary(), ["position", "part"])
    assert [line.split(":")[0] for line in position.missing] == ["Missing for none at 1"]
    assert [line.split(":")[0] for line in part.missing] == ["Missing for none at 1", "Missing for ngram at 1"]
    assert part.table.rows == ()
    (length,) = slices_dimensions(summary(), ["length"])
    assert [line.split(":")[0] for line in length.missing] == ["Classes"]


def test_markdown_says_that_simulated_numbers_are_no_measurement() -> None:
    simulated = summary().model_copy(update={"simulated": True})
    assert "not a measurement" in slices_markdown(simulated, ["turn"])
    text = slices_markdown(summary())
    assert "not a measurement" not in text
    assert [f"## {title}" in text for title in DIMENSIONS.values()] == [True] * len(DIMENSIONS)


def test_the_command_shows_what_is_asked_for(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["analyze", "breakdown", str(stored), "--by", "turn", "--arm", "ngram"]) == Exit.OK
    told = capsys.readouterr().out
    assert "Requests by turn" in told
    assert "turn 2" in told
    assert "none" not in told
    assert "position" not in told
    assert exit_code(["analyze", "breakdown", str(stored), "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [cell["arm"] for cell in document["cells"]] == ["none", "ngram"]
    assert document["cells"][1]["breakdown"]["byTurn"][1]["label"] == "turn 2"
    assert exit_code(["analyze", "breakdown", str(stored), "--output", "markdown"]) == Exit.OK
    assert capsys.readouterr().out.startswith("# ")


def test_an_arm_that_is_not_there_and_an_answer_without_slices_are_named(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "breakdown", str(stored), "--arm", "eagle"]) == Exit.BAD_INPUT
    assert "--arm eagle" in capsys.readouterr().err
    kept = next(stored.rglob(SUMMARY))
    older = json.loads(kept.read_text())
    for cell in older["cells"]:
        del cell["breakdown"]
    kept.write_text(json.dumps(older))
    assert RunSummary.from_json(kept.read_text()).cells[1].breakdown == Breakdown(), "such a summary is read"
    assert exit_code(["analyze", "breakdown", str(stored)]) == Exit.BAD_INPUT
    assert "--recompute" in capsys.readouterr().err
    kept.write_text("{}")
    assert exit_code(["analyze", "breakdown", str(stored)]) == Exit.BAD_INPUT


def test_tables_of_a_run_without_targets_have_no_column_of_goodput() -> None:
    assert "Goodput" not in markdown(WORLD.plan, summary())
    assert "slo_goodput" not in csv(summary())
