"""Condensed forms of a record's lists (tallies, positions of steps): memory hardly grows with the length of answers.

Most of a record is the times and tokens of its chunks and the accepted drafts of its steps. Figures and checks only
need counts from them: how many chunks contain a given number of tokens, how many steps accepted a given number of
drafts. Such a histogram is called a tally: an array of shape (2, values) with the sorted values and their counts. It
has as many columns as there are different values.

The chunks themselves are needed for answers that may cross an edge of the steady window (`metrics.steady_window`):
those of ramp and drain, whose number depends on the load and not on the length of the run.

Everything is computed for all rows of a part at once, because a loop over rows would be as slow as reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specbench_client.columns import Column, Mask, RaggedColumn, Values
from specbench_client.metrics.rows import Columns

RowIndices = NDArray[np.intp]

TALLY_FIELDS = 2
"""Fields of an entry of a tally: a value, and its count. Entries are sorted by value."""
POINT_ONLY_COLUMNS = (
    "connect_ns",
    "tokens_of_chunks",
    "coalesced",
    "burst_chunks",
    "burst_tokens",
    "output_tokens_client",
    "reasoning_tokens",
)
"""Columns that only the checks of a single point need; dropped when points are combined, as they are most of a row."""
BURST_NS = 100_000.0
"""Chunks at most this far apart arrived in one write: the segments of a write are closer."""


def condense_lists(records: Mapping[str, NDArray[np.object_]], rows: Columns) -> dict[str, Column]:
    """Return the columns that replace the lists of the records; missing where the list is missing.

    `rows` are the other tidy columns of the same records.

    - `chunks`: number of chunks. `chunk_tokens_known`: whether the record has tokens per chunk.
    - `tokens_of_chunks`: tally of the tokens per chunk.
    - `coalesced`: tally of the tokens that arrived at one time, counted once per chunk that arrived with a later one.
    - `burst_chunks`, `burst_tokens`: size of the largest group of chunks within `BURST_NS` of one another.
    - `accepted_of_steps`: tally of accepted drafts per step.
    - `verified_of_steps`: the same with accepted drafts that were cut off at the end of the answer, if they are known.
    - `decided_of_steps`: tally of the drafts per step that were accepted, or rejected after all before them were
      accepted. Where only the total of an answer's drafts is known, one was rejected after the accepted ones; missing
      where it is not, because then the length of drafts may vary.
    - `walk`: positions of the steps, for steady rows, see `locate_steps`.
    - `edge_ns`, `edge_tokens`: the chunks themselves, for answered rows that are not steady.

    Tallies, walks and chunks are ragged columns (`specbench_client.columns`).
    """
    at, chunk_tokens, accepted, drafted = (
        _to_arrays(records[name]) for name in ("chunk_ns", "chunk_tokens", "step_accepted", "step_drafted")
    )
    verified = _with_cut(accepted, _numbers(rows, "cut_tokens"))
    arrivals = _FlatLists.of(at)
    weights = _weights(at, chunk_tokens, _numbers(rows, "tokens"))
    bursts = arrivals.arrival_groups(weights, apart_ns=BURST_NS).largest()
    decided = _decided(verified, drafted, _numbers(rows, "drafted_tokens"))
    walks = [compact_walk(one) for one in locate_steps(_select_steps(accepted, chunk_tokens, rows))]
    edges = rows.array("ok") & ~rows.array("steady")
    return {
        "chunks": np.array([np.nan if one is None else float(one.size) for one in at], dtype=np.float32),
        "chunk_tokens_known": np.array([one is not None for one in chunk_tokens], dtype=np.bool_),
        "tokens_of_chunks": _FlatLists.of(chunk_tokens).tallies(),
        "coalesced": arrivals.arrival_groups(weights, apart_ns=0.0).coalesced(),
        "burst_chunks": bursts[0],
        "burst_tokens": bursts[1],
        "accepted_of_steps": _FlatLists.of(accepted).tallies(),
        "verified_of_steps": _FlatLists.of(verified).tallies(),
        "decided_of_steps": _FlatLists.of(decided).tallies(),
        "walk": RaggedColumn.of(walks, np.int32),
        "edge_ns": RaggedColumn.of(_selected(at, edges), np.float64),
        "edge_tokens": RaggedColumn.of(_selected(chunk_tokens, edges), np.float64),
    }


def _numbers(rows: Columns, name: str) -> Values:
    return rows.array(name).astype(np.float64)


def _selected(lists: Sequence[Values | None], mask: Mask) -> list[Values | None]:
    return [one if chosen else None for one, chosen in zip(lists, mask, strict=True)]


def _with_cut(accepted: Sequence[Values | None], cut: Values) -> list[Values | None]:
    """Return the accepted drafts of each step with those that were cut off; `cut`: shape (rows,), NaN if unknown."""
    return [
        kept if kept is None or not kept.size or not beyond > 0 else np.append(kept[:-1], kept[-1] + beyond)
        for kept, beyond in zip(accepted, cut, strict=True)
    ]


def _decided(
    accepted: Sequence[Values | None], drafted: Sequence[Values | None], totals: Values
) -> list[Values | None]:
    """Return how many drafts of each step were accepted or rejected: those after the first rejection were neither.

    `totals`: drafts of each answer, shape (rows,), NaN if unknown.
    """
    return [_decided_in(*answer) for answer in zip(accepted, drafted, totals, strict=True)]


def _decided_in(accepted: Values | None, drafted: Values | None, total: float) -> Values | None:
    if accepted is None or np.isnan(total):
        return None
    if drafted is None or drafted.size != accepted.size:
        return accepted + 1
    return np.minimum(accepted + 1, drafted)


def _select_steps(accepted: Sequence[Values | None], chunk_tokens: Sequence[Values | None], rows: Columns) -> StepLists:
    """Select the rows whose steps are located: steady ones, with a known acceptance."""
    selected = rows.array("steady") & rows.known("acceptance_source")
    columns = ("steps", "tokens", "input_tokens", "reasoning_tokens")
    steps, tokens, inputs, reasoning = (_numbers(rows, name) for name in columns)
    return StepLists(accepted, chunk_tokens, steps, tokens, inputs, reasoning, selected)


@dataclass(frozen=True)
class _FlatLists:
    """The lists of all rows, concatenated: `values`, and the row of each value, `owner`.

    `known`, shape (rows,), marks the rows that have a list.
    """

    values: Values
    owner: RowIndices
    known: Mask

    @classmethod
    def of(cls, lists: Sequence[Values | None]) -> _FlatLists:
        sizes = [0 if one is None else one.size for one in lists]
        values = np.concatenate([one for one in lists if one is not None] or [np.empty(0)])
        known = np.array([one is not None for one in lists], dtype=np.bool_)
        return cls(values, np.repeat(np.arange(len(lists)), sizes), known)

    def tallies(self) -> RaggedColumn:
        """Return the tally of each row's values; missing values within a list are ignored."""
        present = ~np.isnan(self.values)
        ones = np.ones(int(present.sum()))
        return _tallies(self.owner[present], self.values[present], ones, self.known, np.float32)

    def arrival_groups(self, weights: Values, apart_ns: float) -> _ArrivalGroups:
        """Group each row's consecutive values that are at most `apart_ns` apart.

        `weights` are the tokens of each value, shape (values,).
        """
        new = np.diff(self.values, prepend=-np.inf) > apart_ns
        new |= np.diff(self.owner, prepend=-1) > 0
        starts = np.flatnonzero(new)
        sizes = np.diff(np.append(starts, self.values.size)).astype(np.float64)
        tokens = np.add.reduceat(weights, starts) if starts.size else np.empty(0)
        return _ArrivalGroups(self.owner[starts], sizes, tokens, self.known)


