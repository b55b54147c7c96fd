"""Compaction: the dataset has every record of the measured points once, whenever the process is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench_api.outcome.layout import compaction_key, dataset_key, part_key, records_prefix
from specbench_api.outcome.record import Record
from specbench_api.plan.plan import Plan
from specbench_client.errors import NotDurable
from specbench_client.store import compaction as compaction_module
from specbench_client.store.compaction import DATASET_SCHEMA, compact_point
from specbench_client.store.folder import FolderStore
from specbench_client.store.points import PointStore
from specbench_client.store.records import PartLimits, to_table
from specbench_client.store.store import Store, StoreErrorReason
from specbench_testing.faulty_stores import DelegatingStore
from specbench_testing.local_results import OBSERVED, SPAN
from specbench_testing.synthetic_records import ONE, SyntheticRun, point_of

WORLD = SyntheticRun(prompts=4, categories=ONE, repeats=1)


class Killed(BaseException):
    """The process was killed."""


class KillingStore(DelegatingStore):
    """A store whose process is killed at the n-th write, before or after the write."""

    def __init__(self, store: Store, write: int, *, after: bool) -> None:
        super().__init__(store)
        self.left, self.after = write, after

    def put(self, key: str, data: bytes) -> None:
        self._write(lambda: self._store.put(key, data))

    def remove(self, key: str) -> None:
        self._write(lambda: self._store.remove(key))

    def _write(self, act: Callable[[], None]) -> None:
        self.left -= 1
        if self.left > 0:
            act()
        elif self.left == 0:
            if self.after:
                act()
            raise Killed


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of one or two parts, and several files per point."""
    monkeypatch.setattr(compaction_module, "GROUP_BYTES", 4_000)
    monkeypatch.setattr(compaction_module, "PART_ROWS_MAX", 5)


def measured(folder: Path) -> tuple[Plan, FolderStore]:
    """Store a run of two points in parts of two records, and a part of a killed attempt at one of them."""
    plan, store = WORLD.plan, FolderStore(folder)
    points = PointStore(store, folder.parent / "spool", PartLimits(rows=2))
    for point in plan.points:
        summary, frame = point_of(WORLD, point)
        writer = points.open(point.hash, "a")
        for row in frame.to_dict("records"):
            writer.add(Record(**{str(name): value for name, value in row.items()}))
        points.commit(summary, "a", writer.flush(), SPAN, OBSERVED)
    killed, first = part_key(plan.points[0].hash, "killed", 0), part_key(plan.points[0].hash, "a", 0)
    store.put(killed, store.get(first) or b"")
    return plan, store


def compact(plan: Plan, store: Store) -> None:
    points = PointStore(store, Path())
    for hash_, manifest in points.manifests([point.hash for point in plan.points]).items():
        compact_point(points, next(point for point in plan.points if point.hash == hash_), manifest)


def ids_of_points(plan: Plan, store: Store) -> list[str]:
    points = PointStore(store, Path())
    manifests = points.manifests([point.hash for point in plan.points])
    return [name for one in manifests.values() for frame in points.read_columns(one) for name in frame["request_id"]]


def ids_of_glob(store: Store) -> list[str]:
    """Return the ids of the requests in the dataset, as any reader of its files finds them."""
    keys = (key for key in store.keys("records/") if key.endswith(".parquet"))
    return [name for key in keys for name in pq.read_table(store.uri(key), partitioning=None)["request_id"].to_pylist()]


def contents(store: Store) -> dict[str, bytes | None]:
    return {key: store.get(key) for key in store.keys("")}


def test_the_dataset_has_each_record_once_and_replaces_the_parts(tmp_path: Path) -> None:
    plan, store = measured(tmp_path / "run")
    before = ids_of_points(plan, store)

    compact(plan, store)

    first = plan.points[0]
    assert len(store.keys(f"records/arm={first.arm}/workload={first.workload}/{first.hash}-")) > 1
    assert sorted(ids_of_glob(store)) == sorted(before)
    assert ids_of_points(plan, store) == before
    assert store.keys(records_prefix(first.hash)) == [part_key(first.hash, "killed", 0)]
    kept = [(tmp_path / "run" / records_prefix(point.hash)).exists() for point in plan.points]
    assert kept == [True, False], "only the folder with a part of the killed attempt"
    table = pa.concat_tables(pq.read_table(store.uri(key), partitioning=None) for key in store.keys("records/"))
    assert table.schema.equals(DATASET_SCHEMA)
    assert set(table["load"].to_pylist()) == {"1"}


