"""Tidy rows as Parquet: the reduced records of a point, from which summaries are computed.

A point's client stores them when the point ends, so that later summaries need not decode its records again. They have
the types of `metrics.tidy_frame`, bit for bit: numbers with NaN for missing, texts or null, and ragged columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specbench_client.columns import Array, Column, RaggedColumn, TextCodes
from specbench_client.store.records import UnreadablePart, require_decoded_size, require_readable_size

FILE_ROWS = 65_536
"""Rows of one file, a few MB; fewer than a part that is read may have."""
GROUP_ROWS = 16_384
"""Rows that are read together."""


def rows_schema(rows: Mapping[str, Column]) -> pa.Schema:
    """Return the columns of tidy rows and their types, with which `rows_from_parquet` compares a file."""
    return _to_arrow(rows).schema


def rows_to_parquet(rows: Mapping[str, Column]) -> bytes:
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


def rows_from_parquet(data: bytes, schema: pa.Schema) -> Iterator[dict[str, Column]]:
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
            yield {name: _to_column(table.column(name).combine_chunks()) for name in schema.names}
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UnreadablePart(f"it is not a readable Parquet file: {error}") from error


def _to_arrow(rows: Mapping[str, Column]) -> pa.Table:
    return pa.table({name: _to_array(column) for name, column in rows.items()})


def _to_array(column: Column) -> pa.Array:
    if isinstance(column, TextCodes):
        return pa.array(column.by_row, pa.string())
    if isinstance(column, RaggedColumn):
        offsets = np.concatenate([[0], np.cumsum(np.maximum(column.sizes, 0))]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(column.flat), mask=pa.array(column.sizes < 0))
    return pa.array(column, from_pandas=False)  # NaN stays NaN, so that no column has nulls


def _to_column(array: pa.Array) -> Column:
    if pa.types.is_list(array.type):
        sizes = array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        return RaggedColumn(sizes.astype(np.int32), array.flatten().to_numpy())
    if pa.types.is_dictionary(array.type):
        texts = np.array(array.dictionary.to_pylist(), dtype=np.object_)
        return TextCodes(array.indices.fill_null(-1).to_numpy(zero_copy_only=False), texts)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values