@dataclass(frozen=True)
class _ArrivalGroups:
    """Chunks that arrived together: their number and their tokens, shape (groups,)."""

    owner: RowIndices
    sizes: Values
    tokens: Values
    known: Mask

    def coalesced(self) -> RaggedColumn:
        """Return a tally per row of the tokens that arrived together, counted once per chunk but the last."""
        late = self.sizes > 1
        return _tallies(self.owner[late], self.tokens[late], self.sizes[late] - 1, self.known, np.float64)

    def largest(self) -> tuple[Values, Values]:
        """Return the chunks and the tokens of each row's largest group (the first if tied), or NaN."""
        order = np.lexsort((-self.sizes, self.owner))
        first = order[np.flatnonzero(np.diff(self.owner[order], prepend=-1) > 0)]
        sizes, tokens = np.full(self.known.size, np.nan), np.full(self.known.size, np.nan)
        sizes[self.owner[first]], tokens[self.owner[first]] = self.sizes[first], self.tokens[first]
        return sizes, tokens


def _tallies(owner: RowIndices, values: Values, amounts: Values, known: Mask, kind: type[np.number]) -> RaggedColumn:
    """Return one tally per row, stored as `kind`; missing if the row has no list."""
    order = np.lexsort((values, owner))
    owner, values, amounts = owner[order], values[order], amounts[order]
    new = (np.diff(owner, prepend=-1) > 0) | (np.diff(values, prepend=np.nan) != 0)
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(amounts, starts) if starts.size else np.empty(0)
    return RaggedColumn.of_entries(np.stack([values[starts], sums]), owner[starts], known, kind)


