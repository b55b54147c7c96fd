"""At which positions of which answers one drafter has more accepted than another: means over blocks of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.oracle.answers import Tokens
from specbench_client.analysis.oracle.told import Both
from specbench_client.metrics.frame import Values


@dataclass(frozen=True)
class Block:
    """Answers with so many output tokens, or positions from one to another; both bounds belong to it."""

    first: int
    last: int

    @property
    def label(self) -> str:
        """`12–40`, or one number where both are the same."""
        return f"{self.first:,}" if self.first == self.last else f"{self.first:,}–{self.last:,}"


@dataclass(frozen=True)
class Differences:
    """Rows of answers, the shortest first, × columns of positions; NaN where no answer of the row is as long.

    `values`: accepted drafts of the second drafter − of the first, in tokens a position: at every position an answer
    has, whether or not a step began there.
    """

    rows: tuple[Block, ...]
    columns: tuple[Block, ...]
    values: Values


def differences(both: Both, rows: int, columns: int) -> Differences:
    """At most so many rows and columns. Position 0 is the prefill's and has no drafts; nothing where there are none."""
    lengths = both.answers.output_tokens
    if not lengths.size:
        return Differences((), (), np.empty((0, 0)))
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
    place = (np.repeat(row_of, lengths) * across + (position - 1) // width)[stepped]
    gain = (both.second.accepted - both.first.accepted)[stepped].astype(np.float64)
    return Differences(
        tuple(_block(lengths[part]) for part in parts),
        tuple(Block(start, min(start + width - 1, longest)) for start in range(1, longest + 1, width)),
        _means(place, gain, len(parts), across),
    )


def _means(place: Tokens, values: Values, rows: int, columns: int) -> Values:
    counts = np.bincount(place, minlength=rows * columns)
    sums = np.bincount(place, weights=values, minlength=rows * columns)
    with np.errstate(invalid="ignore"):
        means: Values = (sums / counts).reshape(rows, columns)
    return means


def _block(lengths: Tokens) -> Block:
    return Block(int(lengths.min()), int(lengths.max()))
