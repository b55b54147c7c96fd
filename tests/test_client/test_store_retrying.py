"""Retry policy of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench_client.errors import NotDurable
from specbench_client.store.folder import FolderStore
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.store import StoreErrorReason
from specbench_testing.faulty_stores import RejectingStore


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