def _to_arrays(column: NDArray[np.object_]) -> list[Values | None]:
    """Convert a column of lists, arrays or nulls to arrays; missing values within a list become NaN."""
    return [
        None if value is None or isinstance(value, float) else np.asarray(value, dtype=np.float64) for value in column
    ]


def _weights(at: Sequence[Values | None], chunk_tokens: Sequence[Values | None], tokens: Values) -> Values:
    """Tokens of each chunk of all rows, concatenated: those of the record, else the answer's tokens spread evenly."""
    each = zip(at, chunk_tokens, tokens, strict=True)
    return np.concatenate([_weights_of(*row) for row in each] or [np.empty(0)])


def _weights_of(at: Values | None, chunk_tokens: Values | None, tokens: float) -> Values:
    if at is None or not at.size:
        return np.empty(0)
    if chunk_tokens is not None and chunk_tokens.size == at.size and not np.isnan(chunk_tokens).any():
        return chunk_tokens
    return np.full_like(at, 1.0 if np.isnan(tokens) else tokens / at.size)


# Where the steps of an answer are: a walk through its steps, condensed to sums by class of position.
#
# The first token comes from the prefill and has output position 0. A step that begins at position p emits its accepted
# drafts and one more token, and the next step begins at p + accepted + 1. So the list of accepted drafts of all steps
# gives the position of each of them. If some steps had no drafts, engines list only the others, and positions can only
# be derived from chunks, if each of them is one step. A walk that does not end at the answer's last token is rejected.
#
# The result contains sums by class of position and of context, separately for reasoning and answer: both grow along the
# walk, so an answer has hardly more entries than there are classes, however long it is.

Walk = NDArray[np.int32]
"""Shape (5, entries): class of position, class of context, part, number of steps, and tokens that they emitted."""


Classes = NDArray[np.int8]

POSITIONS = (1, *(2**power for power in range(4, 18)))
"""Lowest output position of each class; they double, because acceptance changes ever more slowly along an answer."""
CONTEXTS = (0, *(2**power for power in range(8, 21)))
"""Lowest context length of each class: tokens of the prompt and of the output before the step."""
UNKNOWN, ANSWER, REASONING = -1, 0, 1
"""Part of the answer that a step belongs to; UNKNOWN is also used for an unknown context."""
COMPACT_FIELDS = 3
_BASE = 32
"""Larger than the number of classes of position, context or part, including UNKNOWN."""


