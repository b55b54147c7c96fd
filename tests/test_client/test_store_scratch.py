"""Scratch folders: removed at the end, or at the next start after a kill."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_client.store.scratch import scratch_folder

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
