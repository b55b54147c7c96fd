"""Scratch folders, removed at the end or at the next start after a kill, and columns on disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from specbench_client.errors import NotDurable
from specbench_client.store.scratch import arrays_on_disk, scratch_folder
from specbench_client.store.store import StoreErrorReason

OWNER = """
from specbench_client.store.scratch import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def other_owner(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a process that has a scratch folder until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(temporary), "PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_scratch_folder_exists_only_within_its_block(temporary: Path) -> None:
    with scratch_folder() as folder:
        (folder / "spool").mkdir()
        assert folder.parent == temporary

    assert list(temporary.iterdir()) == []


def test_scratch_folder_of_a_killed_process_is_removed_at_the_next_start(temporary: Path) -> None:
    with other_owner(temporary) as (process, folder):
        (folder / "part.parquet").write_bytes(b"x")
        process.kill()
        process.wait()
        assert folder.exists()

        with scratch_folder():
            assert not folder.exists()


def test_scratch_folder_of_a_running_process_is_kept(temporary: Path) -> None:
    with other_owner(temporary) as (_, folder), scratch_folder() as mine, scratch_folder() as within:
        assert folder.exists()
        assert mine.exists()
        assert within.exists()


def test_unknown_folder_is_kept(temporary: Path) -> None:
    unknown = temporary / "specbench-notes"
    unknown.mkdir()

    with scratch_folder():
        pass

    assert unknown.exists()


def test_columns_are_read_in_any_order_with_their_types(temporary: Path) -> None:
    store = arrays_on_disk()
    columns = [np.array([1.5, np.nan]), np.array([True, False, True]), np.empty(0, np.int32), np.arange(9)[::2]]
    stored = [store(column) for column in columns]
    for read, column in reversed(list(zip(stored, columns, strict=True))):
        np.testing.assert_array_equal(read(), column)
        assert read().dtype == column.dtype
    assert list(temporary.iterdir()) == []


def open_files(folder: Path) -> int:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(str(link.readlink()).startswith(str(folder)) for link in links)


def test_file_is_deleted_with_the_last_array(temporary: Path) -> None:
    store = arrays_on_disk()
    read = store(np.arange(3))
    del store
    assert read().tolist() == [0, 1, 2]
    assert open_files(temporary) == 1
    del read
    assert open_files(temporary) == 0


def test_full_disk_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(NotDurable, match=r"No space left on device.*TMPDIR") as caught:
        arrays_on_disk()(np.arange(3))
    assert caught.value.reason == StoreErrorReason.DISK_FULL
    assert str(temporary) in str(caught.value)


def test_partial_write_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: whole(file, bytes(data)[:3], at))
    assert arrays_on_disk()(np.arange(5))().tolist() == [0, 1, 2, 3, 4]