@pytest.mark.draws
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
def test_a_kill_at_any_write_loses_and_repeats_no_record(tmp_path: Path, after: bool) -> None:
    plan, store = measured(tmp_path / "whole")
    expected = ids_of_points(plan, store)
    compact(plan, store)
    whole = contents(store)
    for write in range(1, 100):
        plan, store = measured(tmp_path / f"killed-{write}")
        try:
            compact(plan, KillingStore(store, write, after=after))
        except Killed:
            assert ids_of_points(plan, store) == expected
            assert len(set(ids_of_glob(store))) == len(ids_of_glob(store))
            compact(plan, store)
            assert contents(store) == whole
        else:
            assert write == 1 + 2 * (2 + 1 + 3), "for each of two points: two files, their list, three parts removed"
            return
    pytest.fail("compaction did not end")


def test_a_reader_continues_in_the_compacted_files_when_its_parts_are_removed(tmp_path: Path) -> None:
    plan, store = measured(tmp_path / "run")
    points, point = PointStore(store, Path()), plan.points[0]
    manifest = points.manifest(point.hash)
    assert manifest is not None
    expected = [name for frame in points.read_columns(manifest) for name in frame["request_id"]]
    reading = points.read_columns(manifest)
    found = [*next(reading)["request_id"], *next(reading)["request_id"], *next(reading)["request_id"]]

    compact(plan, store)

    assert found + [name for frame in reading for name in frame["request_id"]] == expected


class NeverRemovingStore(DelegatingStore):
    """A store whose credentials may not remove objects."""

    def remove(self, key: str) -> None:
        raise NotDurable(f"{key}: access denied", StoreErrorReason.CREDENTIALS_REFUSED)


def test_parts_stay_where_the_store_refuses_to_remove_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plan, store = measured(tmp_path / "run")
    before = ids_of_points(plan, store)

    compact(plan, NeverRemovingStore(store))

    assert sorted(ids_of_glob(store)) == sorted(before)
    assert ids_of_points(plan, store) == before
    assert "compacted parts are kept" in caplog.text


def test_a_file_of_another_writer_with_the_same_rows_is_accepted(tmp_path: Path) -> None:
    plan, store = measured(tmp_path / "run")
    compact(plan, store)
    expected, first = sorted(ids_of_glob(store)), plan.points[0]
    key = dataset_key(first.arm, first.workload, first.hash, 0)
    plan, store = measured(tmp_path / "again")
    theirs = pq.read_table(tmp_path / "run" / key, partitioning=None)
    (tmp_path / "again" / key).parent.mkdir(parents=True)
    pq.write_table(theirs, tmp_path / "again" / key, compression="gzip")

    compact(plan, store)

    assert sorted(ids_of_glob(store)) == expected
    assert to_table(store.get(key) or b"").equals(to_table((tmp_path / "run" / key).read_bytes()))


@pytest.mark.parametrize("number", [0, 99], ids=["other rows", "one file too many"])
def test_a_file_with_other_rows_is_an_error(tmp_path: Path, number: int) -> None:
    plan, store = measured(tmp_path / "run")
    first, last = plan.points[0], plan.points[-1]
    key = dataset_key(first.arm, first.workload, first.hash, number)
    store.put(key, store.get(part_key(last.hash, "a", 0)) or b"")
    before = ids_of_points(plan, store)

    with pytest.raises(NotDurable, match="remove it and run again") as caught:
        compact(plan, store)

    assert caught.value.reason == StoreErrorReason.CONFLICT
    assert store.get(compaction_key(first.hash)) is None
    assert ids_of_points(plan, store) == before


def test_a_damaged_file_of_the_dataset_is_reported(tmp_path: Path) -> None:
    plan, store = measured(tmp_path / "run")
    compact(plan, store)
    path = Path(store.uri(next(key for key in store.keys("records/"))))
    path.write_bytes(path.read_bytes()[:-10])

    with pytest.raises(NotDurable) as caught:
        compact(plan, store)

    assert caught.value.reason == StoreErrorReason.DAMAGED


def test_a_list_of_another_points_files_is_rejected(tmp_path: Path) -> None:
    plan, store = measured(tmp_path / "run")
    compact(plan, store)
    first, last = (compaction_key(point.hash) for point in (plan.points[0], plan.points[-1]))
    text = (
        (store.get(first) or b"")
        .decode()
        .replace(f'"hash":"{plan.points[0].hash}"', f'"hash":"{plan.points[-1].hash}"')
    )
    store.replace(last, text.encode())

    with pytest.raises(NotDurable, match="another point"):
        ids_of_points(plan, store)
