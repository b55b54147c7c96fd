"""What only a file system can do to us, from a real one."""

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

NOBODY = 65534


@contextmanager
def without_root() -> Iterator[None]:
    """As a user to whom permissions apply."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write more than this into one file, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that everybody can read and nobody can write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        yield Path(folder)
        Path(folder).chmod(0o755)


def test_a_read_only_folder_is_refused_with_what_to_do(read_only: Path) -> None:
    with without_root(), pytest.raises(NotDurable, match="choose another folder or change its owner") as refused:
        FolderStore(read_only).put("plan.json", b"x")

    assert refused.value.reason == "NotWritable"


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")

    with pytest.raises(NotDurable) as refused:
        FolderStore(tmp_path / "results").put("points/a/manifest.json", b"x")

    assert refused.value.reason == "NotWritable"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    with files_of_at_most(1000), pytest.raises(NotDurable, match="free some space") as refused:
        store.put("part.parquet", bytes(2000))
    with files_of_at_most(1000), pytest.raises(NotDurable):
        store.replace("progress.json", bytes(2000))

    assert refused.value.reason == "DiskFull"
    assert list(tmp_path.iterdir()) == []


def test_a_half_written_file_of_a_killed_client_is_no_object(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("points/a/manifest.json", b"x")
    (tmp_path / "points" / "a" / ".incoming-abc").write_bytes(b"half")

    assert store.keys() == ["points/a/manifest.json"]


def test_objects_can_be_read_by_colleagues(tmp_path: Path) -> None:
    FolderStore(tmp_path).put("plan.json", b"x")

    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o644


@pytest.mark.parametrize("key", ["", "../plan.json", "a//b", "/etc/passwd", "a/.hidden"])
def test_what_is_no_key_is_a_bug_of_the_caller(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="is not a valid key"):
        FolderStore(tmp_path).put(key, b"x")


@pytest.mark.parametrize("prefix", ["../evil", "runs/../../evil", "/etc", "runs//x", ""])
def test_no_prefix_leads_out_of_the_folder(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a valid key"):
        FolderStore(tmp_path / "results").below(prefix)
