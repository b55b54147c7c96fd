"""Stores and reads points: records during the measurement, then the summary, then the manifest that makes it a result.

A manifest is created and never replaced. It lists every file of the point with size and SHA-256; other files are not
part of the result, so files of a killed attempt need no clean-up. No file of a point is ever replaced: an attempt whose
key for the summary is taken uses another key, since the other writer may be about to commit it. A manifest that exists
but cannot be read is an error: its point is then neither a result nor missing.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
from pydantic import ValidationError

from specbench_api.outcome.layout import (
    manifest_key,
    measured_among,
    point_root,
    records_prefix,
    schedule_key,
    summary_key,
)
from specbench_api.plan.plan import Point
from specbench_client.documents.manifest import Manifest, PointProvenance, StoredFile
from specbench_client.documents.summary import PointSummary
from specbench_client.errors import NotDurable
from specbench_client.store.records import (
    RecordWriter,
    UnreadableRecords,
    iter_tables,
    schedule_to_parquet,
)
from specbench_client.store.store import Store, StoreErrorReason

READ_BYTES = 2**20
"""Bytes of a file that are in memory while it is verified."""
_READERS = 8
_VERSION = ("schemaVersion",)


@dataclass(frozen=True)
class MeasurementSpan:
    """When a point was measured: its start on both clocks, its end on the wall clock (RFC 3339)."""

    started_monotonic_ns: int
    started_wall: str
    ended_wall: str
    load_started_ns: int | None = None
    """Start of the load, from the point's start."""


