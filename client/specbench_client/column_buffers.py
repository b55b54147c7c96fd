"""Storage for columns between two uses: in memory here, on disk in `store.scratch`.

Worker processes load `store`, so this module must not import pandas or pyarrow, which `ragged` needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]


class ColumnHandle(Protocol):
    """A stored column of a block."""

    def read(self) -> Column:
        """Return the column; the caller must not write to it."""
        ...


class ColumnStore(Protocol):
    """Stores columns. The data is deleted with the last of its handles."""

    def put(self, values: Column) -> ColumnHandle:
        """Store a one-dimensional column of numbers or booleans."""
        ...


@dataclass(frozen=True)
class _InMemoryColumn:
    values: Column

    def read(self) -> Column:
        return self.values


class MemoryColumnStore:
    """Keeps columns in memory."""

    def put(self, values: Column) -> ColumnHandle:
        return _InMemoryColumn(np.ascontiguousarray(values))


ColumnStoreFactory = Callable[[], ColumnStore]
"""Creates a column store for the rows of one arm at one workload and load."""
