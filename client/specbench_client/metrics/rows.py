"""Tables of tidy rows, in memory (`Table`) or loaded lazily (`Rows`): each column is read on access and released again.

A cell may have a million rows of about three hundred bytes, of which a figure uses twenty. So rows are stored column by
column, in blocks, and metrics read a column by name. A subset of stored rows is a list of row indices.

What is computed row by row is computed piece by piece (`Columns.pieces`), so that only its result is in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from specbench_client.columns import (
    Array,
    Column,
    Mask,
    RaggedColumn,
    RaggedEntries,
    RowIndices,
    StoreArray,
    TextCodes,
    join_columns,
)

BLOCK_ROWS = 16_384
"""Rows per stored block: some MB while a block is assembled."""
POINT = "point"
"""The column with the hash of a row's point."""


class Columns(ABC):
    """What metrics read: columns by name, all with the same number of rows."""

    @abstractmethod
    def column(self, name: str) -> Column:
        """Return a column."""

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pieces(self) -> Iterator[Columns]:
        """Yield the rows piece by piece, in their order; at least one piece, which may have no rows."""

    def array(self, name: str) -> Array:
        """Return a column of numbers or booleans, shape (rows,)."""
        column = self.column(name)
        assert isinstance(column, np.ndarray), name
        return column

    def codes(self, name: str) -> TextCodes:
        """Return a column of texts as codes."""
        column = self.column(name)
        assert isinstance(column, TextCodes), name
        return column

    def lists(self, name: str, fields: int = 1) -> RaggedEntries:
        """Return a column of lists, whose entries have `fields` numbers each."""
        column = self.column(name)
        assert isinstance(column, RaggedColumn), name
        return column.entries(fields)

    def known(self, name: str) -> Mask:
        """Return a mask, shape (rows,), of the rows that have a value in a column."""
        column = self.column(name)
        return ~np.isnan(column) if isinstance(column, np.ndarray) else column.known

    def table(self, names: Iterable[str]) -> Table:
        """Return these columns in memory."""
        return Table({name: self.column(name) for name in names})


class TidyRows(Columns):
    """Rows of which some can be selected."""

    @abstractmethod
    def at(self, indices: NDArray[np.integer]) -> Self:
        """Return the rows with these indices, which are ascending."""

    def among(self, mask: Mask) -> Self:
        """Return the rows selected by a mask of shape (rows,)."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    def by_point(self) -> Iterator[Self]:
        """Yield the rows of each point that has any, sorted by point."""
        points = self.codes(POINT)
        for code in sorted(np.unique(points.codes), key=lambda code: str(points.texts[code])):
            yield self.among(points.codes == code)


@dataclass(frozen=True)
class Table(TidyRows):
    """Columns in memory, at least one, by name."""

    columns: Mapping[str, Column]

    def column(self, name: str) -> Column:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def pieces(self) -> Iterator[Table]:
        """Yield the whole table."""
        yield self

    def at(self, indices: NDArray[np.integer]) -> Table:
        """Return the rows with these indices, in their order."""
        return Table({name: column[indices] for name, column in self.columns.items()})

    def assign(self, **columns: Column) -> Table:
        """Return the table with these columns, new ones or instead of its own."""
        return Table({**self.columns, **columns})


def join_tables(tables: list[Table]) -> Table:
    """Return the tables' rows as one table, and empty the list column by column, so that there is only one copy."""
    rows = sum(map(len, tables))
    columns = {name: [table.columns[name] for table in tables] for name in tables[0].columns}
    tables.clear()
    return Table({name: join_columns(iter(columns.pop(name)), rows) for name in list(columns)})


ReadColumn = Callable[[], Column]
"""Reads a stored column of a block; the caller must not write to it."""


