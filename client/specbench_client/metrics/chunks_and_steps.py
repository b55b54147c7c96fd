"""Condensed forms of a record's lists (tallies, positions of steps): memory hardly grows with the length of answers.

Most of a record is the times and tokens of its chunks and the accepted drafts of its steps. Figures and checks only
need counts from them: how many chunks contain a given number of tokens, how many steps accepted a given number of
drafts. Such a histogram is called a tally: a list whose entries are a value and its count, sorted by value. It
has as many entries as there are different values.

The chunks themselves are needed for answers that may cross an edge of the steady window (`metrics.steady_window`):
those of ramp and drain, whose number depends on the load and not on the length of the run.

Everything is computed for all rows of a part at once, because a loop over rows would be as slow as reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from specbench_client.documents.record import TokenConflict
from specbench_client.metrics.rows import Table, has_text
from specbench_client.numpy_columns import Column, Mask, RaggedColumn, RowIndices, Values

POINT_ONLY_COLUMNS = (
    "tokens_of_chunks",
    "coalesced",
    "burst_chunks",
    "burst_tokens",
    "output_tokens_client",
    "reasoning_tokens",
    "token_conflict",
    "error",
)
"""Columns that only the checks of a single point need; dropped when points are combined, as they are most of a row."""
BURST_NS = 100_000.0
"""Chunks at most this far apart arrived in one write: the segments of a write are closer."""
STALL_NS, STALL_TIMES = 10e9, 10.0
"""A request stalled if nothing of it arrived for so long, and for so many times as long as usual."""


def condense_lists(records: pa.Table, rows: Table) -> dict[str, Column]:
    """Return the columns that replace the lists of the records; missing where the list is missing.

    `rows` are the other tidy columns of the same records.

    - `chunks`: number of chunks. `chunk_tokens_known`: whether the record has tokens per chunk.
    - `timed_tokens`: the answer's tokens up to its last text, and one after it: without drafting, a chunk of its own
      has the end-of-sequence token, which a step with drafts emits with the last text. Uncounted chunks: all tokens.
    - `first_tokens`: those of them in the first chunk, at least 1; 1 where chunks are not counted, and missing
      where it is then unknown whether the first one has a token; infinite where it has many, and how many is unknown.
    - `timed_steps`: the steps of `timed_tokens` after the first chunk.
    - `tokens_of_chunks`: tally of the tokens per chunk.
    - `coalesced`: tally of the tokens that arrived at one time, counted once per chunk that arrived with a later one.
    - `burst_chunks`, `burst_tokens`: size of the largest group of chunks within `BURST_NS` of one another.
    - `accepted_of_steps`: tally of accepted drafts per step.
    - `verified_of_steps`: the same with accepted drafts that were cut off at the end of the answer, if they are known.
    - `decided_of_steps`: tally of the drafts per step that were accepted, or rejected after all before them were
      accepted. Where only the total of an answer's drafts is known, one was rejected after the accepted ones; missing
      where it is not, because then the length of drafts may vary.
    - `silence_ns`: longest time in which nothing of the answer arrived, from sending to its last chunk.
    - `silent_from_ns`: when that time began.
    - `walk`: positions of the steps, for steady rows, see `locate_steps`.
    - `edge_ns`, `edge_tokens`: the chunks themselves, for answered rows that are not steady.

    Tallies, walks and chunks are ragged columns (`specbench_client.numpy_columns`).
    """
    at, chunk_tokens, accepted, drafted = (
        _ragged(records[name]) for name in ("chunk_ns", "chunk_tokens", "step_accepted", "step_drafted")
    )
    tokens, totals, cut = (rows.array(name).astype(np.float64) for name in ("tokens", "drafted_tokens", "cut_tokens"))
    verified = _with_cut(accepted, cut)
    weights = _weights(at, chunk_tokens, tokens)
    first_tokens, listed = np.ones(len(rows)), chunk_tokens.sizes > 0
    first_tokens[listed] = np.fmax(chunk_tokens.entries[chunk_tokens.starts[listed]], 1.0)
    first_tokens[has_text(rows, "token_conflict", TokenConflict.UNCOUNTED_START)] = np.nan
    first_tokens[has_text(rows, "token_conflict", TokenConflict.LARGE_START)] = np.inf
    timed = _timed(at, weights, first_tokens, rows)
    bursts = _arrival_groups(at, weights, apart_ns=BURST_NS).largest()
    silent_from_ns, silence_ns = _silences(at, rows)
    edges = rows.array("ok") & ~rows.array("steady")
    return {
        "chunks": np.where(at.known, at.sizes, np.nan).astype(np.float32),
        "chunk_tokens_known": chunk_tokens.known,
        "timed_tokens": timed[0],
        "first_tokens": first_tokens,
        "timed_steps": timed[1],
        "tokens_of_chunks": _tallies_of(chunk_tokens),
        "coalesced": _arrival_groups(at, weights, apart_ns=0.0).coalesced(),
        "burst_chunks": bursts[0],
        "burst_tokens": bursts[1],
        "accepted_of_steps": _tallies_of(accepted),
        "verified_of_steps": _tallies_of(verified),
        "decided_of_steps": _tallies_of(_decided(verified, drafted).where(~np.isnan(totals))),
        "silence_ns": silence_ns,
        "silent_from_ns": silent_from_ns,
        "walk": locate_steps(_emitted_by_step(accepted, chunk_tokens, rows), rows),
        "edge_ns": at.where(edges),
        "edge_tokens": chunk_tokens.where(edges),
    }


def stalled_rows(rows: Table) -> Mask:
    """Return which requests of a point stalled, shape (rows,): their longest silence is far above the median one."""
    silence = rows.array("silence_ns")
    known = silence[~np.isnan(silence)]
    usual = float(np.median(known)) if known.size else 0.0
    stalled: Mask = silence > max(STALL_NS, STALL_TIMES * usual)
    return stalled


def _silences(at: RaggedColumn, rows: Table) -> tuple[Values, Values]:
    """Return begin and length of the longest gap before a chunk, shape (rows,) each, or else of its whole time."""
    begin, last = (rows.array(name).astype(np.float64) for name in ("sent_ns", "last_token_ns"))
    streamed, before, silence = at.sizes > 0, np.roll(at.entries, 1), last - begin
    firsts = at.starts[streamed]
    before[firsts] = begin[streamed]
    if firsts.size:
        gaps = at.entries - before
        silence[streamed] = np.fmax.reduceat(gaps, firsts)
        longest = gaps == silence[at.owner]
        begin[at.owner[longest]] = before[longest]
    return begin, silence


def _ragged(column: pa.ChunkedArray) -> RaggedColumn:
    """Convert a column of lists of numbers; missing values within a list become NaN."""
    lists = column.combine_chunks()
    sizes = pc.list_value_length(lists).fill_null(-1).to_numpy()
    return RaggedColumn(sizes, lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64))


def _with_cut(accepted: RaggedColumn, cut: Values) -> RaggedColumn:
    """Return the accepted drafts of each step with those that were cut off; `cut`: shape (rows,), NaN if unknown."""
    flat, at = accepted.entries.copy(), (accepted.sizes > 0) & (cut > 0)
    flat[(accepted.starts + accepted.sizes - 1)[at]] += cut[at]
    return RaggedColumn(accepted.sizes, flat)


def _decided(accepted: RaggedColumn, drafted: RaggedColumn) -> RaggedColumn:
    """Return how many drafts of each step were accepted or rejected: those after the first rejection were neither."""
    decided, listed = accepted.entries + 1, drafted.sizes == accepted.sizes
    mine, theirs = listed[accepted.owner], listed[drafted.owner]
    decided[mine] = np.minimum(decided[mine], drafted.entries[theirs])
    return RaggedColumn(accepted.sizes, decided)


def _weights(at: RaggedColumn, chunk_tokens: RaggedColumn, tokens: Values) -> Values:
    """Return the tokens of each chunk: those of the record, else the answer's tokens spread evenly."""
    weights = np.where(np.isnan(tokens), 1.0, tokens / np.maximum(at.sizes, 1))[at.owner]
    listed = (chunk_tokens.sizes == at.sizes) & ~np.isnan(chunk_tokens.sums(chunk_tokens.entries))
    weights[listed[at.owner]] = chunk_tokens.entries[listed[chunk_tokens.owner]]
    return weights


