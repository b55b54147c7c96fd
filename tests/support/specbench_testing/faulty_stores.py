"""Stores with injected faults, wrapped around working ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from specbench_client.errors import NotDurable
from specbench_client.store.store import Store, StoreErrorReason, Upload


class DelegatingStore:
    """A store that passes all calls through."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)

    def replace(self, key: str, data: bytes) -> None:
        self._store.replace(key, data)

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def open(self, key: str) -> BinaryIO | None:
        return self._store.open(key)

    def start_upload(self, key: str) -> Upload:
        return self._store.start_upload(key)

    def abort_uploads(self, prefix: str) -> None:
        self._store.abort_uploads(prefix)

    def remove(self, key: str) -> bool:
        return self._store.remove(key)

    def keys(self, prefix: str = "") -> list[str]:
        return self._store.keys(prefix)

    def uri(self, key: str = "") -> str:
        return self._store.uri(key)

    def below(self, prefix: str) -> Store:
        return self._store.below(prefix)


class RejectingStore(DelegatingStore):
    """A store that refuses to write the listed keys, once each."""

    def __init__(self, store: Store, refusals: list[tuple[str, StoreErrorReason]]) -> None:
        super().__init__(store)
        self.refusals = refusals

    def put(self, key: str, data: bytes) -> None:
        self._refuse(key)
        super().put(key, data)

    def replace(self, key: str, data: bytes) -> None:
        self._refuse(key)
        super().replace(key, data)

    def _refuse(self, key: str) -> None:
        for index, (part, reason) in enumerate(self.refusals):
            if part in key:
                del self.refusals[index]
                raise NotDurable(f"{key} refused", reason)


class InterferingStore(DelegatingStore):
    """A store that calls `act` right before a name is first written, like a concurrent writer."""

    def __init__(self, store: Store, name: str, act: Callable[[], object]) -> None:
        super().__init__(store)
        self._name, self._act = name, act
        self._happened = False

    def put(self, key: str, data: bytes) -> None:
        self._happen(key)
        super().put(key, data)

    def replace(self, key: str, data: bytes) -> None:
        self._happen(key)
        super().replace(key, data)

    def _happen(self, key: str) -> None:
        if key.endswith(self._name) and not self._happened:
            self._happened = True
            self._act()
