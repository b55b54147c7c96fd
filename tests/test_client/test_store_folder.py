"""Folder stores: atomic files, locks, retries, and what every store does."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from specbench_client.errors import BadInput, NotDurable
from specbench_client.local.local_runs import exclusive_run
from specbench_client.store.folder import FolderStore, exclusive_lock
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.s3 import S3Store
from specbench_client.store.store import Store, StoreErrorReason
from specbench_testing.faulty_stores import RejectingStore
from specbench_testing.synthetic_records import SyntheticRun

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


def test_retrying_ends_at_the_deadline_with_an_error(tmp_path: Path) -> None:
    now = [0.0]

    def pause(seconds: float) -> bool:
        now[0] += seconds
        return False

    store = RejectingStore(FolderStore(tmp_path), [("a", StoreErrorReason.AWAY)] * 100)
    patience = RetryPolicy(deadline_s=60, pause_s=pause, monotonic_s=lambda: now[0])

    with pytest.raises(NotDurable, match="given up after 60 s") as caught:
        RetryingStore(store, patience).put("a", b"x")

    assert caught.value.reason == "S3Away"


def test_permanent_error_is_not_retried(tmp_path: Path) -> None:
    store = RejectingStore(FolderStore(tmp_path), [("a", StoreErrorReason.BUCKET_MISSING)])

    with pytest.raises(NotDurable) as caught:
        RetryingStore(store, RetryPolicy(pause_s=lambda _: pytest.fail("waited"))).put("a", b"x")

    assert caught.value.reason == "BucketMissing"


def test_retrying_can_be_interrupted(tmp_path: Path) -> None:
    store = RejectingStore(FolderStore(tmp_path), [("a", StoreErrorReason.AWAY)] * 2)

    with pytest.raises(NotDurable):
        RetryingStore(store, RetryPolicy(pause_s=lambda _: True)).put("a", b"x")

    assert len(store.refusals) == 1


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


PART = bytes(range(256)) * 20_480  # 5 MiB, the least of S3


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FolderStore(tmp_path / "results") if request.param == "folder" else request.getfixturevalue("s3_store")


@pytest.mark.parametrize("data", [b"{}", b""], ids=["small", "empty"])
def test_object_is_created_once_and_read_as_it_was_put(store: Store, data: bytes) -> None:
    """The same content may be put again; another is a conflict, and changes nothing."""
    store.put("a/b.json", data)
    store.put("a/b.json", data)
    with pytest.raises(NotDurable, match="already exists with other content") as caught:
        store.put("a/b.json", data[::-1] + b"x")
    assert caught.value.reason == "Conflict"
    assert store.get("a/b.json") == data


def test_get_of_a_missing_object_returns_none(store: Store) -> None:
    store.put("a/b.json", b"{}")

    assert store.get("a/c.json") is None
    assert store.get("a") is None
    assert store.get("a/b.json/c") is None


def test_opened_object_is_a_file_with_its_content(store: Store) -> None:
    store.put("a/b.parquet", b"content")
    found = store.open("a/b.parquet")
    assert found is not None
    with found:
        assert (found.read(), found.seek(2), found.read()) == (b"content", 2, b"ntent")
    assert store.open("a/c.parquet") is None


def test_upload_is_an_object_once_it_is_complete(store: Store) -> None:
    upload = store.start_upload("a/b.parquet")
    for part in (PART, PART, b"rest"):
        upload.add(part)
        assert store.keys() == []
    upload.complete()
    assert store.get("a/b.parquet") == PART + PART + b"rest"


def test_upload_does_not_replace_an_object(store: Store) -> None:
    uploads = [store.start_upload("a/b.parquet") for _ in range(2)]
    for upload, content in zip(uploads, (b"first", b"second"), strict=True):
        upload.add(content)
    uploads[0].complete()
    with pytest.raises(NotDurable, match="already exists with other content") as caught:
        uploads[1].complete()
    uploads[1].abort()
    assert caught.value.reason == "Conflict"
    assert store.get("a/b.parquet") == b"first"


def test_uploads_of_killed_processes_are_discarded_by_their_prefix(store: Store) -> None:
    killed, other = store.start_upload("a/0-killed.parquet"), store.start_upload("a/1-running.parquet")
    for upload in (killed, other):
        upload.add(b"content")

    store.abort_uploads("a/0-")

    with pytest.raises(NotDurable, match=r"another client.* run again") as caught:
        killed.complete()
    assert caught.value.reason == "StoreRefused"
    killed.abort()
    other.complete()
    assert store.keys() == ["a/1-running.parquet"]
    store.abort_uploads("other/")


def test_exactly_one_of_many_concurrent_writers_wins(store: Store) -> None:
    def attempt(number: int) -> str:
        try:
            store.put("manifest.json", b"%d" % number)
        except NotDurable as conflict:
            return conflict.reason
        return "won"

    with ThreadPoolExecutor(8) as writers:
        outcomes = list(writers.map(attempt, range(8)))

    assert sorted(outcomes) == ["Conflict"] * 7 + ["won"]
    assert store.get("manifest.json") == b"%d" % outcomes.index("won")


def test_replace_creates_and_replaces(store: Store) -> None:
    store.replace("progress.json", b"1")
    store.replace("progress.json", b"2")

    assert store.get("progress.json") == b"2"


def test_keys_are_listed_by_prefix_and_sorted(store: Store) -> None:
    for key in ("points/b/manifest.json", "points/a/records/0-a.parquet", "plan.json", "pointless.json"):
        store.put(key, b"x")

    assert store.keys("points/") == ["points/a/records/0-a.parquet", "points/b/manifest.json"]
    assert store.keys("point") == ["pointless.json", "points/a/records/0-a.parquet", "points/b/manifest.json"]
    assert store.keys() == sorted(["plan.json", "pointless.json", *store.keys("points/")])
    assert store.keys("nothing/") == []


def test_more_keys_than_one_page_of_a_listing_are_listed(store: Store) -> None:
    with ThreadPoolExecutor(16) as writers:
        list(writers.map(lambda number: store.put(f"many/{number:04d}", b""), range(1005)))

    assert len(store.keys("many/")) == 1005


def test_store_below_a_prefix_has_its_own_keys(store: Store) -> None:
    below = store.below("runs/local/x/1")
    below.put("plan.json", b"p")

    assert store.get("runs/local/x/1/plan.json") == b"p"
    assert below.keys() == ["plan.json"]
    assert below.uri("plan.json") == store.uri("runs/local/x/1/plan.json")
    assert below.uri() == store.uri("runs/local/x/1")
