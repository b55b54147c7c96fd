"""Tidy rows laid down: blocks of one point each, every column of which lies on a shelf.

Texts that are few (prompts, categories, words) are kept once, and of each row its number among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.packed import listed, unlisted
from specbench_client.shelf import Shelf, Slot

BLOCK_ROWS = 16_384
"""Rows that are laid down together: some MB while they are put together."""
Numbers = NDArray[np.int32]
POINT = "point"
"""The one column that a block has not: its rows are of one point."""
ARRAYS = ("edge_ns", "edge_tokens")
"""Columns of an array a row; other columns of objects are texts."""


class Laid(Protocol):
    """A column of a block."""

    def series(self, at: Numbers | None) -> pd.Series:
        """Return the values of these rows of the block, or of all."""
        ...


@dataclass(frozen=True)
class _Plain:
    """Numbers or flags."""

    slot: Slot

    def series(self, at: Numbers | None) -> pd.Series:
        values = self.slot.read()
        return pd.Series(values if at is None else values[at], copy=False)


@dataclass(frozen=True)
class _Coded:
    """Texts, by their number in a vocabulary; −1 for missing."""

    slot: Slot
    words: Words

    def series(self, at: Numbers | None) -> pd.Series:
        codes = self.slot.read()
        return pd.Series(self.words.texts[codes if at is None else codes[at]], dtype=object, copy=False)


@dataclass(frozen=True)
class _Packed:
    """Lists of numbers, one behind the other, read as an Arrow column (`specbench_client.packed`)."""

    sizes: Slot
    values: Slot

    def series(self, at: Numbers | None) -> pd.Series:
        return unlisted(self.sizes.read(), self.values.read(), at)


@dataclass(frozen=True)
class _Arrays:
    """The same, read as an array a row; None for missing."""

    sizes: Slot
    values: Slot

    def series(self, at: Numbers | None) -> pd.Series:
        sizes, values = self.sizes.read(), self.values.read()
        ends = np.cumsum(np.maximum(sizes, 0))
        meant = np.arange(sizes.size, dtype=np.int32) if at is None else at
        column = np.empty(meant.size, dtype=np.object_)
        for index in np.flatnonzero(sizes[meant] >= 0):
            row = meant[index]
            column[index] = values[ends[row] - sizes[row] : ends[row]]
        return pd.Series(column, dtype=object, copy=False)


class Words:
    """The different texts of a column, each with its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: NDArray[np.object_] = np.array([None], dtype=np.object_)

    def codes(self, column: pd.Series) -> Numbers:
        """Return the number of each text; new ones get the next."""
        codes, found = pd.factorize(column.to_numpy(object))
        known = [self._numbers.setdefault(str(text), len(self._numbers)) for text in found]
        return np.array([*known, -1], dtype=np.int32)[codes]

    @property
    def texts(self) -> NDArray[np.object_]:
        """The texts by number; the last is None, which −1 means."""
        if self._texts.size != len(self._numbers) + 1:
            self._texts = np.array([*self._numbers, None], dtype=np.object_)
        return self._texts


@dataclass(frozen=True)
class Block:
    """Rows of one point that were laid down together."""

    point: str
    size: int
    columns: Mapping[str, Laid]

    def series(self, name: str, at: Numbers | None) -> pd.Series:
        """Return a column of these rows of the block, or of all."""
        if name != POINT:
            return self.columns[name].series(at)
        points = np.full(self.size if at is None else at.size, self.point, dtype=np.object_)
        return pd.Series(points, dtype=object, copy=False)


def laid_down(frames: Iterable[pd.DataFrame], point: str, shelf: Shelf, words: dict[str, Words]) -> list[Block]:
    """Lay tidy rows of one point down, and keep none. `frames`: one at least. `words`: of each column, grows."""
    blocks: list[Block] = []
    waiting: list[pd.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(map(len, waiting)) >= BLOCK_ROWS:
            blocks.append(_block(waiting, point, shelf, words))
            waiting = []
    if waiting or not blocks:
        blocks.append(_block(waiting, point, shelf, words))
    return blocks


def with_columns(block: Block, frame: pd.DataFrame, shelf: Shelf, words: dict[str, Words]) -> Block:
    """Return the block with these columns of its rows in place of its own."""
    return replace(block, columns={**block.columns, **_columns(frame, shelf, words)})


def _block(frames: list[pd.DataFrame], point: str, shelf: Shelf, words: dict[str, Words]) -> Block:
    frame = stacked(frames)
    return Block(point, len(frame), _columns(frame.drop(columns=[POINT]), shelf, words))


def _columns(frame: pd.DataFrame, shelf: Shelf, words: dict[str, Words]) -> dict[str, Laid]:
    return {str(name): _laid(str(name), frame[name], shelf, words) for name in frame}


def _laid(name: str, column: pd.Series, shelf: Shelf, words: dict[str, Words]) -> Laid:
    if isinstance(column.dtype, pd.ArrowDtype):
        sizes, values = listed(column)
        return _Packed(shelf.lay(sizes), shelf.lay(values))
    if column.dtype != np.object_:
        return _Plain(shelf.lay(column.to_numpy()))
    if name in ARRAYS:
        sizes = np.array([-1 if each is None else each.size for each in column], dtype=np.int32)
        values = np.concatenate([np.empty(0), *(each for each in column if each is not None)])
        return _Arrays(shelf.lay(sizes), shelf.lay(values))
    known = words.setdefault(name, Words())
    return _Coded(shelf.lay(known.codes(column)), known)


def stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the frames' rows one below the other. The list is emptied: column by column, so that no two copies are."""
    names = list(frames[0].columns)
    columns = {name: [frame[name] for frame in frames] for name in names}
    frames.clear()
    return pd.DataFrame({name: pd.concat(columns.pop(name), ignore_index=True) for name in names}, copy=False)