@dataclass(frozen=True)
class StepLists:
    """The inputs per row: arrays of shape (rows,) with NaN for missing, and lists with None for missing.

    `selected` marks the rows to process.
    """

    accepted: Sequence[Values | None]
    chunks: Sequence[Values | None]
    steps: Values
    tokens: Values
    inputs: Values
    reasoning_tokens: Values
    selected: Mask


def locate_steps(answers: StepLists) -> list[Walk | None]:
    """Return the walk of each row, None if its steps cannot be located."""
    rows = zip(answers.accepted, answers.chunks, answers.steps, answers.tokens, answers.selected, strict=True)
    emitted = [_emitted_by_step(*row) if selected else None for *row, selected in rows]
    sizes = np.array([0 if one is None else one.size for one in emitted], dtype=np.intp)
    flat = np.concatenate([one for one in emitted if one is not None] or [np.empty(0)])
    owner = np.repeat(np.arange(sizes.size), sizes)
    position = _positions(flat, owner, sizes)
    keys = np.stack(
        [
            owner,
            _classes(POSITIONS, position),
            _classes(CONTEXTS, answers.inputs[owner] + position),
            _parts(answers.reasoning_tokens[owner], position),
        ]
    )
    begins = np.flatnonzero((np.diff(keys, axis=1, prepend=-2) != 0).any(axis=0))
    tokens = np.add.reduceat(flat, begins) if begins.size else np.empty(0)
    summed = np.stack([*keys[1:, begins], np.diff(np.append(begins, flat.size)), tokens]).astype(np.int32)
    ends = np.searchsorted(keys[0, begins], np.arange(sizes.size + 1))
    spans = zip(pairwise(ends), emitted, strict=True)
    return [None if one is None else summed[:, begin:end].copy() for (begin, end), one in spans]


def compact_walk(walk: Walk | None) -> Walk | None:
    """Encode the three classes of a walk as one number, which gives the shape (3, entries)."""
    if walk is None:
        return None
    position, context, part = walk[:3] + 1
    return np.stack([(position * _BASE + context) * _BASE + part, *walk[3:]])


def expand_classes(codes: NDArray[np.int32]) -> tuple[Classes, Classes, Classes]:
    """Return the classes of position, context and part that `compact_walk` encoded, shape (entries,) each."""
    each = codes // _BASE**2, codes // _BASE % _BASE, codes % _BASE
    position, context, part = ((code - 1).astype(np.int8) for code in each)
    return position, context, part


def _emitted_by_step(accepted: Values | None, chunks: Values | None, steps: float, tokens: float) -> Values | None:
    """Return the tokens that each step of an answer emitted, shape (steps,); None if neither list covers every step."""
    if np.isnan(steps) or np.isnan(tokens):
        return None
    if accepted is not None and accepted.size == steps and accepted.sum() + steps + 1 == tokens:
        return accepted + 1
    if chunks is None or chunks.size != steps + 1 or chunks[0] != 1 or chunks.sum() != tokens or chunks.min() < 1:
        return None
    return chunks[1:]


def _positions(flat: Values, owner: NDArray[np.intp], sizes: NDArray[np.intp]) -> Values:
    """Output position of the first token that each step emits, shape (steps of all rows,)."""
    before = np.cumsum(flat) - flat
    firsts = np.cumsum(sizes) - sizes
    started = before[np.minimum(firsts, max(flat.size - 1, 0))] if flat.size else np.zeros(sizes.size)
    return before - started[owner] + 1


def _classes(lows: Sequence[int], values: Values) -> NDArray[np.intp]:
    """Index of the class of each value; UNKNOWN for missing values."""
    return np.where(np.isnan(values), UNKNOWN, np.searchsorted(lows, values, side="right") - 1)


def _parts(reasoning_tokens: Values, position: Values) -> NDArray[np.intp]:
    """REASONING for positions below the number of reasoning tokens, else ANSWER; UNKNOWN if that number is missing."""
    return np.where(np.isnan(reasoning_tokens), UNKNOWN, np.where(position < reasoning_tokens, REASONING, ANSWER))