class TextVocabulary:
    """The different texts of a column in all blocks, each with its code."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: NDArray[np.object_] = np.array([], dtype=np.object_)

    def codes(self, column: TextCodes) -> RowIndices:
        """Return the code of each text, shape (rows,), and assign codes to new texts."""
        return column.numbered(self._numbers)

    @property
    def texts(self) -> NDArray[np.object_]:
        """The texts by code."""
        if self._texts.size != len(self._numbers):
            self._texts = np.array([*self._numbers], dtype=np.object_)
        return self._texts


@dataclass(frozen=True)
class RowBlock:
    """Rows that were stored together."""

    size: int
    columns: Mapping[str, ReadColumn]

    def column(self, name: str, at: RowIndices | None) -> Column:
        """Return a column of these rows of the block, or of all rows if `at` is None."""
        column = self.columns[name]()
        return column if at is None else column[at]


def store_rows(tables: Iterable[Table], store: StoreArray) -> Rows:
    """Store the rows of these tables, at least one, in blocks; tables are not kept in memory."""
    vocabularies: dict[str, TextVocabulary] = {}
    blocks: list[RowBlock] = []
    waiting: list[Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= BLOCK_ROWS:
            blocks.append(_store_block(join_tables(waiting), store, vocabularies))
    if waiting or not blocks:
        blocks.append(_store_block(join_tables(waiting), store, vocabularies))
    return Rows(blocks)


def _store_block(table: Table, store: StoreArray, vocabularies: dict[str, TextVocabulary]) -> RowBlock:
    columns = {name: _store_column(name, column, store, vocabularies) for name, column in table.columns.items()}
    return RowBlock(len(table), columns)


def _store_column(name: str, column: Column, store: StoreArray, vocabularies: dict[str, TextVocabulary]) -> ReadColumn:
    if isinstance(column, RaggedColumn):
        sizes, flat = store(column.sizes), store(column.flat)
        return lambda: RaggedColumn(sizes(), flat())
    if isinstance(column, TextCodes):
        known = vocabularies.setdefault(name, TextVocabulary())
        codes = store(known.codes(column))
        return lambda: TextCodes(codes(), known.texts)
    return store(column)


@dataclass(frozen=True)
class Rows(TidyRows):
    """Rows of some blocks. `where` are the indices of the selected rows, ascending; None selects all."""

    blocks: Sequence[RowBlock]
    where: RowIndices | None = None

    def __len__(self) -> int:
        return int(self._starts[-1]) if self.where is None else int(self.where.size)

    def __contains__(self, name: object) -> bool:
        return name in self.blocks[0].columns

    def column(self, name: str) -> Column:
        selected = self._selected()
        return join_columns((block.column(name, at) for block, at in selected), len(self))

    def at(self, indices: NDArray[np.integer]) -> Rows:
        where = indices.astype(np.int32, copy=False) if self.where is None else self.where[indices]
        return replace(self, where=where)

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows one block at a time; few rows are one piece."""
        if len(self) <= BLOCK_ROWS:
            yield self
            return
        yield from (Rows((block,), at) for block, at in self._selected())

    def replaced(self, table: Table, store: StoreArray) -> Rows:
        """Return these rows, all of their blocks', with the columns of the table instead of their own."""
        vocabularies: dict[str, TextVocabulary] = {}
        spans = (slice(start, end) for start, end in pairwise(self._starts))
        parts = (Table({name: column[span] for name, column in table.columns.items()}) for span in spans)
        return Rows(
            [
                replace(block, columns={**block.columns, **_store_block(part, store, vocabularies).columns})
                for block, part in zip(self.blocks, parts, strict=True)
            ]
        )

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(block.size for block in self.blocks)])

    def _selected(self) -> list[tuple[RowBlock, RowIndices | None]]:
        """The blocks with selected rows and the indices within the block; the first block if there are none."""
        if self.where is None:
            return [(block, None) for block in self.blocks]
        if len(self.blocks) == 1:
            return [(self.blocks[0], self.where)]
        bounds = np.searchsorted(self.where, self._starts)
        found: list[tuple[RowBlock, RowIndices | None]] = []
        for block, start, (low, high) in zip(self.blocks, self._starts, pairwise(bounds), strict=False):
            if high > low:
                at = (self.where[low:high] - start).astype(np.int32)
                found.append((block, None if at.size == block.size else at))
        return found or [(self.blocks[0], np.empty(0, dtype=np.int32))]


T = TypeVar("T", bound=TidyRows)


def has_text(rows: Columns, name: str, text: str) -> Mask:
    """Return a mask, shape (rows,), of the rows that have this text in a column."""
    found = rows.codes(name)
    code = np.flatnonzero(found.texts == text)
    mask: Mask = found.codes == (code[0] if code.size else -2)
    return mask


def text_counts(rows: Columns, name: str) -> Counter[str]:
    """Return how many rows have each text of a column."""
    found: Counter[str] = Counter()
    for piece in rows.pieces():
        column = piece.codes(name)
        codes, counts = np.unique(column.codes[column.known], return_counts=True)
        found.update(dict(zip(column.texts[codes].tolist(), counts.tolist(), strict=True)))
    return found


def distinct_texts(rows: Columns, name: str) -> list[str]:
    """Return the different texts of a column, sorted, without missing ones."""
    return sorted(text_counts(rows, name))


def group_numbers(*columns: Column) -> NDArray[np.intp]:
    """Number the rows, shape (rows,), by the combinations of their values: equal numbers for equal ones, in order.

    Texts are in the order of their codes. Missing numbers equal one another, and are after all others.
    """
    numbers = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        array = column.codes if isinstance(column, TextCodes) else np.asarray(column)
        values, places = np.unique(array, return_inverse=True)
        _, numbers = np.unique(numbers * max(values.size, 1) + places, return_inverse=True)
    return numbers


def repeated_rows(*columns: Column) -> Mask:
    """Return a mask, shape (rows,), of the rows with the same values as an earlier row."""
    repeated = np.ones(len(columns[0]), dtype=np.bool_)
    repeated[np.unique(group_numbers(*columns), return_index=True)[1]] = False
    return repeated


def join_rows(left: Columns, right: Columns, key: Sequence[str]) -> tuple[RowIndices, RowIndices]:
    """Return the rows of both sides of every pair with equal values in these columns, in the order of the left side."""
    size, both = len(left), len(left) + len(right)
    numbers = group_numbers(*(join_columns(iter((left.column(name), right.column(name))), both) for name in key))
    mine, theirs = numbers[:size], numbers[size:]
    order = np.argsort(theirs, kind="stable").astype(np.int32)
    first, last = (np.searchsorted(theirs[order], mine, side) for side in ("left", "right"))
    counts = last - first
    places = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return np.repeat(np.arange(size, dtype=np.int32), counts), order[places]
