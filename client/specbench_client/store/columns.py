"""Records as a Parquet table, and back as a data frame. The columns are the Record's own; nothing is listed twice."""

from __future__ import annotations

import dataclasses
import io
import typing
from collections.abc import Sequence
from types import NoneType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from specbench_api.outcome.record import Record

_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    list[int]: pa.list_(pa.int64()),
    list[bool]: pa.list_(pa.bool_()),
}
_HINTS = typing.get_type_hints(Record)
_NAMES = [field.name for field in dataclasses.fields(Record)]


def _field(name: str) -> pa.Field:
    members = typing.get_args(_HINTS[name])
    if NoneType in members:
        (kind,) = (member for member in members if member is not NoneType)
        return pa.field(name, _TYPES[kind], nullable=True)
    return pa.field(name, _TYPES[_HINTS[name]], nullable=False)


SCHEMA = pa.schema([_field(name) for name in _NAMES], metadata={"schemaVersion": "specbench.io/records/v1"})


def to_parquet(records: Sequence[Record]) -> bytes:
    """One part."""
    columns = [pa.array([getattr(record, field.name) for record in records], field.type) for field in SCHEMA]
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def schedule_parquet(intended_ns: Sequence[int], workers: int) -> bytes:
    """An open loop's schedule: conversation i begins `intended_ns[i]` after the load's start, at worker i mod W."""
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


def to_frame(part: bytes, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The rows of a part. `columns`: those wanted, else all.

    A column of integers with a missing value becomes float64 with NaN: times count from the point's start and stay
    exact (2**53 ns are 104 days). Lists become numpy arrays, missing ones None.
    """
    frame: pd.DataFrame = to_table(part, columns).to_pandas(use_threads=False)
    return frame


def to_table(part: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a part with the columns' own types; one that it does not hold is null. `columns`: else all.

    Everything is read by the calling thread. Arrow's own threads would let go of the bytes, which are Python's, when
    they come to it; where the program has ended by then, Python ends the thread and C++ aborts the process.
    """
    names = SCHEMA.names if columns is None else columns
    file = pq.ParquetFile(pa.BufferReader(part), pre_buffer=False)
    read = file.read(columns=[name for name in names if name in file.schema_arrow.names], use_threads=False)
    schema = pa.schema([SCHEMA.field(name) for name in names], metadata=SCHEMA.metadata)
    held = {name: read.column(name) for name in read.column_names}
    filled = [held.get(field.name, pa.nulls(read.num_rows, field.type)) for field in schema]
    return pa.Table.from_arrays(filled, schema=schema)
