"""Converts records to Parquet and back, and writes the records of one attempt at one point to one file.

The columns are derived from the fields of `Record`.

`RecordWriter` works in the background, so that the measuring thread only enqueues records. One thread encodes row
groups into an unnamed file on this machine's disk (`TMPDIR`), which disappears with the process; another uploads what
is written and waits while the server is unavailable. So memory contains one row group at most.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import tempfile
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import NoneType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from specbench_api.outcome.layout import records_key, records_prefix
from specbench_api.plan.plan import Point
from specbench_client.cooperative_tasks import give_way_to_sockets
from specbench_client.documents.manifest import StoredFile
from specbench_client.documents.record import Record
from specbench_client.errors import ClientError
from specbench_client.store.folder import translate_os_errors
from specbench_client.store.store import Store, Upload

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


POINT_COLUMNS = ("arm", "workload", "load")
"""Columns of a file that are the same in all of its rows: of its point."""
FILE_SCHEMA = pa.schema(
    [*(pa.field(name, pa.string(), nullable=False) for name in POINT_COLUMNS), *RECORD_SCHEMA],
    metadata=RECORD_SCHEMA.metadata,
)
UPLOAD_BYTES = 8 * 2**20
"""Bytes of a part of an upload. A smaller file is one PUT."""
GROUP_ROWS = 2000
"""Rows of a row group."""
GROUP_VALUES = 1_000_000
"""Chunks, and characters of stored texts, of a row group: what is in memory while it is collected and encoded."""
GROUP_ROWS_MAX = 100_000
"""Rows of a row group that is read."""
GROUP_VALUES_MAX = 100_000_000
"""Values of a row group that is read, those in lists included."""
GROUP_BYTES_MAX = 1024**3
"""Bytes of a row group that is read, before compression."""
COLUMNS_MAX = 1000
"""Columns of a file that is read."""
_TEXT_COLUMNS = [field.name for field in RECORD_SCHEMA if pa.types.is_string(field.type)]


class UnreadableRecords(ClientError):
    """A file cannot be read as records; the message contains the reason."""


def records_table(point: Point, records: Sequence[Record]) -> pa.Table:
    """Return records of a point as a table with the columns of a file."""
    same = {"arm": point.arm, "workload": point.workload, "load": point.level.label}
    columns = [pa.array([same[name]] * len(records), pa.string()) for name in POINT_COLUMNS]
    columns += [pa.array([getattr(record, field.name) for record in records], field.type) for field in RECORD_SCHEMA]
    return pa.Table.from_arrays(columns, schema=FILE_SCHEMA)


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


def iter_tables(file: BinaryIO, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the records of a file, one row group after the other, at least one, with the columns' own types.

    `columns`: the columns to read; None: those of a record. Columns that the file does not contain are null, if a
    record may lack them. Raises UnreadableRecords.
    """
    # Everything is read by the calling thread. Arrow's threads release the Python bytes later; if the program has ended
    # by then, Python ends such a thread and C++ aborts the process.
    names = RECORD_SCHEMA.names if columns is None else columns
    schema = pa.schema([FILE_SCHEMA.field(name) for name in names], metadata=RECORD_SCHEMA.metadata)
    try:
        metadata = pq.read_metadata(file)
        _require_readable_size(metadata)
        texts = [name for name in metadata.schema.names if name in _TEXT_COLUMNS]
        parquet = pq.ParquetFile(file, metadata=metadata, pre_buffer=False, read_dictionary=texts)
        present = [name for name in names if name in parquet.schema_arrow.names]
        for group in range(parquet.num_row_groups):
            yield _with_schema(parquet.read_row_group(group, columns=present, use_threads=False), schema)
        if not parquet.num_row_groups:
            yield schema.empty_table()
    except (pa.ArrowException, UnicodeDecodeError, OSError, MemoryError) as error:  # names of columns may be damaged
        raise UnreadableRecords(f"it is not a readable Parquet file: {error}") from error


