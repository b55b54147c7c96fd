"""Records → Parquet parts → spool → store, in the background, so that the stopwatch's thread only enqueues.

Two threads: one closes a part every few seconds or two thousand rows and writes it into the spool (a folder on this
machine's disk), one uploads what is spooled, in order, and waits out a server that is away. So memory holds one open
part whatever S3 does, and a part that S3 has not taken yet is on disk. A part stays in the spool until its point is
committed or given up: the point's summary is made from it without asking S3 for what was just sent.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import pandas as pd

from specbench_api.outcome.layout import part_key
from specbench_api.outcome.manifest import StoredFile
from specbench_api.outcome.record import Record
from specbench_client.errors import NotDurable
from specbench_client.store.columns import to_frame, to_parquet
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Refusal, Store


@dataclass(frozen=True)
class PartLimits:
    """When a part is closed."""

    rows: int = 2000
    seconds: float = 5.0
    monotonic_s: Callable[[], float] = time.monotonic


class PartsWriter:
    """The records of one attempt at one point. `add` from one thread; `flush` blocks until all parts are stored."""

    def __init__(self, store: Store, spool: Path, point: str, attempt: str, limits: PartLimits) -> None:
        self._store = store
        self._folder = spool / point
        self._spool = FolderStore(self._folder)
        self._point, self._attempt, self._limits = point, attempt, limits
        self._records: SimpleQueue[Record | None] = SimpleQueue()
        self._spooled: SimpleQueue[StoredFile | None] = SimpleQueue()
        self._files: list[StoredFile] = []
        self._stored: list[StoredFile] = []
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=work.__name__, daemon=True)
            for work in (self._spool_parts, self._store_parts)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, record: Record) -> None:
        """Take a record. Raises NotDurable as soon as an earlier part could not be stored."""
        self._raise_failure()
        self._records.put(record)

    def flush(self) -> list[StoredFile]:
        """Close the last part, wait for every upload, and tell what is stored. Nothing can be added afterwards."""
        self._records.put(None)
        for thread in self._threads:
            thread.join()
        self._raise_failure()
        return list(self._stored)

    def abandon(self, patience_s: float) -> None:
        """The point will not be committed: store what is there within the time given, then forget it."""
        self._records.put(None)
        deadline_s = self._limits.monotonic_s() + patience_s
        for thread in self._threads:
            thread.join(max(deadline_s - self._limits.monotonic_s(), 0))
        self.discard_spool()

    def frames(self, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """Every record, read back from the spool part by part; after `flush`. `columns`: those wanted, else all."""
        return (to_frame(self._spooled_bytes(file), columns) for file in self._files)

    def discard_spool(self) -> None:
        """Give the disk back: the point is committed, or given up."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _guard(self, work: Callable[[], None]) -> None:
        """A thread's failure is the writer's: the next `add` or `flush` raises it."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- handed over to the caller's thread
            self._failure = self._failure or error
            self._spooled.put(None)

    def _spool_parts(self) -> None:
        for number, records in enumerate(_parts(self._records, self._limits)):
            data = to_parquet(records)
            key = part_key(self._point, self._attempt, number)
            self._spool.put(key, data)
            file = StoredFile(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=len(records))
            self._files.append(file)
            self._spooled.put(file)
        self._spooled.put(None)

    def _store_parts(self) -> None:
        while (file := self._spooled.get()) is not None:
            self._store.put(file.key, self._spooled_bytes(file))
            self._stored.append(file)

    def _spooled_bytes(self, file: StoredFile) -> bytes:
        data = self._spool.get(file.key)
        if data is None:
            raise NotDurable(f"{self._spool.uri(file.key)} has vanished from the spool", Refusal.DAMAGED)
        return data


def _parts(records: SimpleQueue[Record | None], limits: PartLimits) -> Iterator[list[Record]]:
    """What arrives, cut into parts by number and age; ends at None."""
    part: list[Record] = []
    closes_s = 0.0
    while True:
        try:
            record = records.get(timeout=max(closes_s - limits.monotonic_s(), 0) if part else None)
        except Empty:
            yield part
            part = []
            continue
        if record is None:
            break
        closes_s = closes_s if part else limits.monotonic_s() + limits.seconds
        part.append(record)
        if len(part) >= limits.rows or limits.monotonic_s() >= closes_s:
            yield part
            part = []
    if part:
        yield part
