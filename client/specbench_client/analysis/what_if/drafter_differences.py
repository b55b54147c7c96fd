"""Differences in accepted drafts between two drafters, by answer length and position, as means over blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.what_if.answers import SharedAnswers, Tokens
from specbench_client.metrics.tidy_frame import Values


@dataclass(frozen=True)
class IndexRange:
    """A range of output lengths or of positions, both bounds included."""

    first: int
    last: int

    @property
    def label(self) -> str:
        """`12–40`, or one number where both bounds are the same."""
        return f"{self.first:,}" if self.first == self.last else f"{self.first:,}–{self.last:,}"


@dataclass(frozen=True)
class DrafterDifferences:
    """Mean differences by answer length (rows, shortest first) and position (columns).

    `values`: shape (rows, columns), accepted drafts of the second drafter − of the first, in tokens per position, over
    every position of an answer whether or not a step began there; NaN where no answer of the row is that long.
    """

    rows: tuple[IndexRange, ...]
    columns: tuple[IndexRange, ...]
    values: Values


def drafter_differences(both: SharedAnswers, rows: int, columns: int) -> DrafterDifferences:
    """Return the differences in at most this many rows and columns; empty if there are no answers.

    Position 0 is left out: its token comes from the prefill and has no drafts.
    """
    lengths = both.answers.output_tokens
    if not lengths.size:
        return DrafterDifferences((), (), np.empty((0, 0)))
    order = np.argsort(lengths, kind="stable")
    parts = np.array_split(order, min(rows, lengths.size))
    row_of = np.empty(lengths.size, dtype=np.int64)
    for index, part in enumerate(parts):
        row_of[part] = index
    longest = int(lengths.max()) - 1
    width = -(-longest // columns)
    across = -(-longest // width)
    position = np.arange(both.answers.positions) - np.repeat(both.answers.starts, lengths)
    stepped = position > 0
    block = (np.repeat(row_of, lengths) * across + (position - 1) // width)[stepped]
    gain = (both.second.accepted - both.first.accepted)[stepped].astype(np.float64)
    return DrafterDifferences(
        tuple(_index_range(lengths[part]) for part in parts),
        tuple(IndexRange(start, min(start + width - 1, longest)) for start in range(1, longest + 1, width)),
        _means(block, gain, len(parts), across),
    )


def _means(block: Tokens, values: Values, rows: int, columns: int) -> Values:
    """Return the mean value of each block, shape (rows, columns). `block`, `values`: shape (positions,)."""
    counts = np.bincount(block, minlength=rows * columns)
    sums = np.bincount(block, weights=values, minlength=rows * columns)
    with np.errstate(invalid="ignore"):
        means: Values = (sums / counts).reshape(rows, columns)
    return means


def _index_range(lengths: Tokens) -> IndexRange:
    return IndexRange(int(lengths.min()), int(lengths.max()))
