"""Stores and reads points: records during the measurement, then the summary, then the manifest that makes it a result.

A manifest is created and never replaced. It lists every file of the point with size and SHA-256; other files are not
part of the result, so files of a killed attempt need no clean-up. No file of a point is ever replaced: an attempt whose
key for the summary is taken uses another key, since the other writer may be about to commit it. A manifest that exists
but cannot be read is an error: its point is then neither a result nor missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from specbench_api.outcome.layout import (
    DATASET,
    compaction_key,
    manifest_key,
    measured_among,
    point_root,
    records_prefix,
    rows_key,
    rows_prefix,
    schedule_key,
    summary_key,
)
from specbench_api.outcome.manifest import Compaction, Manifest, PointProvenance, StoredFile
from specbench_api.outcome.summary import PointSummary
from specbench_client.columns import Column
from specbench_client.errors import NotDurable
from specbench_client.store.records import (
    PartLimits,
    RecordArrays,
    RecordWriter,
    UnreadablePart,
    iter_tables,
    schedule_to_parquet,
    table_to_columns,
)
from specbench_client.store.row_files import FILE_ROWS, rows_from_parquet, rows_to_parquet
from specbench_client.store.store import Store, StoreErrorReason


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
    """The points of one run. `store`: the run's root; `spool`: a folder on this machine's disk."""

    store: Store
    spool: Path
    limits: PartLimits = field(default_factory=PartLimits)

    def measured(self, points: Iterable[str]) -> set[str]:
        """Return which of these points have a manifest, without reading it."""
        return measured_among(self.store.keys("points/"), points)

    def manifest(self, point: str) -> Manifest | None:
        """Return the point's manifest, or None if it is not measured. Raises NotDurable(Damaged)."""
        return read_manifest(self.store, point)

    def manifests(self, points: Sequence[str]) -> dict[str, Manifest]:
        """Return the manifests of those points that have one, in the order of `points`. Raises NotDurable(Damaged)."""
        return read_manifests(self.store, points)

    def open(self, point: str, attempt: str) -> RecordWriter:
        """Return a writer for a new attempt at a point. The name of the attempt must not have been used before."""
        return RecordWriter(self.store, self.spool, point, attempt, self.limits)

    def put_schedule(self, point: str, attempt: str, intended_ns: Sequence[int], workers: int) -> StoredFile:
        """Store when conversations will begin; conversation i belongs to worker i mod `workers`."""
        key, data = schedule_key(point, attempt), schedule_to_parquet(intended_ns, workers)
        self.store.put(key, data)
        return _stored_file(key, data, rows=len(intended_ns))

    def put_rows(self, point: str, attempt: str, columns: Mapping[str, Column]) -> list[StoredFile]:
        """Store the columns of the point's tidy rows, from which summaries are computed."""
        files, rows = [], len(next(iter(columns.values())))
        for number, start in enumerate(range(0, max(rows, 1), FILE_ROWS)):
            part = slice(start, min(start + FILE_ROWS, rows))
            data = rows_to_parquet({name: column[part] for name, column in columns.items()})
            key = rows_key(point, attempt, number)
            self.store.put(key, data)
            files.append(_stored_file(key, data, rows=part.stop - start))
        return files

    def commit(
        self,
        summary: PointSummary,
        attempt: str,
        parts: list[StoredFile],
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
            files=[*parts, summary_file],
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
            return PointSummary.from_json(self._verified(manifest.hash, file))
        except ValidationError as error:
            raise invalid_document_error(self.store, manifest.hash, file.key, error) from error

    def read_rows(self, manifest: Manifest, schema: pa.Schema) -> Iterator[dict[str, Column]] | None:
        """Return an iterator of the columns of its tidy rows, or None if the manifest lists none of this version.

        Raises NotDurable(Damaged) during iteration.
        """
        files = [file for file in manifest.files if file.key.startswith(rows_prefix(manifest.hash))]
        return self._rows(manifest.hash, files, schema) if files else None

    def _rows(self, point: str, files: Sequence[StoredFile], schema: pa.Schema) -> Iterator[dict[str, Column]]:
        for file in files:
            data = self._verified(point, file)
            try:
                yield from rows_from_parquet(data, schema)
            except UnreadablePart as error:
                raise self._damaged(point, file.key, str(error)) from error

    def read_columns(self, manifest: Manifest, columns: Sequence[str] | None = None) -> Iterator[RecordArrays]:
        """Yield the point's records piece by piece, see `to_columns`. Raises NotDurable(Damaged) during iteration."""
        return (table_to_columns(table) for table in self.read_tables(manifest, columns))

    def read_parts(self, point: str, parts: Sequence[StoredFile], columns: Sequence[str]) -> Iterator[RecordArrays]:
        """Yield the records of stored parts before the point is committed. Raises NotDurable(Damaged)."""
        return (table_to_columns(table) for table in self._tables(point, parts, columns))

    def read_tables(self, manifest: Manifest, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the point's records piece by piece, see `to_table`. Raises NotDurable(Damaged) during iteration.

        They come from the compacted files, or from the parts without any. If the point is compacted while its parts are
        read, reading continues in the compacted files after the same number of records.
        """
        compaction, read = self.compaction(manifest.hash), 0
        if compaction is None:
            try:
                for table in self._tables(manifest.hash, _parts(manifest), columns):
                    yield table
                    read += table.num_rows
            except NotDurable as damaged:
                compaction = self.compaction(manifest.hash)
                if compaction is None or damaged.reason != StoreErrorReason.DAMAGED:
                    raise
            else:
                return
        for table in self._tables(manifest.hash, compaction.files, columns):
            if read < table.num_rows:
                yield table.slice(read)
            read = max(read - table.num_rows, 0)

    def verify_records(self, manifest: Manifest) -> None:
        """Read the point's records and compare them with their list. Raises NotDurable(Damaged)."""
        compaction = self.compaction(manifest.hash)
        for file in _parts(manifest) if compaction is None else compaction.files:
            self._verified(manifest.hash, file)

    def compaction(self, point: str) -> Compaction | None:
        """Return the list of the point's compacted files, or None if it is not compacted. Raises NotDurable."""
        key = compaction_key(point)
        data = read_point_file(self.store, point, key)
        if data is None:
            return None
        try:
            compaction = Compaction.from_json(data)
        except ValidationError as error:
            raise invalid_document_error(self.store, point, key, error) from error
        names = (file.key.rpartition("/")[2] for file in compaction.files if file.key.startswith(f"{DATASET}/"))
        if compaction.hash != point or sum(name.startswith(f"{point}-") for name in names) != len(compaction.files):
            raise self._damaged(point, key, "it lists files of another point")
        return compaction

    def _tables(self, point: str, files: Iterable[StoredFile], columns: Sequence[str] | None) -> Iterator[pa.Table]:
        for file in files:
            data = self._verified(point, file)
            try:
                yield from iter_tables(data, columns)
            except UnreadablePart as error:
                raise self._damaged(point, file.key, str(error)) from error

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

    def _verified(self, point: str, file: StoredFile) -> bytes:
        data = read_point_file(self.store, point, file.key)
        if data is None:
            raise self._damaged(point, file.key, "the manifest lists it, but it does not exist")
        actual = _stored_file(file.key, data)
        if (actual.size, actual.sha256) != (file.size, file.sha256):
            expected, found = (f"{one.size} bytes with SHA-256 {one.sha256}" for one in (file, actual))
            raise self._damaged(point, file.key, f"the manifest lists {expected}, but found {found}")
        return data

    def _damaged(self, point: str, key: str, what: str) -> NotDurable:
        return damaged_point_error(self.store, point, key, what)


def _parts(manifest: Manifest) -> list[StoredFile]:
    return [file for file in manifest.files if file.key.startswith(records_prefix(manifest.hash))]


def _stored_file(key: str, data: bytes, rows: int | None = None) -> StoredFile:
    return StoredFile(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


_READERS = 8
_VERSION = ("schemaVersion",)


def read_manifests(store: Store, points: Sequence[str]) -> dict[str, Manifest]:
    """Return the manifests of those points that have one, in the order of `points`. Raises NotDurable(Damaged)."""
    measured = measured_among(store.keys("points/"), points)
    ordered = [point for point in points if point in measured]
    with ThreadPoolExecutor(_READERS, "manifests") as readers:
        manifests = list(readers.map(lambda point: read_manifest(store, point), ordered))
    return {point: manifest for point, manifest in zip(ordered, manifests, strict=True) if manifest is not None}


def read_manifest(store: Store, point: str) -> Manifest | None:
    """Return the point's manifest, or None if it is not measured. Raises NotDurable(Damaged)."""
    key = manifest_key(point)
    data = read_point_file(store, point, key)
    if data is None:
        return None
    try:
        manifest = Manifest.from_json(data)
    except ValidationError as error:
        raise invalid_document_error(store, point, key, error) from error
    if manifest.hash != point:
        raise damaged_point_error(store, point, key, f"it belongs to the point {manifest.hash}")
    outside = next((file.key for file in manifest.files if not file.key.startswith(f"{point_root(point)}/")), None)
    if outside is not None:
        raise damaged_point_error(store, point, key, f"it lists {outside}, which is outside of {point_root(point)}")
    return manifest


def read_point_file(store: Store, point: str, key: str) -> bytes | None:
    """Like `Store.get`, but damage that the store detects is raised with the remedy for a point."""
    try:
        return store.get(key)
    except NotDurable as refused:
        if refused.reason != StoreErrorReason.DAMAGED:
            raise
        raise damaged_point_error(
            store, point, key, "it does not match the checksum that was stored with it"
        ) from refused


def invalid_document_error(store: Store, point: str, key: str, error: ValidationError) -> NotDurable:
    """Return the error for a document that cannot be parsed.

    A document of another version is not damaged, so the remedy is not to remove it.
    """
    first, count = error.errors(include_url=False)[0], error.error_count()
    if first["loc"] == _VERSION:
        what = f"it is a {first['input']!r}, which this version of specbench does not read"
        return NotDurable(f"{store.uri(key)}: {what}: use the version that wrote it", StoreErrorReason.DAMAGED)
    where = ".".join(str(step) for step in first["loc"])
    more = f" (and {count - 1} more)" if count > 1 else ""
    return damaged_point_error(store, point, key, f"it cannot be read: {where and f'{where}: '}{first['msg']}{more}")


def damaged_point_error(store: Store, point: str, key: str, what: str) -> NotDurable:
    """Return the error for a damaged file of a point.

    The remedy removes all of the point: if only the file were removed, the manifest would still mark it as measured.
    """
    remedy = f"remove {store.uri(point_root(point))} with everything below it to measure the point again"
    return NotDurable(f"{store.uri(key)}: {what}; {remedy}", StoreErrorReason.DAMAGED)
