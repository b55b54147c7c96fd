"""Pair each request of an arm with the baseline's request for the same prompt.

A pair has the same prompt, the same turn and the same pass over the prompts, in the same repeat, and both requests are
steady and without error. What fails or drains on one side is left out on both. The prompt of a later turn contains the
model's own earlier replies: a later turn is paired only if all of its earlier replies were identical on both sides (by
SHA-256); the others are counted but not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_api.plan.plan import Plan
from specbench_client.metrics.rows import (
    Columns,
    LazyColumns,
    Rows,
    TextCodes,
    fill,
    has_text,
    iter_pieces,
    read_columns,
    rows_at,
    text_codes,
)
from specbench_client.metrics.tidy_frame import Mask, Values, chain_history, flags, numbers

BUCKET_ROWS = 50_000
"""Rows processed together to bound memory, over all sides; the rows of one prompt are never split."""
PIECE_PAIRS = 262_144
"""Pairs that are read together: their rows of the baseline are in any order, and a piece reads each block once."""
RowIndices = NDArray[np.int32]


def iter_by_prompt(sides: Sequence[Columns]) -> Iterator[tuple[RowIndices, ...]]:
    """Yield the row indices of each side for a few prompts at a time, in prompt order, ascending."""
    columns = [text_codes(side, "prompt_id") for side in sides]
    names = sorted({str(text) for column in columns for text in column.texts})
    numbers = {name: number for number, name in enumerate(names)}
    orders, counts = zip(*(_by_prompt(columns.pop(0), numbers) for _ in sides), strict=True)
    ends = [np.concatenate([[0], np.cumsum(each)]) for each in counts]
    for first, last in _prompt_spans(np.sum(counts, axis=0)):
        yield tuple(np.sort(order[end[first] : end[last]]) for order, end in zip(orders, ends, strict=True))


def _by_prompt(column: TextCodes, numbers: Mapping[str, int]) -> tuple[RowIndices, NDArray[np.int64]]:
    """Return the row indices in the order of their prompts' numbers, and the number of rows of each prompt."""
    ranks = np.array([*(numbers[str(text)] for text in column.texts), len(numbers)], dtype=np.int32)
    prompts = ranks[column.codes]
    counts = np.bincount(prompts, minlength=len(numbers) + 1)
    return np.argsort(prompts, kind="stable").astype(np.int32), counts


