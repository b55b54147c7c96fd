"""Published tables: the data is consistent, the nearest row is found, and differences are listed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench_api.errors import InvalidSpec
from specbench_api.outcome.finding import Severity
from specbench_api.spec.drafter import Method
from specbench_client.analysis.published.nearest import (
    CellConditions,
    compare_published,
    condition_differences,
    distance,
    size_b,
)
from specbench_client.analysis.published.tables import TABLES, tables_named
from specbench_client.documents.published import PublishedFigure
from specbench_testing.decision_summaries import Given, plan_of, summary_of

FIGURES = [(table.name, row) for table in TABLES.values() for row in table.figures]
BATCH = TABLES["illusion-batch"].figures


def rows_of(name: str, **conditions: object) -> list[PublishedFigure]:
    return [row for row in TABLES[name].figures if all(getattr(row, key) == value for key, value in conditions.items())]


def cell_like(row: PublishedFigure) -> CellConditions:
    """Return a cell measured under exactly the row's conditions."""
    return CellConditions(
        model=row.model,
        adapter=None,
        engine=row.engine,
        hardware=row.hardware,
        method=row.method,
        draft_tokens=row.draft_tokens,
        dataset=row.dataset,
        batch=row.batch,
        temperature=row.temperature or 0.0,
    )


def test_every_table_has_a_source_and_plausible_rows() -> None:
    for table in TABLES.values():
        assert table.source
        assert table.read
        for row in table.figures:
            assert row.method in set(Method)
            low, high = {"acceptance_rate": (0, 1), "acceptance_length": (1, 30)}.get(row.figure, (0.1, 100))
            assert low <= row.value <= high, row
            assert not (row.figure == "speedup" and row.method == "none")


@pytest.mark.parametrize(
    ("table", "where", "value"),
    [
        ("illusion-batch", {"model": "Llama-3-70B", "method": "eagle", "dataset": "InstructCoder", "batch": 1}, 2.50),
        ("illusion-batch", {"model": "Qwen3-8B", "method": "draft_model", "dataset": "ShareGPT", "batch": 128}, 0.92),
        ("illusion-trees", {"draft_tokens": 21, "dataset": "GSM8K", "batch": 64}, 0.58),
        ("speed-bench", {"model": "Llama-3.3-70B", "method": "eagle3", "figure": "speedup", "temperature": 1.0}, 1.75),
        ("production-benchmark", {"method": "eagle3", "figure": "speedup", "batch": 64}, 0.95),
    ],
)
def test_figures_have_their_published_conditions(table: str, where: dict[str, object], value: float) -> None:
    assert [row.value for row in rows_of(table, **where)] == [value]


def test_figure_1_is_complete() -> None:
    """It has three targets, four prompt sets and four batches; n-gram on InstructCoder has two lengths."""
    assert len(BATCH) == 3 * 4 * (4 * 3 + 1)
    assert len(BATCH) == len({(row.model, row.method, row.draft_tokens, row.dataset, row.batch) for row in BATCH})


@given(st.sampled_from([row for row in BATCH if row.draft_tokens]))
def test_cell_with_a_rows_conditions_has_no_differences(row: PublishedFigure) -> None:
    conditions = cell_like(row)
    assert (distance(conditions, row), condition_differences(conditions, row)) == (0.0, [])
    assert min(BATCH, key=lambda other: (distance(conditions, other), other is not row)) is row


def test_nearest_row_of_each_table_is_reported_with_all_differences() -> None:
    plan = plan_of(model={"name": "meta-llama/Llama-3.1-8B-Instruct"})
    findings = {"ChunksCoalesced": Severity.WARNING, "ClientSaturated": Severity.INVALID}
    bad = Given("eagle3", 8, gain=1.6, valid=False, findings=findings)
    cells = Given("none", 8), Given("ngram", 8, gain=1.5, acceptance=0.5), bad
    found = compare_published(plan, summary_of(*cells), "here", tables_named("illusion-batch"))
    (row,) = found.rows
    assert (row.published.model, row.published.method, row.published.batch) == ("Llama-3.1-8B", "ngram", 16)
    assert row.published.draft_tokens == 3
    assert row.ratio == pytest.approx(1.5 / row.published.value)
    differences = {str(each) for each in row.differences}
    assert {"batch 16 → 8", "hardware 1 x H100 80GB → unknown"} <= differences
    assert not any(each.startswith(("model", "draft tokens", "temperature")) for each in differences)
    assert found.unmatched[-1] == "eagle3 on chat at 8: invalid (ClientSaturated)"
    assert "neither a pass nor a fail" in found.limits[0]


def test_an_adapter_is_a_difference_from_every_published_row() -> None:
    row = BATCH[0]
    conditions = replace(cell_like(row), adapter="acme/sql")
    assert [str(each) for each in condition_differences(conditions, row)] == ["adapter none → acme/sql"]
    assert distance(conditions, row) == 1

    model = {"name": "meta-llama/Llama-3.1-8B-Instruct", "adapter": {"name": "sql", "model": "acme/sql"}}
    summary = summary_of(Given("none", 8), Given("ngram", 8, gain=1.5, acceptance=0.5))
    (match,) = compare_published(plan_of(model=model), summary, "here", tables_named("illusion-batch")).rows
    assert "adapter none → acme/sql" in {str(each) for each in match.differences}


def test_caution_of_a_table_is_printed_with_it() -> None:
    cells = Given("none"), Given("eagle3", gain=1.6, acceptance=0.7)
    found = compare_published(plan_of(), summary_of(*cells, simulated=True, doubts=["X"]), "here", tables_named("all"))
    assert any("contradicts itself" in limit for limit in found.limits)
    assert (found.simulated, found.trustworthy) == (True, False)
    assert {row.table for row in found.rows} >= {"illusion-batch", "speed-bench", "production-benchmark"}


def test_speedup_from_too_few_repeats_has_no_interval() -> None:
    found = compare_published(
        plan_of(), summary_of(Given("ngram", gain=1.5, repeats=2)), "here", tables_named("illusion-batch")
    )
    assert [row.measured.interval for row in found.rows] == [None]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8.0),
        ("SmolLM2-135M-Instruct", 0.135),
        ("Qwen3-0.6B", 0.6),
        ("GPT-OSS-120B", 120.0),
        ("DeepSeek-R1", None),
    ],
)
def test_model_size_is_read_from_the_name(name: str, size: float | None) -> None:
    assert size_b(name) == size


def test_unknown_table_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(InvalidSpec, match=r"'mine' is not a table .*illusion-batch.*all, list"):
        tables_named("mine")
