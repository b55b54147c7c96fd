"""docs/reference/records.md and metrics.md match the code: columns, values, figures, checks, and example code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from generators.docstrings import documented
from generators.metrics_page import render_metrics_page
from generators.records_page import DUCKDB, READING, athena_table
from specbench_api.outcome.layout import records_key, run_root
from specbench_api.plan.plan import Plan
from specbench_client.documents.record import AcceptanceSource, Record, RecordPhase
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.store.records import FILE_SCHEMA
from specbench_client.stored_runs import write_results
from specbench_client.stored_runs.write_results import conclude
from specbench_client.transport.exchange import ErrorClass, TimestampSource
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import ONE, SyntheticRun, run_of_world

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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two concluded runs, records of killed attempts, and the start of a run without a summary."""
    folder = tmp_path_factory.mktemp("records")
    name = "a-name-before-the-others"
    later = SyntheticRun(prompts=40, repeats=1, categories=ONE, concurrency=(2, 10), edits={"metadata.name": name})
    earlier = SyntheticRun(prompts=6, repeats=1, categories=ONE)
    for uid, world in (
        ("0190b000-0000-7000-8000-000000000000", later),
        ("0190a000-0000-7000-8000-000000000000", earlier),
    ):
        plan = store_results(world, folder / "specbench-results", uid)
        store = FolderStore(folder / "specbench-results" / run_root(plan.namespace, plan.name, uid))
        stored = [key for key in store.keys("points/") if "/records/" in key]
        store.put(records_key(plan.points[0].hash, 0, "killed"), store.get(stored[0]) or b"")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(write_results, "render_html", lambda *_: "")
            conclude(plan, store)
    store_results(earlier, folder / "specbench-results", "0190c000-0000-7000-8000-000000000000", points=1)
    return folder


def steady_requests(results: Path, uid: str = "*") -> Counter[str]:
    """Return the number of steady requests of all runs, or of one, by arm, from the points' lists of files."""
    found = Counter[str]()
    for plan in (results / "specbench-results").glob(f"runs/*/*/{uid}/plan.json"):
        points = PointStore(FolderStore(plan.parent))
        planned = Plan.from_json(plan.read_bytes()).points
        manifests = points.manifests([point.hash for point in planned])
        for point in planned:
            for frame in points.read_columns(manifests[point.hash]) if point.hash in manifests else ():
                found[point.arm] += int(((frame["phase"] == "steady") & (frame["error_class"] == None)).sum())  # noqa: E711  of each row
    return found


def test_example_code_reads_the_steady_records_of_a_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results)
    assert READING in PAGE.read_text(encoding="utf-8")
    seen: dict[str, object] = {}
    exec(READING, seen)
    records, run = seen["records"], seen["run"]
    assert isinstance(run, Path)
    assert run.name == "0190b000-0000-7000-8000-000000000000"
    assert isinstance(records, pd.DataFrame)
    assert set(records.phase) == {"steady"}
    assert records.request_id.is_unique
    assert len(records) == steady_requests(results, run.name).total()
    assert set(records.arm) == {"none", "ngram"}


def test_duckdb_query_counts_each_record_once_by_run_and_sorts_loads_as_numbers(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    assert DUCKDB in PAGE.read_text(encoding="utf-8")
    rows = duckdb.sql(DUCKDB.rstrip().rstrip(";")).fetchall()
    counted = Counter[str]()
    for _, _, _, arm, requests, _ in rows:
        counted[arm] += requests
    assert counted == steady_requests(results)
    roots = [str(file.parent) for file in Path("specbench-results").glob("runs/*/*/*/plan.json")]
    expected = [
        (root.removeprefix("specbench-results/runs/"), "chat", load, arm)
        for root in sorted(roots)
        for load in (("2", "10") if "before-the-others" in root else ("1",))
        for arm in (("none",) if "0190c" in root else ("ngram", "none"))
    ]
    assert [row[:4] for row in rows] == expected
    assert all(e2e_ms > 0 for *_, e2e_ms in rows)


ATHENA_TYPES = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_()}


def test_athena_table_has_the_columns_of_the_export() -> None:
    statement = athena_table()
    assert statement in PAGE.read_text(encoding="utf-8")
    declared = dict(re.findall(r"^  `(\w+)` (\S+?),?$", statement, re.MULTILINE))
    assert list(declared) == FILE_SCHEMA.names
    assert [_arrow_type(text) for text in declared.values()] == FILE_SCHEMA.types


def _arrow_type(text: str) -> pa.DataType:
    element = re.fullmatch(r"array<(\w+)>", text)
    return pa.list_(ATHENA_TYPES[element[1]]) if element else ATHENA_TYPES[text]


METRICS_PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_metrics_page_is_up_to_date() -> None:
    stale = "docs/reference/metrics.md is stale: run hack/generate"
    assert METRICS_PAGE.read_text(encoding="utf-8") == render_metrics_page(), stale


def test_every_figure_of_a_summary_is_on_the_metrics_page() -> None:
    summary = run_of_world(SyntheticRun(prompts=20, repeats=1))
    by_position = {f"{kind}position_acceptance_rate_{at}" for kind in ("", "conditional_") for at in range(1, 4)}
    exactly = {f"accepted_exactly_{count}" for count in range(4)}
    names = {name for cell in summary.cells for name in cell.figures} - by_position - exactly
    assert all(f"`{name}`" in render_metrics_page() for name in names)
