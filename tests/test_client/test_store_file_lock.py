"""The lock of a results folder: a second process is rejected with the owner's name, and dead owners hold nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specbench_client.errors import BadInput, NotDurable
from specbench_client.local.local_runs import exclusive_run
from specbench_client.store.folder import FolderStore, exclusive_lock
from specbench_client.store.s3 import S3Store
from specbench_testing.synthetic_records import SyntheticRun

HOLDER = """
import sys
from pathlib import Path
from specbench_client.store.folder import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "process 7"):
    print("held", flush=True)
    input()
"""
PLAN = SyntheticRun().plan


def test_second_process_is_rejected_with_the_owners_name(tmp_path: Path) -> None:
    with (
        exclusive_lock(tmp_path / "a.lock", "process 7"),
        pytest.raises(BadInput, match="process 7 is running this spec") as caught,
    ):
        exclusive_lock(tmp_path / "a.lock", "process 8").__enter__()

    assert caught.value.reason == "AlreadyRunning"


def test_lock_removes_the_folders_it_created(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "out" / "runs" / "a.lock", "me"):
        assert (tmp_path / "out" / "runs" / "a.lock").exists()

    assert list(tmp_path.iterdir()) == []


def test_existing_and_new_files_stay_when_the_lock_is_removed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with exclusive_lock(tmp_path / "out" / "runs" / "x" / "a.lock", "me"):
        (tmp_path / "out" / "runs" / "plan.json").write_text("{}")

    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == ["plan.json"]


def test_killed_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(BadInput, match="process 7"):
            exclusive_lock(path, "me").__enter__()
        process.kill()
        process.wait()

    assert path.exists()
    with exclusive_lock(path, "me"):
        assert path.read_text() == "me"


def test_lock_is_never_held_twice_by_concurrent_threads(tmp_path: Path) -> None:
    inside, most, turns = threading.Semaphore(1), [], 200

    def compete(number: int) -> int:
        won = 0
        for _ in range(turns):
            try:
                with exclusive_lock(tmp_path / "out" / "a.lock", f"{number}"):
                    most.append(inside.acquire(blocking=False))
                    inside.release()
                    won += 1
            except BadInput:
                continue
        return won

    with ThreadPoolExecutor(4) as competitors:
        won = sum(competitors.map(compete, range(4)))

    assert won == len(most) > 0
    assert all(most)


def test_folder_removed_by_another_owner_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, make = tmp_path / "out", os.mkdir
    found.mkdir()

    def remove_after_mkdir(path: Path, mode: int = 0o777) -> None:
        monkeypatch.setattr(os, "mkdir", make)
        try:
            make(path, mode)
        finally:
            found.rmdir()

    monkeypatch.setattr(os, "mkdir", remove_after_mkdir)
    with exclusive_lock(found / "a.lock", "me"):
        assert (found / "a.lock").read_text() == "me"


def test_plan_runs_once_at_a_time_in_one_folder(tmp_path: Path) -> None:
    results, other = FolderStore(tmp_path / "a"), SyntheticRun(drafts=4).plan
    with (
        exclusive_run(results, PLAN, "first"),
        exclusive_run(results, other, "other"),
        exclusive_run(FolderStore(tmp_path / "b"), PLAN, "b"),
    ):
        same = PLAN.model_copy(update={"uid": "whatever it will be"})
        with pytest.raises(BadInput, match="first is running this spec"):
            exclusive_run(results, same, "second").__enter__()
        assert results.keys() == []


def test_lock_has_no_effect_in_s3(s3_store: S3Store) -> None:
    with exclusive_run(s3_store, PLAN, "first"), exclusive_run(s3_store, PLAN, "second"):
        assert s3_store.keys() == []


def test_unwritable_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(NotDurable) as caught:
        exclusive_lock(tmp_path / "file" / "a.lock", "me").__enter__()

    assert caught.value.reason == "NotWritable"