def _prompt_spans(rows: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Yield spans of prompts with at most `BUCKET_ROWS` rows together, but at least one prompt."""
    start, total = 0, 0
    for prompt, count in enumerate(rows):
        if total and total + count > BUCKET_ROWS:
            yield start, prompt
            start, total = prompt, 0
        total += int(count)
    yield start, len(rows)


STEPS = "steps"
PAIR_KEY = ["repeat", "prompt_id", "pass", "turn"]
SIDE_COLUMNS = [
    "category",
    "input_tokens",
    "tokens",
    STEPS,
    "intended_ns",
    "first_token_ns",
    "last_token_ns",
    "finish_reason",
    "output_sha256",
    "cached_tokens",
]
ARM, BASELINE = "_arm", "_baseline"
HISTORY = "history"
_NO_HISTORY = 0.0
"""The history of a first turn, which has no earlier replies."""
_READ = (
    "repeat",
    "prompt_id",
    "turn",
    "point",
    "conversation_id",
    "intended_ns",
    "output_sha256",
    "steady",
)
"""Columns needed for pairing."""
_ROW = "row"


@dataclass(frozen=True)
class JoinedRows(LazyColumns):
    """Pairs as row indices on both sides, shape (pairs,); the columns are read from the sides on access."""

    arm: Columns
    baseline: Columns
    left: RowIndices
    right: RowIndices
    passes: RowIndices
    history: Values

    def __len__(self) -> int:
        return int(self.left.size)

    def __contains__(self, name: object) -> bool:
        text = str(name)
        if text in ("pass", HISTORY + ARM):
            return True
        side = self.baseline if text.endswith(BASELINE) else self.arm
        return text.removesuffix(BASELINE).removesuffix(ARM) in side

    def __getitem__(self, name: str) -> pd.Series:
        if name == "pass":
            return pd.Series(self.passes, copy=False)
        if name == HISTORY + ARM:
            return pd.Series(self.history, copy=False)
        rows, column, at = self._place(name)
        if len(self) <= PIECE_PAIRS:
            return _take(rows[column], at)
        pieces = (piece[name].to_numpy() for piece in self.pieces())
        first = next(pieces)
        values = np.empty(len(self), dtype=first.dtype)
        fill(values, chain([first], pieces))
        return pd.Series(values, dtype=values.dtype, copy=False)

    def codes(self, name: str) -> TextCodes:
        """Return a column of texts as codes."""
        rows, column, at = self._place(name)
        found = text_codes(rows, column)
        return TextCodes(found.codes[at], found.texts)

    def _place(self, name: str) -> tuple[Columns, str, RowIndices]:
        """Return the side that has the column, its name there, and the rows of the pairs."""
        if name.endswith(BASELINE):
            return self.baseline, name.removesuffix(BASELINE), self.right
        return self.arm, name.removesuffix(ARM), self.left

    def among(self, mask: Mask) -> JoinedRows:
        """Return the pairs selected by a mask of shape (pairs,)."""
        left, right, passes = (each[mask] for each in (self.left, self.right, self.passes))
        return JoinedRows(self.arm, self.baseline, left, right, passes, _repeated(self.history[mask]))

    def pieces(self) -> Iterator[JoinedRows]:
        """Yield the pairs piece by piece; columns of a piece are read from the blocks of its rows alone."""
        if len(self) <= PIECE_PAIRS:
            yield self
            return
        for start in range(0, len(self), PIECE_PAIRS):
            some = slice(start, start + PIECE_PAIRS)
            arm, left = _only(self.arm, self.left[some])
            baseline, right = _only(self.baseline, self.right[some])
            yield JoinedRows(arm, baseline, left, right, self.passes[some], self.history[some])


@dataclass(frozen=True)
class PairSide(LazyColumns):
    """One side of the pairs, under its original column names."""

    rows: Columns
    suffix: str

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in PAIR_KEY or f"{name}{self.suffix}" in self.rows

    def __getitem__(self, name: str) -> pd.Series:
        return self.rows[self._named(name)]

    def codes(self, name: str) -> TextCodes:
        """Return a column of texts as codes."""
        return text_codes(self.rows, self._named(name))

    def pieces(self) -> Iterator[PairSide]:
        """Yield the rows piece by piece."""
        return (replace(self, rows=piece) for piece in iter_pieces(self.rows))

    def _named(self, name: str) -> str:
        return name if name in PAIR_KEY else name + self.suffix


@dataclass(frozen=True)
class Pairs:
    """Paired rows, with a suffix on each side's columns, and the number of requests that could not be paired."""

    rows: Columns
    candidates: int
    """Steady requests of the arm."""
    unpaired_later: int
    """Candidates that are later turns whose earlier replies differ from the baseline's or are not known."""
    alternating: bool = False
    """Whether the arms change their order in every repeat (ABBA)."""
    anytime: bool = False
    """Whether the measurement stops when its speed-up is decided, so that intervals must be valid at any time."""

    @property
    def table(self) -> pd.DataFrame:
        """The pairs as a data frame: a copy of all columns."""
        if isinstance(self.rows, pd.DataFrame):
            return self.rows
        sides = (name + suffix for suffix in (ARM, BASELINE) for name in SIDE_COLUMNS)
        return read_columns(self.rows, [*PAIR_KEY, *(name for name in sides if name in self.rows), HISTORY + ARM])

    def side(self, suffix: str) -> PairSide:
        """Return one side's rows under their original column names."""
        return PairSide(self.rows, suffix)

    def among(self, mask: Mask) -> Pairs:
        """Return the pairs selected by a mask of shape (pairs,), without the counts of unpaired requests."""
        if isinstance(self.rows, JoinedRows):
            return replace(self, rows=self.rows.among(mask), candidates=int(mask.sum()), unpaired_later=0)
        rows = self.table[mask].reset_index(drop=True)
        return replace(self, rows=rows, candidates=int(mask.sum()), unpaired_later=0)

    def of_category(self, name: str) -> Pairs:
        """Return the pairs of one category."""
        return self.among(has_text(self.rows, "category" + BASELINE, name))


def pair_requests(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, plan: Plan | None) -> Pairs:
    """Pair the tidy rows of an arm with those of the baseline, over all repeats of one cell.

    `plan`: of the run that both belong to; None for rows without one, whose arms have a fixed order and number of
    repeats.
    """
    found = [_match(arm, baseline, *row_indices) for row_indices in iter_by_prompt((arm, baseline))]
    counts = sum(one.candidates for one in found), sum(one.unpaired_later for one in found)
    columns = [list(each) for each in zip(*(one.columns for one in found), strict=True)]
    found.clear()
    left, right, passes, history = (_concatenated(columns.pop(0)) for _ in range(len(columns)))
    order = np.argsort(left, kind="stable").astype(np.int32)
    left, right, passes = left[order], right[order], passes[order]
    rows = JoinedRows(arm, baseline, left, right, passes, _repeated(history[order]))
    return Pairs(rows, *counts) if plan is None else Pairs(rows, *counts, plan.alternates, plan.stop is not None)


def _concatenated(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate the pieces and empty the list."""
    whole = _repeated(np.concatenate(pieces)) if pieces[0].dtype == np.float64 else np.concatenate(pieces)
    pieces.clear()
    return whole


def _repeated(values: Values) -> Values:
    """Return the same values, as a view of the first if all are equal, as histories of first turns are."""
    return np.broadcast_to(values[0], values.shape) if values.size and (values == values[0]).all() else values


def _only(rows: Columns, at: RowIndices) -> tuple[Columns, RowIndices]:
    """Return only these rows of a side, each once and ascending, and the indices of the requested rows among them."""
    if not isinstance(rows, Rows):
        return rows, at
    ascending, places = np.unique(at, return_inverse=True)
    return rows.at(ascending), places.astype(np.int32)


@dataclass(frozen=True)
class _Matches:
    """Pairs of some prompts: row indices of the arm and of the baseline, passes, and histories, shape (pairs,) each."""

    columns: tuple[RowIndices, RowIndices, RowIndices, Values]
    candidates: int
    unpaired_later: int


def _match(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, mine: RowIndices, theirs: RowIndices) -> _Matches:
    """Pair the rows of some prompts, given their row indices on both sides."""
    left, right = (keyed_requests(rows, row_indices) for rows, row_indices in ((arm, mine), (baseline, theirs)))
    merged = left.merge(right, on=PAIR_KEY, how="inner", suffixes=(ARM, BASELINE))
    known = merged[HISTORY + ARM].notna() & (merged[HISTORY + ARM] == merged[HISTORY + BASELINE])
    comparable = known.to_numpy(bool) | (numbers(merged, "turn") == 0)
    comparable_rows = merged[comparable]
    arm_rows, baseline_rows, passes = (
        comparable_rows[name].to_numpy(np.int32) for name in (_ROW + ARM, _ROW + BASELINE, "pass")
    )
    history = _repeated(comparable_rows[HISTORY + ARM].to_numpy(np.float64))
    return _Matches((arm_rows, baseline_rows, passes, history), len(left), int((~comparable).sum()))


def keyed_requests(rows: pd.DataFrame | Rows, at: RowIndices) -> pd.DataFrame:
    """Return the steady rows among these rows of some prompts, all of which are needed.

    The columns are those of `PAIR_KEY`, the hash of earlier replies, and `row`, the row's index.
    """
    some = read_columns(rows_at(rows, at), _READ)
    numbered = with_pass_number(some.assign(**{_ROW: at}))
    numbered[HISTORY] = history_hashes(numbered)
    return numbered.loc[flags(numbered, "steady"), [*PAIR_KEY, HISTORY, _ROW]]


def _take(column: pd.Series, row_indices: RowIndices) -> pd.Series:
    return pd.Series(column.to_numpy()[row_indices], dtype=column.dtype, copy=False)


def with_pass_number(rows: pd.DataFrame) -> pd.DataFrame:
    """Number the passes over each prompt of each repeat from 0, in the order of their intended start."""
    conversations = rows.groupby(["point", "repeat", "prompt_id", "conversation_id"], sort=False)
    started = conversations["intended_ns"].transform("min")
    numbered = rows.assign(started=started)
    ranked = numbered.groupby(["repeat", "prompt_id"], sort=False)["started"].rank(method="dense")
    return numbered.assign(**{"pass": ranked.fillna(1).astype(int) - 1}).drop(columns="started")


def history_hashes(rows: pd.DataFrame) -> pd.Series:
    """Return the earlier replies of each row's conversation as one number; NaN if one of them is not known.

    `rows` need the column `pass`, see `with_pass_number`. Equal numbers mean equal replies
    (`metrics.tidy_frame.text_digests`); 0 means that there are none.
    """
    conversation = rows.groupby(["repeat", "prompt_id", "pass"], sort=False, dropna=False).ngroup().to_numpy()
    order = np.lexsort((numbers(rows, "turn"), conversation))
    replies, found = numbers(rows, "output_sha256")[order], np.full(len(rows), _NO_HISTORY)
    firsts = np.flatnonzero(np.diff(conversation[order], prepend=-1) != 0)
    depth = np.arange(len(rows)) - np.repeat(firsts, np.diff(np.append(firsts, len(rows))))
    for turns in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == turns)
        found[here] = chain_history(found[here - 1], replies[here - 1])
    hashes = np.empty(len(rows))
    hashes[order] = found
    return pd.Series(hashes, index=rows.index)
