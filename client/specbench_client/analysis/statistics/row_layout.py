"""The repeat and the prompt of each row, and sums of the rows by both, from which every interval is computed.

There may be millions of rows and fifty figures. So a row's repeat and prompt are one number of 4 bytes, and a figure's
numbers are added to its sums piece by piece, in the order of the rows. The sums are the same to the last bit however
the rows are split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specbench_client.analysis.statistics.bootstrap import Codes, ResamplingLayout, number_strata
from specbench_client.metrics.rows import Table
from specbench_client.metrics.tidy_frame import NUMBERS_TOGETHER, numbers
from specbench_client.numpy_columns import Mask, Values

CellCodes = NDArray[np.int32]
"""Shape (rows,): repeat × number of prompts + prompt."""


@dataclass(frozen=True)
class RowLayout(ResamplingLayout):
    """The layout of rows. `cell_of`: the repeat and the prompt of each row."""

    cell_of: CellCodes = field(kw_only=True)
    category_of: Codes = field(kw_only=True)
    """A number for the category of each prompt, shape (prompts,); −1 if it has none."""
    repeat_numbers: Values = field(kw_only=True)
    """The numbers of the repeats, shape (repeats,)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of repeats, and of prompts."""
        return self.repeats, self.prompts

    def matrix(self, values: Values) -> Values:
        """Sum the values of the rows, shape (rows,), by repeat and prompt, shape (repeats, prompts)."""
        sums = CellSums(self, 1)
        for start in range(0, values.size, NUMBERS_TOGETHER):
            sums.add([values[start : start + NUMBERS_TOGETHER]])
        return sums.matrices[0]

    def prompts_of(self, rows: Mask) -> int:
        """Return the number of different prompts of the rows selected by a mask, shape (rows,)."""
        reached = np.zeros(self.repeats * self.prompts, dtype=np.bool_)
        reached[self.cell_of[rows]] = True
        return int(reached.reshape(self.shape).any(axis=0).sum())

    def of_rows(self, rows: Mask) -> RowLayout:
        """Return the layout of the rows selected by a mask, shape (rows,)."""
        if rows.all():
            return self
        cells = self.cell_of[rows]
        counts = np.bincount(cells, minlength=self.repeats * self.prompts).reshape(self.shape)
        found = self.of_cells(counts)
        repeats, prompts = (np.cumsum(counts.any(axis=axis), dtype=np.int32) - 1 for axis in (1, 0))
        number_of = repeats[:, np.newaxis] * np.int32(found.prompts) + prompts
        return replace(found, cell_of=number_of.ravel()[cells])

    def of_cells(self, counts: NDArray[np.integer]) -> RowLayout:
        """Return the layout of the repeats and prompts that have any rows, without the rows themselves.

        `counts`: their number, shape (repeats, prompts).
        """
        repeats, prompts = counts.any(axis=1), counts.any(axis=0)
        found = _layout(np.empty(0, np.int32), self.category_of[prompts], self.repeat_numbers[repeats])
        return replace(
            found,
            turns=None if self.turns is None else self.turns[repeats],
            anytime=self.anytime,
            launches=self.launches,
        )

    def taking_turns(self) -> RowLayout:
        """Return the layout of arms that change their order in every repeat."""
        return replace(self, turns=1.0 - 2.0 * (self.repeat_numbers % 2))


class CellSums:
    """Sums of rows by repeat and prompt. Rows that lack one of the parts are in none of the sums."""

    def __init__(self, rows: RowLayout, parts: int) -> None:
        """Begin at the first row. `parts`: how many numbers of each row are summed."""
        self.layout, self._next = rows, 0
        self._sums = np.zeros((parts, rows.repeats * rows.prompts))
        self._counts = np.zeros(rows.repeats * rows.prompts, dtype=np.int64)

    def add(self, parts: Sequence[Values]) -> Mask:
        """Add the next rows, given their parts, and return a mask of those that have all parts; shape (rows,) each."""
        cells = self.layout.cell_of[self._next : self._next + parts[0].size]
        self._next += parts[0].size
        known: Mask = np.ones(parts[0].size, dtype=np.bool_)
        for part in parts:
            known &= ~np.isnan(part)
        whole = bool(known.all())
        cells = cells if whole else cells[known]
        for sums, part in zip(self._sums, parts, strict=True):
            np.add.at(sums, cells, part if whole else part[known])  # Adds one after the other, in any number of calls.
        np.add.at(self._counts, cells, 1)
        return known

    @property
    def matrices(self) -> list[Values]:
        """The sums of each part, shape (repeats, prompts)."""
        return [each.reshape(self.layout.shape) for each in self._sums]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows with all parts, shape (repeats, prompts)."""
        return self._counts.reshape(self.layout.shape)

    def among_known(self) -> tuple[RowLayout, list[Values]]:
        """Return the layout of the repeats and prompts that have a row with all parts, and their sums."""
        counts = self.counts
        repeats, prompts = counts.any(axis=1), counts.any(axis=0)
        return self.layout.of_cells(counts), [each[np.ix_(repeats, prompts)] for each in self.matrices]


def layout_of(rows: Table, category: str = "category") -> RowLayout:
    """Build the layout from the columns repeat, prompt_id and `category`; a prompt has its first known category."""
    texts, cells = _ranked_prompts(rows)
    repeats = np.unique(np.concatenate([np.unique(numbers(piece, "repeat")) for piece in rows.pieces()]))
    categories, start = np.full(texts, -1, dtype=np.intp), 0
    for piece in rows.pieces():
        mine, found = cells[start : start + len(piece)], piece.codes(category).codes
        fresh = (found >= 0) & (categories[mine] < 0)
        categories[mine[fresh][::-1]] = found[fresh][::-1]  # Of several values the last is stored: the first row's.
        mine += np.searchsorted(repeats, numbers(piece, "repeat")).astype(np.int32) * np.int32(texts)
        start += len(piece)
    return _layout(cells, categories, repeats)


def _ranked_prompts(rows: Table) -> tuple[int, CellCodes]:
    """Return the number of prompts, and each row's place in their sorted order, shape (rows,)."""
    column = rows.codes("prompt_id")
    present = np.zeros(column.texts.size + 1, dtype=np.bool_)
    present[column.codes] = True
    order = sorted(np.flatnonzero(present[:-1]), key=lambda code: str(column.texts[code]))
    ranks = np.zeros(column.texts.size + 1, dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return len(order), ranks[column.codes]


def _layout(cells: CellCodes, categories: Codes, repeats: Values) -> RowLayout:
    _, first_prompts, strata = np.unique(categories, return_index=True, return_inverse=True)
    return RowLayout(
        number_strata(first_prompts[strata]),
        repeats.size,
        categories.size,
        cell_of=cells,
        category_of=categories,
        repeat_numbers=repeats,
    )
