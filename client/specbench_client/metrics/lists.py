"""What is kept of a record's lists, so that memory does not grow with the length of answers.

The times and tokens of its chunks and the accepted drafts of its steps are most of a record. Figures and checks ask
them for counts alone: how many chunks hold so many tokens, how many steps accepted so many drafts. Such a count is a
tally: two rows, the values in order and how often each is there, as short as values are few.

Chunk by chunk an answer is needed only where it may reach over an edge of the steady window (`metrics.window`): in ramp
and drain, which are as long as the load is wide and not as long as the run.

Everything is done for all rows of a part at once: row after row it would take as long as reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.walk import Answers, compact, walks
from specbench_client.packed import packed

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
Tally = NDArray[np.float64]
"""Two rows: values in order, and how often each is there."""
_EMPTY: Tally = np.empty((2, 0))

TALLY_FIELDS = 2
POINT_ALONE = (
    "tokens_of_chunks",
    "gathered",
    "burst_chunks",
    "burst_tokens",
    "output_tokens_client",
    "thought_tokens",
)
"""What only the checks of a single point ask for: where points are put together it is dropped, most of a row's size."""
TOGETHER_NS = 100_000.0
"""Chunks that are no further apart came in one write: its segments are hardly apart."""


def condensed(given: pd.DataFrame, rows: pd.DataFrame, edges: Mask) -> dict[str, pd.Series]:
    """Return the columns that stand for the lists; missing where the list is.

    `rows`: what is known of each row beside its lists. `edges`: which rows are kept chunk by chunk.

    `chunks`: number of chunks. `chunks_told`: whether they tell their tokens. `tokens_of_chunks`: tally of them.
    `gathered`: tally of the tokens that arrived at one time, each as often as chunks were gathered with a later one.
    `burst_chunks`, `burst_tokens`: of the largest number of chunks that came together, within `TOGETHER_NS` of one
    another. `accepted_of_steps`: tally of accepted drafts. `walk`: where the steps stood, of steady rows
    (`metrics.walk`). `edge_ns`, `edge_tokens`: the chunks themselves, of the rows at the edges. Tallies and walks are
    packed (`specbench_client.packed`).
    """
    at, told, accepted = (_listed(given[name]) for name in ("chunk_ns", "chunk_tokens", "step_accepted"))
    stamps = _Flat.of(at)
    weights = _weights(at, told, rows["tokens"].to_numpy(np.float64))
    bursts = stamps.pieces(weights, apart_ns=TOGETHER_NS).largest()
    return {
        "chunks": pd.Series([np.nan if one is None else float(one.size) for one in at], dtype=np.float32),
        "chunks_told": pd.Series([one is not None for one in told], dtype=np.bool_),
        "tokens_of_chunks": packed(_Flat.of(told).tallies(), np.float32),
        "gathered": packed(stamps.pieces(weights, apart_ns=0.0).gathered(), np.float64),
        "burst_chunks": pd.Series(bursts[0]),
        "burst_tokens": pd.Series(bursts[1]),
        "accepted_of_steps": packed(_Flat.of(accepted).tallies(), np.float32),
        "walk": packed([compact(one) for one in walks(_answers(accepted, told, rows))], np.int32),
        "edge_ns": objects([one if edge else None for one, edge in zip(at, edges, strict=True)]),
        "edge_tokens": objects([one if edge else None for one, edge in zip(told, edges, strict=True)]),
    }


def _answers(accepted: Sequence[Values | None], told: Sequence[Values | None], rows: pd.DataFrame) -> Answers:
    """Steady rows alone enter figures, and without a drafter there is nothing to be told of a step."""
    wanted = rows["steady"].to_numpy(np.bool_) & rows["acceptance_source"].notna().to_numpy(np.bool_)
    columns = ("steps", "tokens", "input_tokens", "thought_tokens")
    steps, tokens, inputs, thoughts = (rows[name].to_numpy(np.float64) for name in columns)
    return Answers(accepted, told, steps, tokens, inputs, thoughts, wanted)


def objects(values: Sequence[object]) -> pd.Series:
    """One object a row, None staying None: pandas would make NaN of it, numpy a matrix of equally long lists."""
    column = np.empty(len(values), dtype=np.object_)
    for index, value in enumerate(values):
        column[index] = value
    return pd.Series(column, dtype=object)