def _with_schema(read: pa.Table, schema: pa.Schema) -> pa.Table:
    read.validate(full=True)  # Otherwise a text that is not UTF-8 raises UnicodeDecodeError where it is used.
    _require_decoded_size(read)
    stored = {name: _as_stored_type(read.column(name), schema.field(name)) for name in read.column_names}
    for field in schema:
        if not field.nullable and (field.name not in stored or stored[field.name].null_count):
            raise UnreadableRecords(f"its column {field.name} has no value in some rows")
    arrays = [stored.get(field.name, pa.nulls(read.num_rows, field.type)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _require_readable_size(metadata: pq.FileMetaData) -> None:
    """Reject a file with a row group that describes too much: a few bytes can stand for many equal values."""
    if metadata.num_columns > COLUMNS_MAX:
        raise UnreadableRecords(f"it describes {metadata.num_columns:,} columns; a file has at most {COLUMNS_MAX:,}")
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        values = sum(group.column(number).num_values for number in range(group.num_columns))
        for what, found, most in (
            ("rows", group.num_rows, GROUP_ROWS_MAX),
            ("values", values, GROUP_VALUES_MAX),
            ("uncompressed bytes", group.total_byte_size, GROUP_BYTES_MAX),
        ):
            if not 0 <= found <= most:
                raise UnreadableRecords(f"a row group describes {found:,} {what}; it has at most {most:,}")


def _require_decoded_size(table: pa.Table) -> None:
    """Reject texts that become too large once every row has its own. They are read as dictionaries, which are small."""
    size = 0
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                size += pc.sum(lengths).as_py() or 0
    if size > GROUP_BYTES_MAX:
        raise UnreadableRecords(f"the texts of a row group have {size:,} bytes; it has at most {GROUP_BYTES_MAX:,}")


def _as_stored_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return the column with the type of the schema's field. Raises UnreadableRecords."""
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise UnreadableRecords(f"its column {field.name} has type {column.type}, not {field.type}") from error


class RecordWriter:
    """Writes the records of one attempt at a point. Call `add` from one thread, then `finish` or `abandon`."""

    def __init__(self, store: Store, point: Point, attempt: str) -> None:
        self._store, self._point = store, point
        self._key = records_key(point.hash, attempt)
        self._records: SimpleQueue[Record | None] = SimpleQueue()
        self._written: SimpleQueue[int | None] = SimpleQueue()
        """Size of the file after each row group; None at its end."""
        self._rows = 0
        self._stored: StoredFile | None = None
        self._abandoned = False
        self._failure: BaseException | None = None
        self._file: BinaryIO | None = None
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=work.__name__, daemon=True)
            for work in (self._encode, self._upload)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, record: Record) -> None:
        """Add a record. Raises NotDurable if an earlier one could not be stored."""
        self._raise_failure()
        self._records.put(record)

    def finish(self) -> StoredFile:
        """Wait until all records are stored, and return their file. Nothing can be added afterwards. Blocks."""
        self._records.put(None)
        for thread in self._threads:
            thread.join()
        self._raise_failure()
        assert self._stored is not None
        return self._stored

    def abandon(self, patience_s: float) -> None:
        """Give up the point: discard what is uploaded, and wait at most `patience_s` until it is."""
        self._abandoned = True
        self._records.put(None)
        for thread in self._threads:
            thread.join(patience_s / len(self._threads))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _guard(self, work: Callable[[], None]) -> None:
        """Run a thread's work and store its failure, which the next `add` or `finish` raises."""
        give_way_to_sockets()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised in the caller's thread
            self._failure = self._failure or error
            self._written.put(None)

    def _encode(self) -> None:
        with translate_os_errors(Path(tempfile.gettempdir())):
            self._file = tempfile.TemporaryFile(prefix="specbench-")  # noqa: SIM115 -- `_upload` closes it
            with pq.ParquetWriter(self._file, FILE_SCHEMA, compression="zstd") as parquet:
                for records in _row_groups(self._records):
                    parquet.write_table(records_table(self._point, records))
                    self._rows += len(records)
                    self._announce()
            self._announce()
        self._written.put(None)

    def _announce(self) -> None:
        assert self._file is not None
        self._file.flush()
        self._written.put(self._file.tell())

    def _upload(self) -> None:
        upload: Upload | None = None
        sha256, sent, size = hashlib.sha256(), 0, 0
        try:
            self._store.abort_uploads(records_prefix(self._point.hash))
            for size in iter(self._written.get, None):
                while size - sent >= UPLOAD_BYTES:
                    upload = upload or self._store.start_upload(self._key)
                    part = self._read(sent, UPLOAD_BYTES)
                    upload.add(part)
                    sha256.update(part)
                    sent += len(part)
            if self._abandoned or self._failure is not None:
                return
            rest = self._read(sent, size - sent)
            sha256.update(rest)
            if upload is None:
                self._store.put(self._key, rest)
            else:
                if rest:
                    upload.add(rest)
                upload.complete()
                upload = None
                # An upload whose beginning was not answered was begun again, and the first one still exists.
                self._store.abort_uploads(self._key)
            self._stored = StoredFile(key=self._key, size=size, sha256=sha256.hexdigest(), rows=self._rows)
        except BaseException as error:
            # Before the file is closed: `_encode` then fails as well, with an error that does not name the cause.
            self._failure = self._failure or error
            raise
        finally:
            if upload is not None:
                upload.abort()
            if self._file is not None:
                self._file.close()

    def _read(self, start: int, size: int) -> bytes:
        assert self._file is not None
        with translate_os_errors(Path(tempfile.gettempdir())):
            return os.pread(self._file.fileno(), size, start)


def _row_groups(records: SimpleQueue[Record | None]) -> Iterator[list[Record]]:
    """Yield queued records in row groups; ends at None."""
    group: list[Record] = []
    values = 0
    for record in iter(records.get, None):
        group.append(record)
        values += len(record.chunk_ns or ()) + len(record.output_text or ())
        if len(group) >= GROUP_ROWS or values >= GROUP_VALUES:
            yield group
            group, values = [], 0
    if group:
        yield group
