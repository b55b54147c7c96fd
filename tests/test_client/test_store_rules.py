"""Rules of every store: one suite for a folder and for a real S3 server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specbench_client.errors import NotDurable
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Store

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