def _timed(at: RaggedColumn, weights: Values, first: Values, rows: Table) -> tuple[Values, Values]:
    """Return the tokens up to the last text and one more, and the steps from the first chunk to it, shape (rows,) each.

    Each later chunk is a step if all chunks are; otherwise the share of the tokens is that of the steps. A chunk that
    arrived in the same write as the last text is in the time. `first`: the tokens of the first chunk.
    """
    tokens, steps, last = (rows.array(name).astype(np.float64) for name in ("tokens", "steps", "last_token_ns"))
    is_late = at.entries > last[at.owner] + BURST_NS
    late = np.bincount(at.owner, np.where(is_late, weights, 0.0), at.sizes.size)
    by_tokens = steps * (tokens - late - first) / np.maximum(tokens - 1, 1.0)
    late_chunks = np.bincount(at.owner, is_late & (weights > 0), at.sizes.size)
    return tokens - np.fmax(late - 1, 0), np.where(at.sizes == steps + 1, steps - late_chunks, by_tokens)


def _tallies_of(column: RaggedColumn) -> RaggedColumn:
    """Return the tally of each row's values; missing values within a list are ignored."""
    present = ~np.isnan(column.entries)
    ones = np.ones(int(present.sum()))
    return _tallies(column.owner[present], column.entries[present], ones, column.known, np.float32)


