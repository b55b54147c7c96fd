"""A run is summarised from the tidy rows that its clients stored, with the same figures as from its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specbench_api.outcome import layout
from specbench_api.outcome.layout import rows_prefix, run_root
from specbench_api.plan.plan import Plan, Point
from specbench_api.spec.slo import Slo
from specbench_client.drive.options import SystemClock
from specbench_client.errors import NotDurable
from specbench_client.metrics import rows as tidy_row_blocks
from specbench_client.metrics.rows import Table, join_tables
from specbench_client.metrics.tidy_frame import COLUMNS, stored_columns, tidy
from specbench_client.store import points as point_store
from specbench_client.store import row_files
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.stored_runs.run import StoredRecords, tidy_schema
from specbench_client.stored_runs.write_results import conclude
from specbench_testing.local_results import Edit, store_results
from specbench_testing.synthetic_records import ONE, SyntheticRun
from specbench_testing.tables import assert_same_table

CLOCK = SystemClock(wall=lambda: datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))
SMALL = SyntheticRun(prompts=12, categories=ONE, repeats=3)


def failing(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
    failed = np.arange(len(frame)) % 7 == 3
    missing = ["first_token_ns", "last_token_ns", "chunk_ns", "chunk_tokens", "output_tokens", "output_sha256"]
    edited = {
        name: pd.Series([None if bad else value for bad, value in zip(failed, frame[name], strict=True)], dtype=object)
        for name in missing
    }
    errors = pd.Series(["reset" if bad else None for bad in failed], dtype=object)
    return frame.assign(**edited, error_class=errors)


def unchanged(_: Point, frame: pd.DataFrame) -> pd.DataFrame:
    return frame


WORLDS: dict[str, tuple[SyntheticRun, Edit]] = {
    "two categories, with targets": (replace(SMALL, categories=("code", "chat"), slo=Slo(ttft_ms=31)), unchanged),
    "several turns, without categories": (replace(SMALL, turns=3, categories=(None,)), unchanged),
    "failures": (SMALL, failing),
    "sampled answers of three arms": (replace(SMALL, temperature=1.0, drafters=("ngram", "other")), unchanged),
    "an open loop": (replace(SMALL, rate=(20.0,), repeats=2), unchanged),
}


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, groups and files of a few rows, with boundaries at different rows."""
    monkeypatch.setattr(tidy_row_blocks, "BLOCK_ROWS", 5)
    monkeypatch.setattr(row_files, "GROUP_ROWS", 3)
    monkeypatch.setattr(point_store, "FILE_ROWS", 7)


def stored(results: Path, world: SyntheticRun, edit: Edit = unchanged, *, rows: bool) -> tuple[Plan, FolderStore]:
    plan = store_results(world, results, "made", edit=edit, rows=rows)
    return plan, FolderStore(results / run_root(plan.namespace, plan.name, plan.uid))


@pytest.mark.runs
@pytest.mark.usefixtures("small_files", "undrawn")
@pytest.mark.parametrize("name", ["two categories, with targets", "sampled answers of three arms"])
def test_the_summary_from_tidy_rows_equals_that_from_records(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, edit = WORLDS[name]
    plan, from_records = stored(tmp_path / "records", world, edit, rows=False)
    _, from_rows = stored(tmp_path / "rows", world, edit, rows=True)
    expected = conclude(plan, from_records, CLOCK, slo=world.slo).to_json()
    if world.temperature == 0:  # sampled answers are compared by their texts, which only records contain
        monkeypatch.delattr(StoredRecords, "__getitem__")

    assert conclude(plan, from_rows, CLOCK, slo=world.slo).to_json() == expected


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("name", WORLDS)
def test_stored_rows_are_those_of_the_records_bit_for_bit(name: str, tmp_path: Path) -> None:
    plan, store = stored(tmp_path, *WORLDS[name], rows=True)
    points = PointStore(store, tmp_path)
    for point, manifest in points.manifests([point.hash for point in plan.points]).items():
        found = points.read_rows(manifest, tidy_schema())
        assert found is not None
        computed = stored_columns(tidy(points.read_columns(manifest, COLUMNS), point))
        assert_same_table(join_tables([Table(part) for part in found]), Table(computed))


@pytest.mark.runs
@pytest.mark.usefixtures("undrawn")
def test_rows_of_another_version_are_computed_from_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store = stored(tmp_path, SMALL, rows=True)
    expected = conclude(plan, store, CLOCK)
    monkeypatch.setattr(layout, "ROWS_VERSION", "v9")
    monkeypatch.setattr(row_files, "rows_from_parquet", partial(pytest.fail, "it read rows of another version"))

    assert conclude(plan, store, CLOCK) == expected


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def other_columns(path: Path) -> None:
    path.write_bytes(row_files.rows_to_parquet({"tokens": np.ones(1)}))


@pytest.mark.parametrize("damage", [truncate, Path.unlink, other_columns])
def test_conclude_rejects_damaged_rows(damage: Callable[[Path], object], tmp_path: Path) -> None:
    plan, store = stored(tmp_path, SMALL, rows=True)
    first = rows_prefix(plan.points[0].hash)
    damage(Path(store.uri(next(key for key in store.keys(first)))))

    with pytest.raises(NotDurable, match="/rows/v2-") as caught:
        conclude(plan, store, CLOCK)

    assert caught.value.reason == "Damaged"
    assert store.get("summary.json") is None


def test_a_point_without_requests_has_a_file_without_rows(tmp_path: Path) -> None:
    points = PointStore(FolderStore(tmp_path), tmp_path)
    (file,) = points.put_rows("a" * 64, "1", stored_columns(tidy([])))
    assert file.rows == 0
    parts = row_files.rows_from_parquet(points.store.get(file.key) or b"", tidy_schema())
    assert sum(len(Table(part)) for part in parts) == 0
