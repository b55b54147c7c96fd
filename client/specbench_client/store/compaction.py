"""Compacts the records of measured points into one partitioned Parquet dataset, `records/` below the run's root.

Parts are small, and a folder of them may contain files of killed attempts. The dataset has large files of measured
points only, so that a plain glob returns every record once. Its names do not depend on the attempt. The steps of a
point, each of which may be the last one of a killed process:

1. Its files are created and read back. A process that finds them compares their rows with its own.
2. `compacted.json` is created, which lists them. From now on readers use them instead of the parts.
3. The parts that the manifest lists are removed. Where the store refuses that, they stay, and nobody reads them.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from specbench_api.outcome.layout import compaction_key, dataset_key, dataset_prefix, records_prefix
from specbench_api.outcome.manifest import Compaction, Manifest, StoredFile
from specbench_api.plan.plan import Point
from specbench_client.errors import NotDurable
from specbench_client.store.points import PointStore
from specbench_client.store.records import PART_ROWS_MAX, RECORD_SCHEMA, to_table
from specbench_client.store.store import Store, StoreErrorReason

FILE_BYTES = 192 * 2**20
"""Bytes of a file before compression, at most, unless a single part is larger."""
GROUP_BYTES = 32 * 2**20
"""Bytes of a row group before compression: what a reader holds in memory."""
LOAD = "load"
FIRST_COLUMNS = (LOAD, "repeat")
"""First columns of the dataset; arm and workload are its partitions."""
DATASET_SCHEMA = pa.schema(
    [
        pa.field(LOAD, pa.string(), nullable=False),
        RECORD_SCHEMA.field("repeat"),
        *(field for field in RECORD_SCHEMA if field.name not in FIRST_COLUMNS),
    ],
    metadata=RECORD_SCHEMA.metadata,
)
_log = logging.getLogger(__name__)


def compact_point(points: PointStore, point: Point, manifest: Manifest) -> Compaction:
    """Compact one measured point, reading and verifying all of its records. Repeatable. Blocks. Raises NotDurable."""
    compaction = points.compaction(point.hash)
    if compaction is None:
        compaction = Compaction(hash=point.hash, files=list(_store_files(points, point, manifest)))
        points.store.put(compaction_key(point.hash), compaction.to_json().encode())
    else:
        points.verify_records(manifest)
    _remove_parts(points.store, manifest)
    return compaction


def _store_files(points: PointStore, point: Point, manifest: Manifest) -> Iterator[StoredFile]:
    keys = []
    for number, data in enumerate(_files(points.read_tables(manifest), point)):
        key = dataset_key(point.arm, point.workload, point.hash, number)
        keys.append(key)
        yield _store_file(points.store, key, data)
    own = f"{dataset_prefix(point.arm, point.workload)}{point.hash}-"
    if others := sorted(set(points.store.keys(own)) - set(keys)):
        raise _conflict(points.store, others[0], "it contains records of this point a second time")


def _store_file(store: Store, key: str, data: bytes) -> StoredFile:
    """Create one file and read it back; of an existing file, compare the rows."""
    try:
        store.put(key, data)
    except NotDurable as refused:
        if refused.reason != StoreErrorReason.CONFLICT:
            raise
    stored = store.get(key)
    if stored is None:
        raise NotDurable(f"{store.uri(key)} was removed by another program: run again", StoreErrorReason.DAMAGED)
    if stored != data and not to_table(stored).equals(to_table(data)):
        raise _conflict(store, key, "it exists with other records")
    rows = pq.read_metadata(pa.BufferReader(stored)).num_rows
    return StoredFile(key=key, size=len(stored), sha256=hashlib.sha256(stored).hexdigest(), rows=rows)


def _conflict(store: Store, key: str, what: str) -> NotDurable:
    return NotDurable(f"{store.uri(key)}: {what}: remove it and run again", StoreErrorReason.CONFLICT)


def _files(tables: Iterator[pa.Table], point: Point) -> Iterator[bytes]:
    """Yield the files of a point; each table becomes part of one of them as it is read."""
    groups = _groups(_with_load(table, point) for table in tables)
    group = next(groups, None)
    while group is not None:
        sink, rows, size = io.BytesIO(), 0, 0
        with pq.ParquetWriter(sink, DATASET_SCHEMA, compression="zstd") as writer:
            while group is not None and (not rows or _fits(rows + group.num_rows, size + group.nbytes)):
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
                rows, size = rows + group.num_rows, size + group.nbytes
                group = next(groups, None)
        yield sink.getvalue()


def _fits(rows: int, size: int) -> bool:
    return rows <= PART_ROWS_MAX and size <= FILE_BYTES


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(each.nbytes for each in waiting) >= GROUP_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _with_load(table: pa.Table, point: Point) -> pa.Table:
    columns = {name: table.column(name) for name in table.column_names}
    columns[LOAD] = pa.chunked_array([pa.array([point.level.label] * table.num_rows, pa.string())])
    return pa.Table.from_arrays([columns[name] for name in DATASET_SCHEMA.names], schema=DATASET_SCHEMA)


def _remove_parts(store: Store, manifest: Manifest) -> None:
    prefix = records_prefix(manifest.hash)
    present = set(store.keys(prefix))
    for file in manifest.files:
        if file.key in present:
            try:
                store.remove(file.key)
            except NotDurable as refused:
                if refused.reason not in (StoreErrorReason.CREDENTIALS_REFUSED, StoreErrorReason.NOT_WRITABLE):
                    raise
                _log.warning("%s: compacted parts are kept, they only need space: %s", store.uri(prefix), refused)
                return
