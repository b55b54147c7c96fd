"""Lazily loaded tidy rows: each column is read from a column store on access and released again.

A cell may have a million rows of about three hundred bytes, of which a figure uses twenty. So rows are stored column by
column, in blocks of one point each, and `Rows` offers what metrics need from a data frame (`Columns`): a column by
name, and the number of rows. A subset of rows is a list of row indices.

What is computed row by row is computed piece by piece (`iter_pieces`), so that only its result is in memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.column_buffers import ColumnHandle, ColumnStore
from specbench_client.ragged import Mask, from_flat, to_flat

BLOCK_ROWS = 16_384
"""Rows per stored block: some MB while a block is assembled."""
RowNumbers = NDArray[np.int32]
POINT = "point"
"""The one column that a block does not store, because its rows are all of one point."""


class StoredColumn(Protocol):
    """A stored column of a block."""

    def series(self, at: RowNumbers | None) -> pd.Series:
        """Return the values of these rows of the block, or of all rows if `at` is None."""
        ...


@dataclass(frozen=True)
class _NumberColumn:
    """Numbers or booleans."""

    handle: ColumnHandle

    def series(self, at: RowNumbers | None) -> pd.Series:
        values = self.handle.read()
        return pd.Series(values if at is None else values[at], copy=False)


@dataclass(frozen=True)
class _TextColumn:
    """Texts, stored as codes in a vocabulary of the different texts; −1 means missing."""

    handle: ColumnHandle
    vocabulary: TextVocabulary

    def series(self, at: RowNumbers | None) -> pd.Series:
        codes = self.handle.read()
        return pd.Series(self.vocabulary.texts[codes if at is None else codes[at]], dtype=object, copy=False)

    def codes(self, at: RowNumbers | None) -> RowNumbers:
        """Return the code of each row's text."""
        codes: RowNumbers = self.handle.read()
        return codes if at is None else codes[at]


@dataclass(frozen=True)
class _ListColumn:
    """Lists of numbers, stored flat and read as an Arrow column (`specbench_client.ragged`)."""

    sizes: ColumnHandle
    values: ColumnHandle

    def series(self, at: RowNumbers | None) -> pd.Series:
        return from_flat(self.sizes.read(), self.values.read(), at)


class TextVocabulary:
    """The different texts of a column, each with its code."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: NDArray[np.object_] = np.array([None], dtype=np.object_)

    def codes(self, column: pd.Series) -> RowNumbers:
        """Return the code of each text, shape (rows,), and assign codes to new texts."""
        codes, found = pd.factorize(column.to_numpy(object))
        known = [self._numbers.setdefault(str(text), len(self._numbers)) for text in found]
        return np.array([*known, -1], dtype=np.int32)[codes]

    @property
    def texts(self) -> NDArray[np.object_]:
        """The texts by code; the last entry is None, which code −1 selects."""
        if self._texts.size != len(self._numbers) + 1:
            self._texts = np.array([*self._numbers, None], dtype=np.object_)
        return self._texts


@dataclass(frozen=True)
class TextCodes:
    """A column of texts as codes, shape (rows,), −1 for missing, and the texts by code; some may be in no row."""

    codes: RowNumbers
    texts: NDArray[np.object_]

    @classmethod
    def of(cls, column: pd.Series) -> TextCodes:
        """Return the codes of a column."""
        codes, texts = pd.factorize(column.to_numpy(object))
        return cls(codes.astype(np.int32), texts)


@dataclass(frozen=True)
class RowBlock:
    """Rows of one point that were stored together."""

    point: str
    size: int
    columns: Mapping[str, StoredColumn]

    def series(self, name: str, at: RowNumbers | None) -> pd.Series:
        """Return a column of these rows of the block, or of all rows if `at` is None."""
        if name != POINT:
            return self.columns[name].series(at)
        points = np.full(self.size if at is None else at.size, self.point, dtype=np.object_)
        return pd.Series(points, dtype=object, copy=False)


def store_rows(
    frames: Iterable[pd.DataFrame], point: str, store: ColumnStore, vocabularies: dict[str, TextVocabulary]
) -> list[RowBlock]:
    """Store the tidy rows of one point in blocks, keeping none in memory.

    `frames` has at least one frame; `vocabularies`, by column, is extended.
    """
    blocks: list[RowBlock] = []
    waiting: list[pd.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(map(len, waiting)) >= BLOCK_ROWS:
            blocks.append(_store_block(waiting, point, store, vocabularies))
            waiting = []
    if waiting or not blocks:
        blocks.append(_store_block(waiting, point, store, vocabularies))
    return blocks


def replace_columns(
    block: RowBlock, frame: pd.DataFrame, store: ColumnStore, vocabularies: dict[str, TextVocabulary]
) -> RowBlock:
    """Return the block with its columns replaced by those of the frame."""
    return replace(block, columns={**block.columns, **_store_columns(frame, store, vocabularies)})


def _store_block(
    frames: list[pd.DataFrame], point: str, store: ColumnStore, vocabularies: dict[str, TextVocabulary]
) -> RowBlock:
    frame = concat_frames(frames)
    return RowBlock(point, len(frame), _store_columns(frame.drop(columns=[POINT]), store, vocabularies))


def _store_columns(
    frame: pd.DataFrame, store: ColumnStore, vocabularies: dict[str, TextVocabulary]
) -> dict[str, StoredColumn]:
    return {str(name): _store_column(str(name), frame[name], store, vocabularies) for name in frame}


def _store_column(
    name: str, column: pd.Series, store: ColumnStore, vocabularies: dict[str, TextVocabulary]
) -> StoredColumn:
    if isinstance(column.dtype, pd.ArrowDtype):
        sizes, values = to_flat(column)
        return _ListColumn(store.put(sizes), store.put(values))
    if column.dtype != np.object_:
        return _NumberColumn(store.put(column.to_numpy()))
    known = vocabularies.setdefault(name, TextVocabulary())
    return _TextColumn(store.put(known.codes(column)), known)


def concat_frames(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the frames' rows concatenated, and empty the list column by column, so that there is only one copy."""
    names = list(frames[0].columns)
    columns = {name: [frame[name] for frame in frames] for name in names}
    frames.clear()
    return pd.DataFrame({name: pd.concat(columns.pop(name), ignore_index=True) for name in names}, copy=False)


