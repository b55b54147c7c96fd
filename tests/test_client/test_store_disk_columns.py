"""Columns on disk: they are read back unchanged, no file is left, and a full disk is reported."""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest

from specbench_client.errors import NotDurable
from specbench_client.store.scratch import DiskColumnStore
from specbench_client.store.store import StoreErrorReason


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_columns_are_read_in_any_order_with_their_types(temporary: Path) -> None:
    column_store = DiskColumnStore()
    columns = [np.array([1.5, np.nan]), np.array([True, False, True]), np.empty(0, np.int32), np.arange(9)[::2]]
    slots = [column_store.put(column) for column in columns]
    for slot, column in reversed(list(zip(slots, columns, strict=True))):
        np.testing.assert_array_equal(slot.read(), column)
        assert slot.read().dtype == column.dtype
    assert list(temporary.iterdir()) == []


def test_file_is_deleted_with_the_last_slot() -> None:
    column_store = DiskColumnStore()
    slot = column_store.put(np.arange(3))
    file = weakref.ref(column_store._file)
    del column_store
    assert slot.read().tolist() == [0, 1, 2]
    assert file() is not None
    del slot
    assert file() is None


def test_full_disk_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(NotDurable, match=r"No space left on device.*TMPDIR") as caught:
        DiskColumnStore().put(np.arange(3))
    assert caught.value.reason == StoreErrorReason.DISK_FULL
    assert str(temporary) in str(caught.value)


def test_partial_write_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: whole(file, bytes(data)[:3], at))
    assert DiskColumnStore().put(np.arange(5)).read().tolist() == [0, 1, 2, 3, 4]