@dataclass(frozen=True)
class _Flat:
    """The lists of all rows, one behind the other. `owner`: whose each value is; `known`: which rows have a list."""

    values: Values
    owner: Places
    known: Mask

    @classmethod
    def of(cls, lists: Sequence[Values | None]) -> _Flat:
        sizes = [0 if one is None else one.size for one in lists]
        values = np.concatenate([one for one in lists if one is not None] or [np.empty(0)])
        known = np.array([one is not None for one in lists], dtype=np.bool_)
        return cls(values, np.repeat(np.arange(len(lists)), sizes), known)

    def tallies(self) -> list[Tally | None]:
        """Of each row's values; what is missing in a list is in no tally."""
        told = ~np.isnan(self.values)
        return _tallies(self.owner[told], self.values[told], np.ones(int(told.sum())), self.known)

    def pieces(self, weights: Values, apart_ns: float) -> _Pieces:
        """Runs of a row's values that are no further apart; `weights`: of each value."""
        new = np.diff(self.values, prepend=-np.inf) > apart_ns
        new |= np.diff(self.owner, prepend=-1) > 0
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, self.values.size)).astype(np.float64)
        held = np.add.reduceat(weights, starts) if starts.size else np.empty(0)
        return _Pieces(self.owner[starts], sizes, held, self.known)


@dataclass(frozen=True)
class _Pieces:
    """Chunks that came together: how many, and the tokens they hold."""

    owner: Places
    sizes: Values
    held: Values
    known: Mask

    def gathered(self) -> list[Tally | None]:
        """Of each row: tokens that came together, as often as there are chunks but the last of them."""
        late = self.sizes > 1
        return _tallies(self.owner[late], self.held[late], self.sizes[late] - 1, self.known)

    def largest(self) -> tuple[Values, Values]:
        """Of each row: size and tokens of its largest piece, the first of several; missing without any."""
        order = np.lexsort((-self.sizes, self.owner))
        first = order[np.flatnonzero(np.diff(self.owner[order], prepend=-1) > 0)]
        sizes, held = np.full(self.known.size, np.nan), np.full(self.known.size, np.nan)
        sizes[self.owner[first]], held[self.owner[first]] = self.sizes[first], self.held[first]
        return sizes, held


def _tallies(owner: Places, values: Values, amounts: Values, known: Mask) -> list[Tally | None]:
    """One tally a row, None where the row has no list."""
    order = np.lexsort((values, owner))
    owner, values, amounts = owner[order], values[order], amounts[order]
    new = (np.diff(owner, prepend=-1) > 0) | (np.diff(values, prepend=np.nan) != 0)
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(amounts, starts) if starts.size else np.empty(0)
    both = np.stack([values[starts], sums])
    ends = np.searchsorted(owner[starts], np.arange(known.size), side="right")
    begins = np.searchsorted(owner[starts], np.arange(known.size), side="left")
    spans = zip(begins, ends, known, strict=True)
    return [_piece(both, begin, end) if there else None for begin, end, there in spans]


def _piece(both: Tally, begin: int, end: int) -> Tally:
    """A copy, since a view would keep all rows' alive; what is empty is one and the same."""
    return both[:, begin:end].copy() if end > begin else _EMPTY


def _listed(column: pd.Series) -> list[Values | None]:
    """A column of lists, arrays or nulls as arrays; what is missing inside a list is NaN."""
    return [
        None if value is None or value is pd.NA or isinstance(value, float) else np.asarray(value, dtype=np.float64)
        for value in column
    ]


def _weights(at: Sequence[Values | None], told: Sequence[Values | None], tokens: Values) -> Values:
    """Tokens of each chunk of all rows: as the chunks told them, else the answer's spread evenly."""
    each = zip(at, told, tokens, strict=True)
    return np.concatenate([_weights_of(*row) for row in each] or [np.empty(0)])


def _weights_of(at: Values | None, told: Values | None, tokens: float) -> Values:
    if at is None or not at.size:
        return np.empty(0)
    if told is not None and told.size == at.size and not np.isnan(told).any():
        return told
    return np.full_like(at, 1.0 if np.isnan(tokens) else tokens / at.size)
