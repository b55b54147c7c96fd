"""Folder store: errors of a real file system."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_client.errors import NotDurable
from specbench_client.store.folder import FolderStore

UNPRIVILEGED_UID = 65534


@contextmanager
def without_root() -> Iterator[None]:
    """Run the block as a user to whom permissions apply."""
    original_uid = os.geteuid()
    if original_uid == 0:
        os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        os.seteuid(original_uid)


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """Make the kernel reject writing more than this into one file, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that is readable but not writable."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        yield Path(folder)
        Path(folder).chmod(0o755)


def test_read_only_folder_is_rejected_with_a_remedy(read_only: Path) -> None:
    with without_root(), pytest.raises(NotDurable, match="choose another folder or change its owner") as caught:
        FolderStore(read_only).put("plan.json", b"x")

    assert caught.value.reason == "NotWritable"


def test_file_in_place_of_a_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")

    with pytest.raises(NotDurable) as caught:
        FolderStore(tmp_path / "results").put("points/a/manifest.json", b"x")

    assert caught.value.reason == "NotWritable"


def test_full_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    with limited_file_size(1000), pytest.raises(NotDurable, match="free some space") as caught:
        store.put("part.parquet", bytes(2000))
    with limited_file_size(1000), pytest.raises(NotDurable):
        store.replace("progress.json", bytes(2000))

    assert caught.value.reason == "DiskFull"
    assert list(tmp_path.iterdir()) == []


def test_upload_that_filled_the_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    upload = FolderStore(tmp_path).start_upload("records.parquet")
    with limited_file_size(1000):
        upload.add(bytes(2000))  # stays in the buffer
        with pytest.raises(NotDurable, match="free some space"):
            upload.add(bytes(1_000_000))
        upload.abort()

    assert list(tmp_path.iterdir()) == []


def test_partial_file_of_a_killed_client_is_not_an_object(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("points/a/manifest.json", b"x")
    (tmp_path / "points" / "a" / ".incoming-abc").write_bytes(b"half")

    assert store.keys() == ["points/a/manifest.json"]


def test_objects_are_readable_by_other_users(tmp_path: Path) -> None:
    FolderStore(tmp_path).put("plan.json", b"x")

    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o644


@pytest.mark.parametrize("key", ["", "../plan.json", "a//b", "/etc/passwd", "a/.hidden"])
def test_invalid_key_raises_value_error(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="is not a valid key"):
        FolderStore(tmp_path).put(key, b"x")


@pytest.mark.parametrize("prefix", ["../evil", "runs/../../evil", "/etc", "runs//x", ""])
def test_prefix_cannot_leave_the_folder(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a valid key"):
        FolderStore(tmp_path / "results").below(prefix)
