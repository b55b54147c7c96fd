"""Short arrays, one a row, kept behind one another: an array object costs more than the few numbers in it.

A column holds the numbers of each row in one Arrow list, entry by entry: an entry of a tally is a value and how often
it is there. So a column is filtered, sorted and put together by pandas as any other, and read as a whole.
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
Places = NDArray[np.int32]


def packed(arrays: Sequence[NDArray[np.number] | None], kind: type[np.number]) -> pd.Series:
    """Return them as a column: one array of fields × entries a row, None for missing. `kind`: of the numbers kept."""
    sizes = np.array([0 if each is None else each.size for each in arrays], dtype=np.int32)
    flat = np.concatenate([np.empty(0), *(each.T.ravel() for each in arrays if each is not None)]).astype(kind)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    missing = pa.array([each is None for each in arrays], pa.bool_())
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=missing)
    return pd.Series(pd.arrays.ArrowExtensionArray(column))


@dataclass(frozen=True)
class Packed:
    """A packed column as a whole. `fields`: fields × entries of all rows; `owner`: whose each entry is."""

    fields: NDArray[np.number]
    owner: Places
    known: Mask
    """Which rows have an array."""

    @classmethod
    def of(cls, column: pd.Series, fields: int) -> Packed:
        """Read it. `fields`: numbers of an entry."""
        array = _arrow(column)
        flat: NDArray[np.number] = array.flatten().to_numpy()
        sizes = array.value_lengths().fill_null(0).to_numpy() // fields
        known = np.asarray(array.is_valid(), dtype=np.bool_)
        return cls(flat.reshape(-1, fields).T, np.repeat(np.arange(len(array), dtype=np.int32), sizes), known)

    def sums(self, weights: NDArray[np.number]) -> Values:
        """Return for each row the sum of its entries' weights; missing where it has no array."""
        return np.where(self.known, np.bincount(self.owner, weights, self.known.size), np.nan)

    def arrays(self) -> list[Values | None]:
        """Return each row's own array, fields × entries; None for missing."""
        ends = np.cumsum(np.bincount(self.owner, minlength=self.known.size))
        pieces = np.split(self.fields.astype(np.float64), ends[:-1], axis=1) if self.known.size else []
        return [piece if there else None for piece, there in zip(pieces, self.known, strict=True)]


def _arrow(column: pd.Series) -> pa.ListArray:
    """One array, cut to the rows of the column."""
    array = pa.array(column.array)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def listed(column: pd.Series) -> tuple[NDArray[np.int32], NDArray[np.number]]:
    """Return a packed column as plain arrays: how many numbers each row has, −1 for missing, and all numbers."""
    array = _arrow(column)
    sizes = array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return sizes, array.flatten().to_numpy()


def unlisted(sizes: NDArray[np.int32], numbers: NDArray[np.number], at: Places | None) -> pd.Series:
    """Return the packed column again that `listed` took apart, or these rows of it."""
    offsets = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))]).astype(np.int32)
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers), mask=pa.array(sizes < 0))
    return pd.Series(pd.arrays.ArrowExtensionArray(column if at is None else column.take(pa.array(at))))
