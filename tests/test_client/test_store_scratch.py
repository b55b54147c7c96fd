"""Columns on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from specbench_client.errors import NotDurable
from specbench_client.numpy_columns import Column, TextCodes
from specbench_client.store.scratch import ColumnWriter, StoredColumn
from specbench_client.store.store import StoreErrorReason
from specbench_testing.tables import arrays_of, lists_of


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def stored(*parts: Column) -> StoredColumn:
    with ColumnWriter() as writer:
        for part in parts:
            writer.append({"before": np.array([True, False, True]), "column": part})
        return writer.finish()["column"]


@pytest.mark.parametrize(
    "column",
    [
        np.array([1.5, np.nan, 2.5, 3.5]),
        np.array([True, False, True, False]),
        np.empty(0, np.int32),
        np.arange(9)[::2],
        TextCodes.of(["a", None, "b", "a"]),
        lists_of([[1, 2], None, [], [3]]),
        lists_of([[(1, 2), (3, 4)], None, [], [(5, 6)]], 2),
        lists_of([None, None]),
    ],
    ids=["numbers", "booleans", "none", "every second", "texts", "lists", "tallies", "no lists"],
)
@pytest.mark.parametrize("at", [slice(None), slice(1, 3), np.array([1, 0, 1]), np.empty(0, np.int32)])
def test_rows_are_read_as_they_were_written(column: Column, at: Any, temporary: Path) -> None:
    rows = at if isinstance(at, slice) else at[: len(column)]
    read = stored(column[:2], column[2:])
    assert len(read) == len(column)
    assert type(read[rows]) is type(column)
    for found, expected in zip(arrays_of(read[rows]), arrays_of(column[rows]), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    assert list(temporary.iterdir()) == []


def open_files(folder: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link.readlink()).startswith(str(folder)) for link in links)


def test_one_file_is_open_and_deleted_with_the_last_column(temporary: Path) -> None:
    column = stored(np.arange(3))
    found = column[:]
    assert open_files(temporary) == 1
    del column
    assert open_files(temporary) == 0
    assert np.asarray(found).tolist() == [0, 1, 2]


def test_full_disk_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    def full(**_: object) -> BinaryIO:
        return Path("/dev/full").open("w+b")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(NotDurable, match=r"No space left on device.*TMPDIR") as caught:
        stored(np.arange(3))
    assert caught.value.reason == StoreErrorReason.DISK_FULL
    assert str(temporary) in str(caught.value)
