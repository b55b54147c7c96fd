"""`specbench analyze breakdown`: contents of its tables, and messages for missing dimensions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.summary import RunSummary
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.report.text.breakdown import DIMENSIONS, slices_dimensions, slices_markdown
from specbench_testing.present import present
from specbench_testing.summary_variants import invalid
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=20, repeats=3, turns=2)
UID = "0190a000-0000-7000-8000-000000000000"


@cache
def summary() -> RunSummary:
    return run_of_world(WORLD)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A results folder with only plan and summary, because no records are needed."""
    root = tmp_path / run_root("local", "small", UID)
    root.mkdir(parents=True)
    (root / "plan.json").write_text(WORLD.plan.to_json())
    (root / SUMMARY).write_text(summary().to_json())
    return tmp_path


def test_every_dimension_has_a_row_per_class_and_cell() -> None:
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


def test_row_has_the_sample_size_and_the_interval_of_its_class() -> None:
    (table,) = slices_dimensions(summary(), ["position"])
    ngram = present(summary().cells[1].breakdown)
    first = ngram.by_position[0]
    figure = first.figures["acceptance_length_emitted_pooled"]
    expected = f"{figure.value:.2f} [{present(figure.interval).low:.2f}, {present(figure.interval).high:.2f}]"
    assert table.table.rows[0] == ("ngram", "chat", "1", "1–15", f"{first.steps:,}", "120", "20", expected)


def test_missing_dimension_is_explained_once_for_its_cells() -> None:
    position, part = slices_dimensions(summary(), ["position", "part"])
    assert [line.split(":")[0] for line in position.missing] == ["Missing for none at 1"]
    assert [line.split(":")[0] for line in part.missing] == ["Missing for none at 1", "Missing for ngram at 1"]
    assert part.table.rows == ()
    (length,) = slices_dimensions(summary(), ["length"])
    assert [line.split(":")[0] for line in length.missing] == ["Classes"]


def test_simulated_and_invalid_results_are_marked() -> None:
    simulated = summary().model_copy(update={"simulated": True})
    assert "not a measurement" in slices_markdown(simulated, ["turn"])
    text = slices_markdown(summary())
    assert "not a measurement" not in text
    assert [title for title in DIMENSIONS.values() if f"## {title}" not in text] == []
    assert {row[2] for table in slices_dimensions(invalid(summary())) for row in table.table.rows} == {"1 invalid"}


def test_breakdown_command_shows_the_requested_dimension_and_arm(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "breakdown", str(stored), "--by", "turn", "--arm", "ngram"]) == Exit.OK
    printed = capsys.readouterr().out
    assert "Requests by turn" in printed
    assert not any(word in printed for word in ("none", "position"))
    assert exit_code(["analyze", "breakdown", str(stored), "--output", "json"]) == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert [cell["arm"] for cell in document["cells"]] == ["none", "ngram"]
    assert document["cells"][1]["breakdown"]["byTurn"][1]["label"] == "turn 2"


def test_unknown_arm_and_summary_without_breakdown_are_rejected(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["analyze", "breakdown", str(stored), "--arm", "eagle"]) == Exit.BAD_INPUT
    assert "--arm eagle" in capsys.readouterr().err
    kept = next(stored.rglob(SUMMARY))
    older = json.loads(kept.read_text())
    for cell in older["cells"]:
        del cell["breakdown"]
    kept.write_text(json.dumps(older))
    assert exit_code(["analyze", "breakdown", str(stored)]) == Exit.BAD_INPUT
    assert "--recompute" in capsys.readouterr().err
