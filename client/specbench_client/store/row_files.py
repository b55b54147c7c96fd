"""Tidy rows as Parquet: the reduced records of a point, from which summaries are computed.

A point's client stores them when the point ends, so that later summaries need not decode its records again. They have
the types of `metrics.tidy_frame`, bit for bit: numbers with NaN for missing, texts or null, and ragged columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from specbench_client.store.records import UnreadablePart, require_decoded_size, require_readable_size

FILE_ROWS = 65_536
"""Rows of one file, a few MB; fewer than a part that is read may have."""
GROUP_ROWS = 16_384
"""Rows that are read together."""


def rows_schema(rows: pd.DataFrame) -> pa.Schema:
    """Return the columns of tidy rows and their types, with which `rows_from_parquet` compares a file."""
    return _to_arrow(rows).schema


def rows_to_parquet(rows: pd.DataFrame) -> bytes:
    """Encode tidy rows."""
    table, sink = _to_arrow(rows), io.BytesIO()
    numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    pq.write_table(
        table,
        sink,
        row_group_size=GROUP_ROWS,
        compression="zstd",
        use_dictionary=texts,
        use_byte_stream_split=numbers,
    )
    return sink.getvalue()


def rows_from_parquet(data: bytes, schema: pa.Schema) -> Iterator[pd.DataFrame]:
    """Yield the rows in groups of at most `GROUP_ROWS`. Raises UnreadablePart, also for columns that `schema` lacks."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
        require_readable_size(metadata)
        if not metadata.schema.to_arrow_schema().equals(schema):
            raise UnreadablePart("its columns are not those of tidy rows")
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        file = pq.ParquetFile(pa.BufferReader(data), metadata=metadata, pre_buffer=False, read_dictionary=texts)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            require_decoded_size(table)
            yield _to_frame(table.cast(schema))
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UnreadablePart(f"it is not a readable Parquet file: {error}") from error


def _to_arrow(rows: pd.DataFrame) -> pa.Table:
    return pa.table({str(name): _to_array(rows[name]) for name in rows})


def _to_array(column: pd.Series) -> pa.Array:
    if isinstance(column.dtype, pd.ArrowDtype):
        array = pa.array(column.array)
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if column.dtype == np.object_:
        return pa.array(column.to_numpy(object), pa.string())
    return pa.array(column.to_numpy(), from_pandas=False)  # NaN stays NaN, so that no column has nulls


def _to_frame(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: _to_series(table.column(name)) for name in table.column_names}, copy=False)


def _to_series(column: pa.ChunkedArray) -> pd.Series:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a table without rows has no chunk to combine
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if pa.types.is_list(column.type):
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    if pa.types.is_string(column.type):
        codes = array.dictionary_encode()
        texts = np.array([*codes.dictionary.to_pylist(), None], dtype=np.object_)
        return pd.Series(texts[codes.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)], dtype=object)
    return pd.Series(array.to_numpy(zero_copy_only=False), copy=False)
