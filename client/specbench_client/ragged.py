"""Columns of short arrays, one per row, stored flat: an array object per row would cost more than its few numbers.

A column is an Arrow list array with the numbers of each row, entry by entry: an entry of a tally is a value and its
count. So pandas filters, sorts and concatenates it like any other column, and it is read as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
RowIndices = NDArray[np.int32]


def to_ragged(arrays: Sequence[NDArray[np.number] | None], kind: type[np.number]) -> pd.Series:
    """Return a column from one array of shape (fields, entries) per row, None for missing, stored as `kind`."""
    sizes = np.array([-1 if each is None else each.size for each in arrays], dtype=np.int32)
    flat = np.concatenate([np.empty(0), *(each.T.ravel() for each in arrays if each is not None)]).astype(kind)
    return from_flat(sizes, flat)


def ragged_of_entries(
    fields: NDArray[np.number], owner: NDArray[np.integer], known: Mask, kind: type[np.number]
) -> pd.Series:
    """Return a column from the entries of all rows, sorted by row: `fields`, shape (fields, entries), stored as `kind`.

    `owner`: the row of each entry; `known`: mask, shape (rows,), of the rows that have an array.
    """
    sizes = np.bincount(owner, minlength=known.size) * len(fields)
    return from_flat(np.where(known, sizes, -1).astype(np.int32), fields.T.ravel().astype(kind))


@dataclass(frozen=True)
class RaggedColumn:
    """All rows of a ragged column: `fields`, shape (fields, entries), and the row of each entry, `owner`."""

    fields: NDArray[np.number]
    owner: RowIndices
    known: Mask
    """Mask, shape (rows,), of the rows that have an array."""

    @classmethod
    def of(cls, column: pd.Series, fields: int) -> RaggedColumn:
        """Read a column whose entries have `fields` numbers each."""
        array = _list_array(column)
        flat: NDArray[np.number] = array.flatten().to_numpy()
        sizes = array.value_lengths().fill_null(0).to_numpy() // fields
        known = np.asarray(array.is_valid(), dtype=np.bool_)
        return cls(flat.reshape(-1, fields).T, np.repeat(np.arange(len(array), dtype=np.int32), sizes), known)

    def sums(self, weights: NDArray[np.number]) -> Values:
        """Return the sum of the weights of each row's entries, shape (rows,); NaN for rows without an array."""
        return np.where(self.known, np.bincount(self.owner, weights, self.known.size), np.nan)

    def arrays(self) -> list[Values | None]:
        """Return each row's array, shape (fields, entries); None for missing."""
        ends = np.cumsum(np.bincount(self.owner, minlength=self.known.size))
        pieces = np.split(self.fields.astype(np.float64), ends[:-1], axis=1) if self.known.size else []
        return [piece if there else None for piece, there in zip(pieces, self.known, strict=True)]


def _list_array(column: pd.Series) -> pa.ListArray:
    """Return the column as a single Arrow array."""
    array = pa.array(column.array)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def to_flat(column: pd.Series) -> tuple[NDArray[np.int32], NDArray[np.number]]:
    """Return a ragged column as plain arrays: the number of values per row, −1 for missing, and all values."""
    array = _list_array(column)
    sizes = array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return sizes, array.flatten().to_numpy()


def from_flat(sizes: NDArray[np.int32], numbers: NDArray[np.number], at: RowIndices | None = None) -> pd.Series:
    """Return the ragged column that `to_flat` decomposed, or only the rows `at`."""
    offsets = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))]).astype(np.int32)
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers), mask=pa.array(sizes < 0))
    return pd.Series(pd.arrays.ArrowExtensionArray(column if at is None else column.take(pa.array(at))))