@dataclass(frozen=True)
class PointStore:
    """The points of one run. `store`: the run's root."""

    store: Store

    def measured(self, points: Iterable[str]) -> set[str]:
        """Return which of these points have a manifest, without reading it."""
        return measured_among(self.store.keys("points/"), points)

    def manifests(self, points: Sequence[str]) -> dict[str, Manifest]:
        """Return the manifests of those points that have one, in the order of `points`. Raises NotDurable(Damaged)."""
        measured = self.measured(points)
        ordered = [point for point in points if point in measured]
        with ThreadPoolExecutor(_READERS, "manifests") as readers:
            manifests = list(readers.map(self.manifest, ordered))
        return {point: manifest for point, manifest in zip(ordered, manifests, strict=True) if manifest is not None}

    def manifest(self, point: str) -> Manifest | None:
        """Return the point's manifest, or None if it is not measured. Raises NotDurable(Damaged)."""
        key = manifest_key(point)
        with self._checksums_reported(point, key):
            data = self.store.get(key)
        if data is None:
            return None
        try:
            manifest = Manifest.from_json(data)
        except ValidationError as error:
            raise self._invalid_document(point, key, error) from error
        if manifest.hash != point:
            raise self._damaged(point, key, f"it belongs to the point {manifest.hash}")
        root = point_root(point)
        outside = next((file.key for file in manifest.files if not file.key.startswith(f"{root}/")), None)
        if outside is not None:
            raise self._damaged(point, key, f"it lists {outside}, which is outside of {root}")
        return manifest

    def open(self, point: Point, attempt: str) -> RecordWriter:
        """Return a writer for a new attempt at a point. The name of the attempt must not have been used before.

        Unfinished uploads of earlier attempts are discarded.
        """
        return RecordWriter(self.store, point, attempt)

    def put_schedule(self, point: str, attempt: str, intended_ns: Sequence[int], workers: int) -> StoredFile:
        """Store when conversations will begin; conversation i belongs to worker i mod `workers`."""
        key, data = schedule_key(point, attempt), schedule_to_parquet(intended_ns, workers)
        self.store.put(key, data)
        return _stored_file(key, data, rows=len(intended_ns))

    def commit(
        self,
        summary: PointSummary,
        attempt: str,
        files: Sequence[StoredFile],
        span: MeasurementSpan,
        observed: PointProvenance,
    ) -> Manifest:
        """Store summary, then manifest. Raises NotDurable(Conflict) if another client committed the point meanwhile."""
        summary_file = self._put_summary(summary.hash, attempt, summary.to_json().encode())
        manifest = Manifest(
            hash=summary.hash,
            attempt=attempt,
            started_monotonic_ns=span.started_monotonic_ns,
            started_wall=span.started_wall,
            load_started_ns=span.load_started_ns,
            ended_wall=span.ended_wall,
            files=[*files, summary_file],
            observed=observed,
        )
        self.store.put(manifest_key(summary.hash), manifest.to_json().encode())
        return manifest

    def read_summary(self, manifest: Manifest) -> PointSummary:
        """Return the point's summary, verified against its manifest. Raises NotDurable(Damaged)."""
        names = (summary_key(manifest.hash), summary_key(manifest.hash, manifest.attempt))
        file = next((file for file in manifest.files if file.key in names), None)
        if file is None:
            raise self._damaged(manifest.hash, manifest_key(manifest.hash), "it lists no summary")
        try:
            with self._opened(manifest.hash, file) as content:
                return PointSummary.from_json(content.read())
        except ValidationError as error:
            raise self._invalid_document(manifest.hash, file.key, error) from error

    def read_files(
        self, point: str, files: Iterable[StoredFile], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the records of those of a point's files that have any (`iter_tables`). Raises NotDurable(Damaged)."""
        for listed in _records_among(point, files):
            with self._opened(point, listed) as file:
                try:
                    yield from iter_tables(file, columns)
                except UnreadableRecords as error:
                    raise self._damaged(point, listed.key, str(error)) from error

    def verify_records(self, manifest: Manifest) -> None:
        """Read the point's records and compare them with their manifest. Raises NotDurable(Damaged)."""
        for listed in _records_among(manifest.hash, manifest.files):
            with self._opened(manifest.hash, listed):
                pass

    def _put_summary(self, point: str, attempt: str, data: bytes) -> StoredFile:
        key = summary_key(point)
        try:
            self.store.put(key, data)
        except NotDurable as refused:
            if refused.reason not in (StoreErrorReason.CONFLICT, StoreErrorReason.DAMAGED):
                raise
            key = summary_key(point, attempt)
            self.store.put(key, data)
        return _stored_file(key, data)

    @contextmanager
    def _opened(self, point: str, listed: StoredFile) -> Iterator[BinaryIO]:
        """Open a file and compare it with the manifest. Raises NotDurable(Damaged)."""
        with self._checksums_reported(point, listed.key):
            file = self.store.open(listed.key)
        if file is None:
            raise self._damaged(point, listed.key, "the manifest lists it, but it does not exist")
        with file:
            found = f"{file.seek(0, io.SEEK_END)} bytes with SHA-256 {_sha256_of(file)}"
            expected = f"{listed.size} bytes with SHA-256 {listed.sha256}"
            if found != expected:
                raise self._damaged(point, listed.key, f"the manifest lists {expected}, but found {found}")
            file.seek(0)
            yield file

    @contextmanager
    def _checksums_reported(self, point: str, key: str) -> Iterator[None]:
        """Raise damage that the store detects with the remedy for a point."""
        try:
            yield
        except NotDurable as refused:
            if refused.reason != StoreErrorReason.DAMAGED:
                raise
            what = "it does not match the checksum that was stored with it"
            raise self._damaged(point, key, what) from refused

    def _invalid_document(self, point: str, key: str, error: ValidationError) -> NotDurable:
        """Return the error for a document that cannot be parsed.

        A document of another version is not damaged, so the remedy is not to remove it.
        """
        first, count = error.errors(include_url=False)[0], error.error_count()
        if what := version_not_read(error):
            return NotDurable(f"{self.store.uri(key)}: {what}: use the version that wrote it", StoreErrorReason.DAMAGED)
        where = ".".join(str(step) for step in first["loc"])
        more = f" (and {count - 1} more)" if count > 1 else ""
        return self._damaged(point, key, f"it cannot be read: {where and f'{where}: '}{first['msg']}{more}")

    def _damaged(self, point: str, key: str, what: str) -> NotDurable:
        """Return the error for a damaged file of a point.

        The remedy removes all of the point: if only the file were removed, the manifest would still mark it as
        measured.
        """
        remedy = f"remove {self.store.uri(point_root(point))} with everything below it to measure the point again"
        return NotDurable(f"{self.store.uri(key)}: {what}; {remedy}", StoreErrorReason.DAMAGED)


def version_not_read(error: ValidationError) -> str:
    """Return that a document has another version, if that is why it cannot be parsed; else an empty text."""
    first = error.errors(include_url=False)[0]
    version = repr(first["input"])[:80]
    return f"it is a {version}, which this version of specbench does not read" if first["loc"] == _VERSION else ""


def _records_among(point: str, files: Iterable[StoredFile]) -> list[StoredFile]:
    return [file for file in files if file.key.startswith(records_prefix(point))]


def _sha256_of(file: BinaryIO) -> str:
    sha256 = hashlib.sha256()
    file.seek(0)
    while some := file.read(READ_BYTES):
        sha256.update(some)
    return sha256.hexdigest()


def _stored_file(key: str, data: bytes, rows: int | None = None) -> StoredFile:
    return StoredFile(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)