def _arrival_groups(at: RaggedColumn, weights: Values, *, apart_ns: float) -> _ArrivalGroups:
    """Group each row's consecutive chunks that are at most `apart_ns` apart.

    `weights` are the tokens of each chunk, shape (chunks,).
    """
    owner = at.owner
    starts = np.flatnonzero((np.diff(at.entries, prepend=-np.inf) > apart_ns) | (np.diff(owner, prepend=-1) > 0))
    sizes = np.diff(np.append(starts, at.entries.size)).astype(np.float64)
    tokens = np.add.reduceat(weights, starts) if starts.size else np.empty(0)
    return _ArrivalGroups(owner[starts], sizes, tokens, at.known)


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
    entries = np.stack([values[starts], sums], axis=1).astype(kind)
    return RaggedColumn.of_entries(entries, owner[starts], known)


# Where the steps of an answer are: a walk through its steps, condensed to sums by class of position.
#
# The first token comes from the prefill and has output position 0. A step that begins at position p emits its accepted
# drafts and one more token, and the next step begins at p + accepted + 1. So the list of accepted drafts of all steps
# gives the position of each of them. If some steps had no drafts, engines list only the others, and positions can only
# be derived from chunks, if each of them is one step. A walk that does not end at the answer's last token is rejected.
#
# The result contains sums by class of position and of context, separately for reasoning and answer: both grow along the
# walk, so an answer has hardly more entries than there are classes, however long it is.

Classes = NDArray[np.int8]

POSITIONS = (1, *(2**power for power in range(4, 18)))
"""Lowest output position of each class; they double, because acceptance changes ever more slowly along an answer."""
CONTEXTS = (0, *(2**power for power in range(8, 21)))
"""Lowest context length of each class: tokens of the prompt and of the output before the step."""
UNKNOWN, ANSWER, REASONING = -1, 0, 1
"""Part of the answer that a step belongs to; UNKNOWN is also used for an unknown context."""
_BASE = 32
"""Larger than the number of classes of position, context or part, including UNKNOWN."""


