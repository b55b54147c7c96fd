"""Tables of tidy rows, in memory or, if there are many rows, on disk: metrics read a column by name.

A cell may have a million rows of about three hundred bytes, of which a figure uses twenty. So rows are stored column by
column, and a column is read on access and released again. A subset of a table is a list of row indices.

What is computed row by row is computed piece by piece (`Table.pieces`), so that only its result is in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_client.numpy_columns import Array, Column, Mask, RaggedColumn, RowIndices, TextCodes, join_columns
from specbench_client.store.scratch import ColumnWriter, StoredColumn

PIECE_ROWS = 16_384
"""Rows that are read, or kept in memory, together: some MB."""
POINT = "point"
"""The column with the hash of a row's point."""


@dataclass(frozen=True)
class Table:
    """Columns, at least one, by name. `where` are the indices of the selected rows, in any order; None selects all."""

    columns: Mapping[str, Column | StoredColumn]
    where: RowIndices | None = None

    def column(self, name: str) -> Column:
        """Return a column."""
        return self.columns[name][slice(None) if self.where is None else self.where]

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

    def lists(self, name: str) -> RaggedColumn:
        """Return a column of lists."""
        column = self.column(name)
        assert isinstance(column, RaggedColumn), name
        return column

    def known(self, name: str) -> Mask:
        """Return a mask, shape (rows,), of the rows that have a value in a column."""
        column = self.column(name)
        return ~np.isnan(column) if isinstance(column, np.ndarray) else column.known

    def table(self, names: Iterable[str]) -> Table:
        """Return these columns in memory."""
        return Table({name: self.column(name) for name in names})

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())) if self.where is None else self.where)

    def pieces(self, most: int | None = None) -> Iterator[Table]:
        """Yield the rows in their order, at most `most` (`PIECE_ROWS`) at a time; at least one piece, perhaps empty."""
        rows, most = len(self), most or PIECE_ROWS
        for start in range(0, max(rows, 1), most):
            yield self if rows <= most else self.at(np.arange(start, min(start + most, rows)))

    def at(self, indices: NDArray[np.integer]) -> Table:
        """Return the rows with these indices, in their order."""
        where = indices if self.where is None else self.where[indices]
        return Table(self.columns, where.astype(np.int32, copy=False))

    def among(self, mask: Mask) -> Table:
        """Return the rows selected by a mask of shape (rows,)."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    def by_point(self) -> Iterator[Table]:
        """Yield the rows of each point that has any, sorted by point."""
        points = self.codes(POINT)
        for code in sorted(np.unique(points.codes), key=lambda code: str(points.texts[code])):
            yield self.among(points.codes == code)

    def assign(self, **columns: Column | StoredColumn) -> Table:
        """Return the table with these columns, new ones or instead of its own."""
        own = self.columns if self.where is None else self.table(self.columns).columns
        return Table({**own, **columns})


def join_tables(tables: list[Table]) -> Table:
    """Return the tables' rows as one table, and empty the list column by column, so that there is only one copy."""
    return Table(_joined_columns(tables))


def _joined_columns(tables: list[Table]) -> dict[str, Column]:
    rows = sum(map(len, tables))
    columns = {name: [table.column(name) for table in tables] for name in tables[0].columns}
    tables.clear()
    return {name: join_columns(iter(columns.pop(name)), rows) for name in list(columns)}


def collect_tables(tables: Iterable[Table]) -> Table:
    """Return the rows of these tables, at least one, as one table: on disk if they are more than a piece.

    Tables are not kept in memory. Raises NotDurable if the disk is full.
    """
    waiting: list[Table] = []
    with ColumnWriter() as writer:
        for table in tables:
            waiting.append(table)
            if sum(map(len, waiting)) > PIECE_ROWS:
                writer.append(_joined_columns(waiting))
        if writer.is_empty:
            return join_tables(waiting)
        if waiting:
            writer.append(_joined_columns(waiting))
        return Table(writer.finish())


def has_text(rows: Table, name: str, text: str) -> Mask:
    """Return a mask, shape (rows,), of the rows that have this text in a column."""
    found = rows.codes(name)
    code = np.flatnonzero(found.texts == text)
    mask: Mask = found.codes == (code[0] if code.size else -2)
    return mask


def text_counts(rows: Table, name: str) -> Counter[str]:
    """Return how many rows have each text of a column."""
    found: Counter[str] = Counter()
    for piece in rows.pieces():
        column = piece.codes(name)
        codes, counts = np.unique(column.codes[column.known], return_counts=True)
        found.update(dict(zip(column.texts[codes].tolist(), counts.tolist(), strict=True)))
    return found


def distinct_texts(rows: Table, name: str) -> list[str]:
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


def join_rows(left: Table, right: Table, key: Sequence[str]) -> tuple[RowIndices, RowIndices]:
    """Return the rows of both sides of every pair with equal values in these columns, in the order of the left side."""
    size, both = len(left), len(left) + len(right)
    numbers = group_numbers(*(join_columns(iter((left.column(name), right.column(name))), both) for name in key))
    mine, theirs = numbers[:size], numbers[size:]
    order = np.argsort(theirs, kind="stable").astype(np.int32)
    first, last = (np.searchsorted(theirs[order], mine, side) for side in ("left", "right"))
    counts = last - first
    places = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return np.repeat(np.arange(size, dtype=np.int32), counts), order[places]
