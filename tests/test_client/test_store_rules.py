"""Rules of every store: one suite for a folder and for a real S3 server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from specbench_client.errors import NotDurable
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Store

BIG = bytes(range(256)) * 50_000  # 12.8 MB: three parts of a multipart upload


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FolderStore(tmp_path / "results") if request.param == "folder" else request.getfixturevalue("s3_store")


@pytest.mark.parametrize("data", [b"{}", b"", BIG], ids=["small", "empty", "large"])
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


def test_removed_object_does_not_exist_and_may_be_removed_again(store: Store) -> None:
    store.put("a/b.parquet", b"1")
    store.put("a/c.parquet", b"2")

    for key in ("a/b.parquet", "a/b.parquet", "other/d.parquet", "a/c.parquet/e"):
        store.remove(key)

    assert store.keys("") == ["a/c.parquet"]


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
    for key in ("points/b/manifest.json", "points/a/records/part-0.parquet", "plan.json", "pointless.json"):
        store.put(key, b"x")

    assert store.keys("points/") == ["points/a/records/part-0.parquet", "points/b/manifest.json"]
    assert store.keys("point") == ["pointless.json", "points/a/records/part-0.parquet", "points/b/manifest.json"]
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
