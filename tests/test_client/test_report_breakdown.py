"""`specbench analyze breakdown`: contents of its tables, and messages for missing dimensions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from specbench_api.outcome.layout import SUMMARY, run_root
from specbench_api.outcome.termination import Exit
from specbench_client.cli import exit_code
from specbench_client.documents.summary import RunSummary
from specbench_client.report.renderers import markdown_document
from specbench_client.report.text.breakdown import DIMENSIONS, breakdown_topics
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
    topics = dict(zip(DIMENSIONS, breakdown_topics(summary()), strict=True))
    baseline, ngram = (cell.breakdown for cell in summary().cells)
    assert baseline is not None
    assert ngram is not None
    assert len(topics["position"].tables[0].rows) == len(ngram.by_position) > 2
    assert len(topics["turn"].tables[0].rows) == 4
    assert len(topics["length"].tables[0].rows) == len(baseline.by_length) + len(ngram.by_length)
    assert len(topics["length-position"].tables[0].rows) == sum(len(group.by_position) for group in ngram.by_length)
    assert [row[0] for row in topics["request"].tables[0].rows] == ["none", "ngram"]
    assert all(len(row) == len(topic.tables[0].columns) for topic in topics.values() for row in topic.tables[0].rows)


def test_row_has_the_sample_size_and_the_interval_of_its_class() -> None:
    (table,) = breakdown_topics(summary(), ["position"])
    ngram = present(summary().cells[1].breakdown)
    first = ngram.by_position[0]
    figure = first.figures["acceptance_length_emitted_pooled"]
    expected = f"{figure.value:.2f} [{present(figure.interval).low:.2f}, {present(figure.interval).high:.2f}]"
    assert table.tables[0].rows[0] == ("ngram", "chat", "1", "1–15", f"{first.steps:,}", "120", "20", expected)


def test_missing_dimension_is_explained_once_for_its_cells() -> None:
    position, part = breakdown_topics(summary(), ["position", "part"])
    assert [line.split(":")[0] for line in position.lines] == ["Missing for none at 1"]
    assert [line.split(":")[0] for line in part.lines] == ["Missing for none at 1", "Missing for ngram at 1"]
    assert part.tables[0].rows == ()
    (length,) = breakdown_topics(summary(), ["length"])
    assert [line.split(":")[0] for line in length.lines] == ["Classes"]


def test_simulated_and_invalid_results_are_marked() -> None:
    topics = breakdown_topics(summary())
    assert "not a measurement" in markdown_document("n", topics, simulated=True)
    text = markdown_document("n", topics, simulated=False)
    assert "not a measurement" not in text
    assert [title for title in DIMENSIONS.values() if f"## {title}" not in text] == []
    assert {row[2] for topic in breakdown_topics(invalid(summary())) for row in topic.tables[0].rows} == {"1 invalid"}


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
