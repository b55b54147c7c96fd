"""Converts records to Parquet and back, and writes them in parts during a measurement.

The columns are derived from the fields of `Record`.

`RecordWriter` works in the background, so that the measuring thread only enqueues records. One thread closes a part
every few seconds or two thousand rows and writes it to the spool, a folder on this machine's disk; another uploads
spooled parts in order and waits while the server is unavailable. So memory contains one open part at most, and a part
that is not uploaded yet is on disk. Parts stay in the spool until the point is committed or given up: the point's
summary is computed from them without downloading what was just uploaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil
import threading
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from specbench_api.outcome.layout import part_key
from specbench_api.outcome.manifest import StoredFile
from specbench_api.outcome.record import Record
from specbench_client.errors import ClientError, NotDurable
from specbench_client.sliced_tasks import give_way_to_sockets
from specbench_client.store.folder import FolderStore
from specbench_client.store.store import Store, StoreErrorReason

_ARROW_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    list[int]: pa.list_(pa.int64()),
    list[bool]: pa.list_(pa.bool_()),
}
_FIELD_TYPES = typing.get_type_hints(Record)
_COLUMN_NAMES = [field.name for field in dataclasses.fields(Record)]


def _schema_field(name: str) -> pa.Field:
    members = typing.get_args(_FIELD_TYPES[name])
    if NoneType in members:
        (kind,) = (member for member in members if member is not NoneType)
        return pa.field(name, _ARROW_TYPES[kind], nullable=True)
    return pa.field(name, _ARROW_TYPES[_FIELD_TYPES[name]], nullable=False)


RECORD_SCHEMA = pa.schema(
    [_schema_field(name) for name in _COLUMN_NAMES], metadata={"schemaVersion": "specbench.io/records/v1"}
)


PART_ROWS_MAX = 100_000
"""Rows of a part that is read; `PartLimits` closes a part far earlier."""
PART_VALUES_MAX = 100_000_000
"""Values of a part, those in lists included."""
PART_BYTES_MAX = 1024**3
"""Bytes of a part before compression."""
PART_COLUMNS_MAX = 1000
"""Columns of a part."""
_TEXT_COLUMNS = [field.name for field in RECORD_SCHEMA if pa.types.is_string(field.type)]


class UnreadablePart(ClientError):
    """The bytes of a part cannot be read as records; the message contains the reason."""


def records_to_parquet(records: Sequence[Record]) -> bytes:
    """Return a part with these records."""
    columns = [pa.array([getattr(record, field.name) for record in records], field.type) for field in RECORD_SCHEMA]
    table = pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def schedule_to_parquet(intended_ns: Sequence[int], workers: int) -> bytes:
    """Encode a schedule: conversation i begins `intended_ns[i]` after the load's start, on worker i mod W."""
    numbers = range(len(intended_ns))
    columns = {
        "conversation": pa.array(numbers, pa.int64()),
        "intended_ns": pa.array(intended_ns, pa.int64()),
        "worker": pa.array((number % workers for number in numbers), pa.int64()),
    }
    table = pa.table(columns).replace_schema_metadata({"schemaVersion": "specbench.io/schedule/v1"})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


RecordArrays = dict[str, NDArray[Any]]
"""Records by column."""


def to_columns(part: bytes, columns: Sequence[str] | None = None) -> RecordArrays:
    """Return the rows of a part as arrays. `columns`: the columns to read; None: all.

    An integer column with missing values becomes float64 with NaN. Times stay exact, since they count from the point's
    start (2**53 ns are 104 days). Lists become numpy arrays, missing texts and lists None.
    """
    return table_to_columns(to_table(part, columns))


def table_to_columns(table: pa.Table) -> RecordArrays:
    """Return the rows of a table as arrays, see `to_columns`."""
    return {name: table.column(name).to_numpy() for name in table.column_names}