class Columns(Protocol):
    """What metrics read: a data frame, or lazily loaded rows."""

    def __getitem__(self, name: str, /) -> pd.Series: ...

    def __contains__(self, name: object, /) -> bool: ...

    def __len__(self) -> int: ...


class LazyColumns(Columns):
    """Columns that are read on access. A base class, because `isinstance` with a protocol takes 0.1 ms."""

    @abstractmethod
    def pieces(self) -> Iterator[Columns]:
        """Yield the rows piece by piece, in their order; at least one piece, which may have no rows."""

    @abstractmethod
    def codes(self, name: str) -> TextCodes:
        """Return a column of texts as codes."""


@dataclass(frozen=True)
class Rows(LazyColumns):
    """Rows of some blocks. `where` are the indices of the selected rows, ascending; None selects all."""

    blocks: Sequence[RowBlock]
    where: RowNumbers | None = None

    def __len__(self) -> int:
        return int(self._starts[-1]) if self.where is None else int(self.where.size)

    def __contains__(self, name: object) -> bool:
        return name == POINT or name in self.blocks[0].columns

    def __getitem__(self, name: str) -> pd.Series:
        selected = self._selected()
        first = selected[0][0].series(name, selected[0][1])
        if len(selected) == 1:
            return first
        if isinstance(first.dtype, pd.ArrowDtype):
            return pd.concat([block.series(name, at) for block, at in selected], ignore_index=True)
        values: NDArray[Any] = np.empty(len(self), dtype=first.to_numpy().dtype)
        fill(values, (block.series(name, at).to_numpy() for block, at in selected))
        return pd.Series(values, dtype=values.dtype, copy=False)

    def codes(self, name: str) -> TextCodes:
        """Return a column of texts as codes, without building the texts of the rows."""
        columns = [(cast("_TextColumn", block.columns[name]), at) for block, at in self._selected()]
        vocabulary = columns[0][0].vocabulary
        assert all(column.vocabulary is vocabulary for column, _ in columns), f"{name} has one vocabulary"
        codes = np.empty(len(self), dtype=np.int32)
        fill(codes, (column.codes(at) for column, at in columns))
        return TextCodes(codes, vocabulary.texts[:-1])

    def read(self, names: Iterable[str]) -> pd.DataFrame:
        """Return these columns as a data frame."""
        return pd.DataFrame({name: self[name] for name in names}, copy=False)

    def among(self, mask: Mask) -> Rows:
        """Return the rows selected by a mask of shape (rows,)."""
        if mask.all():
            return self
        return self.at(np.flatnonzero(mask).astype(np.int32))

    def at(self, indices: RowNumbers) -> Rows:
        """Return the rows with these indices, which are ascending."""
        return replace(self, where=indices if self.where is None else self.where[indices])

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows one block at a time; at least one piece, which may have no rows."""
        return (Rows((block,), at) for block, at in self._selected())

    def by_point(self) -> Iterator[Rows]:
        """Yield the rows of each point that has any, sorted by point."""
        selected = [(block, at) for block, at in self._selected() if (block.size if at is None else at.size)]
        for point in sorted({block.point for block, _ in selected}):
            yield _of_blocks([(block, at) for block, at in selected if block.point == point])

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(block.size for block in self.blocks)])

    def _selected(self) -> list[tuple[RowBlock, RowNumbers | None]]:
        """The blocks with selected rows and the indices within the block; the first block if there are none."""
        if self.where is None:
            return [(block, None) for block in self.blocks]
        bounds = np.searchsorted(self.where, self._starts)
        found: list[tuple[RowBlock, RowNumbers | None]] = []
        for block, start, (low, high) in zip(self.blocks, self._starts, pairwise(bounds), strict=False):
            if high > low:
                at = (self.where[low:high] - start).astype(np.int32)
                found.append((block, None if at.size == block.size else at))
        return found or [(self.blocks[0], np.empty(0, dtype=np.int32))]


T = TypeVar("T", bound=pd.DataFrame | Rows)


def select_rows(rows: T, mask: Mask) -> T:
    """Return the rows selected by a mask of shape (rows,), with a new index."""
    selected = (
        rows.among(mask) if isinstance(rows, Rows) else (rows if mask.all() else rows[mask]).reset_index(drop=True)
    )
    return cast("T", selected)


def rows_at(rows: T, indices: RowNumbers) -> T:
    """Return the rows with these indices, which are ascending, with a new index."""
    selected = rows.at(indices) if isinstance(rows, Rows) else rows.iloc[indices].reset_index(drop=True)
    return cast("T", selected)


def read_columns(rows: Columns, names: Iterable[str]) -> pd.DataFrame:
    """Return these columns as a data frame."""
    if isinstance(rows, pd.DataFrame):
        return rows[list(names)]
    return pd.DataFrame({name: rows[name] for name in names}, copy=False)


def iter_pieces(rows: Columns) -> Iterable[Columns]:
    """Split the rows into pieces, for row-wise computations that need not load all rows at once."""
    return rows.pieces() if isinstance(rows, LazyColumns) else [rows]


def text_codes(rows: Columns, name: str) -> TextCodes:
    """Return a column of texts as codes: 4 bytes per row, where a series of texts has 8."""
    return rows.codes(name) if isinstance(rows, LazyColumns) else TextCodes.of(rows[name])


def has_text(rows: Columns, name: str, text: str) -> Mask:
    """Return a mask, shape (rows,), of the rows that have this text in a column."""
    found = text_codes(rows, name)
    code = np.flatnonzero(found.texts == text)
    mask: Mask = found.codes == (code[0] if code.size else -2)
    return mask


def distinct_texts(rows: Columns, name: str) -> list[str]:
    """Return the different texts of a column, sorted, without missing ones."""
    found = {text for piece in iter_pieces(rows) for text in _present(text_codes(piece, name))}
    return sorted(str(text) for text in found)


def _present(column: TextCodes) -> NDArray[np.object_]:
    present = np.zeros(column.texts.size + 1, dtype=np.bool_)
    present[column.codes] = True
    return column.texts[present[:-1]]


def fill(values: NDArray[Any], pieces: Iterable[NDArray[Any]]) -> None:
    """Write the pieces into the array, one after the other; concatenation would hold all of them twice."""
    start = 0
    for piece in pieces:
        values[start : start + piece.size] = piece
        start += piece.size


def _of_blocks(selected: Sequence[tuple[RowBlock, RowNumbers | None]]) -> Rows:
    """Return `Rows` over only these blocks and their selected rows."""
    blocks = [block for block, _ in selected]
    if all(at is None for _, at in selected):
        return Rows(blocks)
    starts = np.cumsum([0, *(block.size for block in blocks)])
    each = [
        (np.arange(block.size) if at is None else at) + start
        for (block, at), start in zip(selected, starts, strict=False)
    ]
    return Rows(blocks, np.concatenate(each).astype(np.int32))
