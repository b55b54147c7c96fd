"""Stores that behave badly on purpose, around ones that do not."""

from __future__ import annotations

import threading

from specbench_client.errors import NotDurable
from specbench_client.store.store import Refusal, Store


class Obstinate:
    """A store that refuses to create what its list names, and lets all else through: a server on a bad day."""

    def __init__(self, store: Store, refusals: list[tuple[str, Refusal]]) -> None:
        self._store = store
        self.refusals = refusals
        self.stored = threading.Event()

    def put(self, key: str, data: bytes) -> None:
        for index, (part, reason) in enumerate(self.refusals):
            if part in key:
                del self.refusals[index]
                raise NotDurable(f"{key} refused", reason)
        self._store.put(key, data)
        self.stored.set()

    def replace(self, key: str, data: bytes) -> None:
        self._store.replace(key, data)

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def keys(self, prefix: str = "") -> list[str]:
        return self._store.keys(prefix)

    def uri(self, key: str = "") -> str:
        return self._store.uri(key)

    def below(self, prefix: str) -> Store:
        return self._store.below(prefix)