def to_table(part: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a part with the columns' own types. `columns`: the columns to read; None: all.

    Columns that the part does not contain are null. Raises UnreadablePart.
    """
    return pa.concat_tables(iter_tables(part, columns))


def iter_tables(part: bytes, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a part, one row group after the other, see `to_table`; at least one table."""
    # Everything is read by the calling thread. Arrow's threads release the Python bytes later; if the program has ended
    # by then, Python ends such a thread and C++ aborts the process.
    names = RECORD_SCHEMA.names if columns is None else columns
    schema = pa.schema([RECORD_SCHEMA.field(name) for name in names], metadata=RECORD_SCHEMA.metadata)
    try:
        metadata = pq.read_metadata(pa.BufferReader(part))
        require_readable_size(metadata)
        texts = [name for name in metadata.schema.names if name in _TEXT_COLUMNS]
        file = pq.ParquetFile(pa.BufferReader(part), metadata=metadata, pre_buffer=False, read_dictionary=texts)
        present = [name for name in names if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            yield _with_schema(file.read_row_group(group, columns=present, use_threads=False), schema)
        if not file.num_row_groups:
            yield schema.empty_table()
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UnreadablePart(f"it is not a readable Parquet file: {error}") from error


def _with_schema(read: pa.Table, schema: pa.Schema) -> pa.Table:
    require_decoded_size(read)
    stored = {name: _as_stored_type(read.column(name), schema.field(name)) for name in read.column_names}
    arrays = [stored.get(field.name, pa.nulls(read.num_rows, field.type)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def require_readable_size(metadata: pq.FileMetaData) -> None:
    """Reject a part that describes more than a part contains: a few bytes can stand for many equal values."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    values = sum(group.column(index).num_values for group in groups for index in range(group.num_columns))
    size = sum(group.total_byte_size for group in groups)
    for what, found, most in (
        ("rows", metadata.num_rows, PART_ROWS_MAX),
        ("values", values, PART_VALUES_MAX),
        ("uncompressed bytes", size, PART_BYTES_MAX),
        ("columns", metadata.num_columns, PART_COLUMNS_MAX),
    ):
        if not 0 <= found <= most:
            raise UnreadablePart(f"it describes {found:,} {what}; a part has at most {most:,}")


def require_decoded_size(table: pa.Table) -> None:
    """Reject texts that become too large once every row has its own. They are read as dictionaries, which are small."""
    size = 0
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                size += pc.sum(lengths).as_py() or 0
    if size > PART_BYTES_MAX:
        raise UnreadablePart(f"its texts have {size:,} bytes; a part has at most {PART_BYTES_MAX:,}")


def _as_stored_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return the column with the type of the schema's field. Raises UnreadablePart."""
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise UnreadablePart(f"its column {field.name} has type {column.type}, not {field.type}") from error


@dataclass(frozen=True)
class PartLimits:
    """When a part is closed."""

    rows: int = 2000
    seconds: float = 5.0
    monotonic_s: Callable[[], float] = time.monotonic


class RecordWriter:
    """Writes the records of one attempt at a point. Call `add` from one thread; `flush` blocks until all are stored."""

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
        """Add a record. Raises NotDurable if an earlier part could not be stored."""
        self._raise_failure()
        self._records.put(record)

    def flush(self) -> list[StoredFile]:
        """Close the last part, wait for all uploads, and return the stored files. Nothing can be added afterwards."""
        self._records.put(None)
        for thread in self._threads:
            thread.join()
        self._raise_failure()
        return list(self._stored)

    def abandon(self, patience_s: float) -> None:
        """Give up the point: store the remaining records within `patience_s`, then discard the spool."""
        self._records.put(None)
        deadline_s = self._limits.monotonic_s() + patience_s
        for thread in self._threads:
            thread.join(max(deadline_s - self._limits.monotonic_s(), 0))
        self.discard_spool()

    @property
    def files(self) -> list[StoredFile]:
        """All parts of this writer so far."""
        return list(self._files)

    def spooled(self, columns: Sequence[str] | None = None) -> Iterator[RecordArrays]:
        """Yield all records from the spool, part by part; call after `flush`. `columns`: those to read; None: all."""
        return (to_columns(self._spooled_bytes(file), columns) for file in self._files)

    def discard_spool(self) -> None:
        """Delete the spooled parts, after the point is committed or given up."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _guard(self, work: Callable[[], None]) -> None:
        """Run a thread's work and store its failure, which the next `add` or `flush` raises."""
        give_way_to_sockets()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised in the caller's thread
            self._failure = self._failure or error
            self._spooled.put(None)

    def _spool_parts(self) -> None:
        for number, records in enumerate(_split_into_parts(self._records, self._limits)):
            data = records_to_parquet(records)
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
            raise NotDurable(
                f"{self._spool.uri(file.key)} was deleted from the spool by another program: run again",
                StoreErrorReason.DAMAGED,
            )
        return data


def _split_into_parts(records: SimpleQueue[Record | None], limits: PartLimits) -> Iterator[list[Record]]:
    """Yield queued records in parts, which are closed by size or age; ends at None."""
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
