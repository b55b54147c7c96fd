"""Columns of tidy rows: numbers, texts as codes, and short lists stored flat.

An array object per row would cost more than the few numbers of a list, and a text per row more than its code. A column
of any kind has a length, and `column[at]` selects rows by a mask, by indices or by a slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
RowIndices = NDArray[np.int32]


@dataclass(frozen=True)
class TextCodes:
    """A column of texts as codes, shape (rows,), −1 for missing, and the texts by code; some may be in no row."""

    codes: RowIndices
    texts: NDArray[np.object_]

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> TextCodes:
        """Return the column of these texts."""
        known: dict[str, int] = {}
        codes = (-1 if text is None else known.setdefault(text, len(known)) for text in texts)
        return cls(np.fromiter(codes, np.int32, len(texts)), np.array([*known], dtype=np.object_))

    @classmethod
    def joined(cls, columns: Sequence[TextCodes]) -> TextCodes:
        """Return the columns' rows one after the other, with one code for each text."""
        texts = columns[0].texts
        if all(each.texts is texts for each in columns):
            return cls(np.concatenate([each.codes for each in columns]), texts)
        known: dict[str, int] = {}
        codes = np.concatenate([each.numbered(known) for each in columns])
        return cls(codes, np.array([*known], dtype=np.object_))

    def __len__(self) -> int:
        return self.codes.size

    def __getitem__(self, at: Any) -> TextCodes:
        return TextCodes(self.codes[at], self.texts)

    @property
    def known(self) -> Mask:
        """Mask, shape (rows,), of the rows that have a text."""
        return self.codes >= 0

    @property
    def by_row(self) -> NDArray[np.object_]:
        """The text of each row, None for missing, shape (rows,)."""
        return np.array([*self.texts, None], dtype=np.object_)[self.codes]

    def numbered(self, known: dict[str, int]) -> RowIndices:
        """Return the codes with which `known` numbers the texts; new texts are added to it."""
        numbers = [known.setdefault(text, len(known)) for text in self.texts]
        return np.array([*numbers, -1], dtype=np.int32)[self.codes]


@dataclass(frozen=True)
class RaggedColumn:
    """Lists, one per row: their `sizes`, shape (rows,), −1 for missing, and the entries of all rows.

    `entries` has the shape (entries,), or (entries, fields) if an entry is several numbers: an entry of a tally is a
    value and its count.
    """

    sizes: RowIndices
    entries: Array

    @classmethod
    def of_entries(cls, entries: Array, owner: NDArray[np.integer], known: Mask) -> RaggedColumn:
        """Return a column from the entries of all rows, sorted by row.

        `owner`: the row of each entry; `known`: mask, shape (rows,), of the rows that have a list.
        """
        return cls(np.where(known, np.bincount(owner, minlength=known.size), -1).astype(np.int32), entries)

    @classmethod
    def joined(cls, columns: Sequence[RaggedColumn]) -> RaggedColumn:
        """Return the columns' rows one after the other."""
        sizes, entries = ([each.sizes for each in columns], [each.entries for each in columns])
        return cls(np.concatenate(sizes), np.concatenate(entries))

    def __len__(self) -> int:
        return self.sizes.size

    def __getitem__(self, at: Any) -> RaggedColumn:
        sizes = self.sizes[at]
        return RaggedColumn(sizes, self.entries[entry_places(self.starts[at], sizes)])

    @property
    def known(self) -> Mask:
        """Mask, shape (rows,), of the rows that have a list."""
        return self.sizes >= 0

    @property
    def owner(self) -> RowIndices:
        """The row of each entry, shape (entries,)."""
        return np.repeat(np.arange(self.sizes.size, dtype=np.int32), np.maximum(self.sizes, 0))

    @property
    def starts(self) -> RowIndices:
        """The index of each row's first entry, shape (rows,)."""
        counts = np.maximum(self.sizes, 0)
        return (np.cumsum(counts) - counts).astype(np.int32)

    def sums(self, weights: Array) -> Values:
        """Return the sum of the weights of each row's entries, shape (rows,); NaN for rows without a list."""
        return np.where(self.known, np.bincount(self.owner, weights, self.sizes.size), np.nan)

    def where(self, mask: Mask) -> RaggedColumn:
        """Return the column with the lists of the rows selected by a mask of shape (rows,); the others are missing."""
        return RaggedColumn(np.where(mask, self.sizes, -1).astype(np.int32), self.entries[mask[self.owner]])

    def arrays(self) -> list[Values | None]:
        """Return each row's entries; None for missing."""
        ends = np.cumsum(np.maximum(self.sizes, 0))
        pieces = np.split(self.entries.astype(np.float64), ends[:-1]) if len(self) else []
        return [piece if there else None for piece, there in zip(pieces, self.known, strict=True)]


def entry_places(starts: NDArray[np.integer], sizes: RowIndices) -> slice | NDArray[np.int64]:
    """Return where the entries of some rows are, row by row: a slice if they are next to one another."""
    counts = np.maximum(sizes, 0)
    ends = np.cumsum(counts, dtype=np.int64)
    offsets = starts - (ends - counts)
    if not offsets.size or (offsets == offsets[0]).all():
        first = int(offsets[0]) if offsets.size else 0
        return slice(first, first + int(counts.sum()))
    return np.arange(ends[-1]) + np.repeat(offsets, counts)


Column = Array | TextCodes | RaggedColumn


def join_columns(columns: Iterator[Column], rows: int) -> Column:
    """Return columns of one kind, at least one, as one column of this number of rows."""
    first = next(columns)
    if len(first) == rows:
        return first
    if isinstance(first, TextCodes | RaggedColumn):
        return first.joined([first, *columns])  # type: ignore[list-item]  # all are of one kind
    values = np.empty(rows, dtype=first.dtype)
    fill(values, chain([first], columns))  # type: ignore[arg-type]
    return values


def fill(values: Array, pieces: Iterable[Array]) -> None:
    """Write the pieces into the array, one after the other; concatenation would hold all of them twice."""
    start = 0
    for piece in pieces:
        values[start : start + piece.size] = piece
        start += piece.size
