"""RetryingStore: a store that repeats operations while its server is unavailable, within a deadline."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from specbench_client.errors import NotDurable
from specbench_client.store.store import Store, StoreErrorReason, Upload

_log = logging.getLogger(__name__)


T = TypeVar("T")

STORE_PATIENCE_S = 600.0
"""How long an operation is retried while the store is unavailable."""


@dataclass(frozen=True)
class RetryPolicy:
    """How long to retry. Pauses double from `first_pause_s` to `longest_pause_s`.

    `pause_s` sleeps for a number of seconds and returns whether waiting was cancelled, like `threading.Event.wait`.
    """

    deadline_s: float = STORE_PATIENCE_S
    first_pause_s: float = 0.5
    longest_pause_s: float = 15.0
    monotonic_s: Callable[[], float] = time.monotonic
    pause_s: Callable[[float], bool] = field(default_factory=lambda: threading.Event().wait)


class RetryingStore:
    """Retries the operations of a store while its server is unavailable. Blocks: never use it on the event loop.

    Other failures, such as wrong credentials or a full disk, are not retried: waiting does not fix them, and an engine
    that costs money would be idle meanwhile. The deadline counts from the first failure of an operation.
    """

    def __init__(self, store: Store, policy: RetryPolicy) -> None:
        self._store = store
        self._policy = policy

    def put(self, key: str, data: bytes) -> None:
        self._retry(lambda: self._store.put(key, data), key)

    def replace(self, key: str, data: bytes) -> None:
        self._retry(lambda: self._store.replace(key, data), key)

    def get(self, key: str) -> bytes | None:
        return self._retry(lambda: self._store.get(key), key)

    def open(self, key: str) -> BinaryIO | None:
        return self._retry(lambda: self._store.open(key), key)

    def start_upload(self, key: str) -> Upload:
        upload = self._retry(lambda: self._store.start_upload(key), key)
        return _RetryingUpload(upload, lambda act: self._retry(act, key))

    def abort_uploads(self, prefix: str) -> None:
        self._retry(lambda: self._store.abort_uploads(prefix), prefix)

    def remove(self, key: str) -> bool:
        return self._retry(lambda: self._store.remove(key), key)

    def keys(self, prefix: str = "") -> list[str]:
        return self._retry(lambda: self._store.keys(prefix), prefix)

    def uri(self, key: str = "") -> str:
        return self._store.uri(key)

    def below(self, prefix: str) -> RetryingStore:
        return RetryingStore(self._store.below(prefix), self._policy)

    def _retry(self, act: Callable[[], T], key: str) -> T:
        policy, started, pause = self._policy, None, self._policy.first_pause_s
        while True:
            try:
                return act()
            except NotDurable as error:
                if error.reason != StoreErrorReason.AWAY:
                    raise
                now = policy.monotonic_s()
                started = now if started is None else started
                left = started + policy.deadline_s - now
                if left <= 0:
                    message = f"{self._store.uri(key)}: given up after {now - started:.0f} s: {error}"
                    raise NotDurable(message, StoreErrorReason.AWAY) from error
                _log.warning("%s: retrying in %.1f s: %s", self._store.uri(key), min(pause, left), error)
                if policy.pause_s(min(pause, left)):
                    raise
            pause = min(pause * 2, policy.longest_pause_s)


@dataclass(frozen=True)
class _RetryingUpload:
    """An upload whose steps are retried."""

    upload: Upload
    retry: Callable[[Callable[[], None]], None]

    def add(self, part: bytes) -> None:
        self.retry(lambda: self.upload.add(part))

    def complete(self) -> None:
        self.retry(self.upload.complete)

    def abort(self) -> None:
        self.upload.abort()
