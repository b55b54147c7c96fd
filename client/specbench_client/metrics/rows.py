"""Tidy rows that are not held: each column is read from its shelf when it is asked for, and let go again.

Rows of a cell may be a million, and a row has some three hundred bytes, of which a figure looks at twenty. So rows are
laid down column by column (`metrics.blocks`). They answer to what every metric asks of a data frame
(`Columns`): a column by its name, and how many rows there are. Which rows are meant is a list of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.blocks import POINT, Block, Numbers
from specbench_client.packed import Mask


class Columns(Protocol):
    """Rows as whoever reads figures off them sees them: a data frame, or rows that are read as they are asked for."""

    def __getitem__(self, name: str, /) -> pd.Series: ...

    def __contains__(self, name: object, /) -> bool: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Rows:
    """Rows of blocks. `where`: numbers of the rows that are meant, rising; None for all."""

    blocks: Sequence[Block]
    where: Numbers | None = None

    def __len__(self) -> int:
        return int(self._begins[-1]) if self.where is None else int(self.where.size)

    def __contains__(self, name: object) -> bool:
        return name == POINT or name in self.blocks[0].columns

    def __getitem__(self, name: str) -> pd.Series:
        read = [block.series(name, at) for block, at in self._held()]
        return read[0] if len(read) == 1 else _joined(read)

    def read(self, names: Iterable[str]) -> pd.DataFrame:
        """Return these columns as a data frame."""
        return pd.DataFrame({name: self[name] for name in names}, copy=False)

    def among(self, mine: Mask) -> Rows:
        """Return the rows that are marked."""
        if mine.all():
            return self
        return self.at(np.flatnonzero(mine).astype(np.int32))

    def at(self, places: Numbers) -> Rows:
        """Return the rows of these numbers, which rise."""
        return replace(self, where=places if self.where is None else self.where[places])

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows a block at a time; one piece at least, which may have no rows."""
        return (Rows((block,), at) for block, at in self._held())

    def by_point(self) -> Iterator[Rows]:
        """Yield the rows of each point that has any, by the name of the point."""
        held = [(block, at) for block, at in self._held() if (block.size if at is None else at.size)]
        for point in sorted({block.point for block, _ in held}):
            yield _together([(block, at) for block, at in held if block.point == point])

    @cached_property
    def _begins(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(block.size for block in self.blocks)])

    def _held(self) -> list[tuple[Block, Numbers | None]]:
        """The blocks with any row that is meant, and which of their own rows; the first block where there is none."""
        if self.where is None:
            return [(block, None) for block in self.blocks]
        bounds = np.searchsorted(self.where, self._begins)
        found: list[tuple[Block, Numbers | None]] = []
        for block, begun, (low, high) in zip(self.blocks, self._begins, pairwise(bounds), strict=False):
            if high > low:
                at = (self.where[low:high] - begun).astype(np.int32)
                found.append((block, None if at.size == block.size else at))
        return found or [(self.blocks[0], np.empty(0, dtype=np.int32))]


T = TypeVar("T", bound=pd.DataFrame | Rows)


def among(rows: T, mine: Mask) -> T:
    """Return the rows that are marked, numbered anew."""
    kept = rows.among(mine) if isinstance(rows, Rows) else (rows if mine.all() else rows[mine]).reset_index(drop=True)
    return cast("T", kept)


def at(rows: T, places: Numbers) -> T:
    """Return the rows of these numbers, which rise, numbered anew."""
    kept = rows.at(places) if isinstance(rows, Rows) else rows.iloc[places].reset_index(drop=True)
    return cast("T", kept)


def read(rows: Columns, names: Iterable[str]) -> pd.DataFrame:
    """Return these columns as a data frame."""
    if isinstance(rows, pd.DataFrame):
        return rows[list(names)]
    return pd.DataFrame({name: rows[name] for name in names}, copy=False)


def pieces(rows: Columns) -> Iterable[Columns]:
    """Cut the rows where whoever asks for one row after the other may do so piece by piece."""
    return rows.pieces() if isinstance(rows, Rows) else [rows]


def _joined(read: list[pd.Series]) -> pd.Series:
    """One column of the blocks' own, of numbers or texts."""
    if isinstance(read[0].dtype, pd.ArrowDtype):
        return pd.concat(read, ignore_index=True)
    return pd.Series(np.concatenate([each.to_numpy() for each in read]), dtype=read[0].dtype, copy=False)


def _together(held: Sequence[tuple[Block, Numbers | None]]) -> Rows:
    """The rows of these blocks alone that are meant."""
    blocks = [block for block, _ in held]
    if all(at is None for _, at in held):
        return Rows(blocks)
    begins = np.cumsum([0, *(block.size for block in blocks)])
    each = [
        (np.arange(block.size) if at is None else at) + begun for (block, at), begun in zip(held, begins, strict=False)
    ]
    return Rows(blocks, np.concatenate(each).astype(np.int32))
