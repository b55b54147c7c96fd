"""docs/reference/records.md describes every column and enumeration value, and its example code runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from generators.records_page import READING, documented
from specbench_api.outcome.record import AcceptanceSource, Record, RecordPhase
from specbench_client.transport.exchange import ErrorClass, TimestampSource
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

PAGE = Path(__file__).parents[2] / "docs/reference/records.md"


def test_every_column_is_documented() -> None:
    assert list(documented(Record)) == [field.name for field in fields(Record)]


def test_documentation_of_nullable_columns_explains_null() -> None:
    descriptions = documented(Record)
    unexplained = [
        field.name for field in fields(Record) if "None" in str(field.type) and "ull" not in descriptions[field.name]
    ]
    assert unexplained == []


@pytest.mark.parametrize("kind", [RecordPhase, AcceptanceSource, TimestampSource, ErrorClass])
def test_every_value_of_an_enumeration_is_documented(kind: type[RecordPhase]) -> None:
    assert set(documented(kind)) == {member.name for member in kind}


def test_example_code_reads_the_steady_records_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = SyntheticRun(prompts=6, repeats=1, edits={"metadata.name": "a-name-before-the-others"})
    plan = store_results(later, tmp_path / "specbench-results", "0190b000-0000-7000-8000-000000000000")
    store_results(
        SyntheticRun(prompts=6, repeats=1), tmp_path / "specbench-results", "0190a000-0000-7000-8000-000000000000"
    )
    monkeypatch.chdir(tmp_path)
    assert READING in PAGE.read_text(encoding="utf-8")
    seen: dict[str, object] = {}
    exec(READING, seen)
    records, run = seen["records"], seen["run"]
    assert isinstance(run, Path)
    assert run.name == plan.uid
    assert isinstance(records, pd.DataFrame)
    assert len(records) > 0
    assert set(records.phase) == {"steady"}
