"""Tidy rows that are not held: each column is read from its shelf when it is asked for, and let go again.

Rows of a cell may be a million, and a row has some three hundred bytes, of which a figure looks at twenty. So rows are
laid down column by column, in blocks of one point each (`Rows`). They answer to what every metric asks of a data frame
(`Columns`): a column by its name, and how many rows there are. Which rows are meant is a list of their numbers.

Texts that are few (prompts, categories, words) are kept once, and of each row its number among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.packed import Mask, listed, unlisted
from specbench_client.shelf import Shelf, Slot

BLOCK_ROWS = 16_384
"""Rows that are laid down together: some MB while they are put together."""
Numbers = NDArray[np.int32]


class Columns(Protocol):
    """Rows as whoever reads figures off them sees them: a data frame, or rows that are read as they are asked for."""

    def __getitem__(self, name: str, /) -> pd.Series: ...

    def __contains__(self, name: object, /) -> bool: ...

    def __len__(self) -> int: ...


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
        read = [_series(block, at, name) for block, at in self._held()]
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


POINT = "point"
"""The one column that a block has not: its rows are of one point."""
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


ARRAYS = ("edge_ns", "edge_tokens")
"""Columns of an array a row; other columns of objects are texts."""


def stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the frames' rows one below the other. The list is emptied: column by column, so that no two copies are."""
    names = list(frames[0].columns)
    columns = {name: [frame[name] for frame in frames] for name in names}
    frames.clear()
    return pd.DataFrame({name: pd.concat(columns.pop(name), ignore_index=True) for name in names}, copy=False)


def _series(block: Block, at: Numbers | None, name: str) -> pd.Series:
    if name == POINT:
        return pd.Series(np.full(block.size if at is None else at.size, block.point, dtype=np.object_), dtype=object)
    return block.columns[name].series(at)


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