def locate_steps(emitted: RaggedColumn, rows: Table) -> RaggedColumn:
    """Return the walk of each row; missing if its steps cannot be located.

    An entry has three fields: its classes as one number, the number of steps, and the tokens that they emitted.

    `emitted`: the tokens that each step emitted. `rows`: the other tidy columns of the same records.
    """
    inputs, reasoning_tokens = (rows.array(name).astype(np.float64) for name in ("input_tokens", "reasoning_tokens"))
    owner, flat = emitted.owner, emitted.entries
    before = np.cumsum(flat) - flat
    position = before - before[emitted.starts[owner]] + 1
    codes = encode_classes(
        _classes(POSITIONS, position),
        _classes(CONTEXTS, inputs[owner] + position),
        _parts(reasoning_tokens[owner], position),
    )
    begins = np.flatnonzero((np.diff(owner, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0))
    tokens = np.add.reduceat(flat, begins) if begins.size else np.empty(0)
    steps = np.diff(np.append(begins, flat.size))
    entries = np.stack([codes[begins], steps, tokens], axis=1).astype(np.int32)
    return RaggedColumn.of_entries(entries, owner[begins], emitted.known)


def encode_classes(
    position: NDArray[np.integer], context: NDArray[np.integer], part: NDArray[np.integer]
) -> NDArray[np.integer]:
    """Encode the classes of position, context and part as one number, shape (entries,) each."""
    codes: NDArray[np.integer] = ((position + 1) * _BASE + context + 1) * _BASE + part + 1
    return codes


def expand_classes(codes: NDArray[np.int32]) -> tuple[Classes, Classes, Classes]:
    """Return the classes of position, context and part that `encode_classes` encoded, shape (entries,) each."""
    each = codes // _BASE**2, codes // _BASE % _BASE, codes % _BASE
    position, context, part = ((code - 1).astype(np.int8) for code in each)
    return position, context, part


def _emitted_by_step(accepted: RaggedColumn, chunks: RaggedColumn, rows: Table) -> RaggedColumn:
    """Return the tokens that each step of an answer emitted; missing if neither list covers every step.

    Also missing for rows that are not steady, or whose acceptance is unknown.
    """
    steps, tokens = (rows.array(name).astype(np.float64) for name in ("steps", "tokens"))
    selected = rows.array("steady") & rows.known("acceptance_source")
    by_drafts = selected & (accepted.sizes == steps) & (accepted.sums(accepted.entries) + steps + 1 == tokens)
    is_first = np.diff(chunks.owner, prepend=-1) != 0
    # The first token comes from the prefill, and every step emits at least one.
    short = np.bincount(chunks.owner, np.where(is_first, chunks.entries != 1, chunks.entries < 1), chunks.sizes.size)
    by_chunks = (
        selected & ~by_drafts & (chunks.sizes == steps + 1) & (chunks.sums(chunks.entries) == tokens) & (short == 0)
    )
    drafts = RaggedColumn(accepted.sizes, accepted.entries + 1).where(by_drafts)
    sizes = np.where(by_chunks, chunks.sizes - 1, drafts.sizes).astype(np.int32)
    emitted = RaggedColumn(sizes, np.empty(int(np.maximum(sizes, 0).sum())))
    emitted.entries[by_drafts[emitted.owner]] = drafts.entries
    emitted.entries[by_chunks[emitted.owner]] = chunks.entries[by_chunks[chunks.owner] & ~is_first]
    return emitted


def _classes(lows: Sequence[int], values: Values) -> NDArray[np.intp]:
    """Index of the class of each value; UNKNOWN for missing values."""
    return np.where(np.isnan(values), UNKNOWN, np.searchsorted(lows, values, side="right") - 1)


def _parts(reasoning_tokens: Values, position: Values) -> NDArray[np.intp]:
    """REASONING for positions below the number of reasoning tokens, else ANSWER; UNKNOWN if that number is missing."""
    return np.where(np.isnan(reasoning_tokens), UNKNOWN, np.where(position < reasoning_tokens, REASONING, ANSWER))
