"""Where columns lie between two looks at them: in memory here, on disk in `store.shelf`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]


class Slot(Protocol):
    """One column of one block, laid down."""

    def read(self) -> Column:
        """Return it as it was; whoever reads it does not write into it."""
        ...


class Shelf(Protocol):
    """Takes columns. What lies on it is gone with the last of its slots."""

    def lay(self, values: Column) -> Slot:
        """Lay a column down, of one dimension and of numbers or booleans."""
        ...


@dataclass(frozen=True)
class _Held:
    values: Column

    def read(self) -> Column:
        return self.values


class MemoryShelf:
    """Keeps columns where they are."""

    def lay(self, values: Column) -> Slot:
        return _Held(np.ascontiguousarray(values))


Shelves = Callable[[], Shelf]
"""Makes a shelf for the rows of one arm at one workload and load."""
