"""Pair each request of an arm with the baseline's request for the same prompt.

A pair has the same prompt, the same turn and the same pass over the prompts, in the same repeat, and both requests are
steady and without error. What fails or drains on one side is left out on both. The prompt of a later turn contains the
model's own earlier replies: a later turn is paired only if all of its earlier replies were identical on both sides (by
SHA-256); the others are counted but not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specbench_client.metrics.rows import Columns, Rows, read_columns, rows_at
from specbench_client.metrics.tidy_frame import Mask, Values, chain_history, flags, numbers

BUCKET_ROWS = 50_000
"""Rows processed together to bound memory, over all sides; the rows of one prompt are never split."""
RowIndices = NDArray[np.int32]


def iter_by_prompt(sides: Sequence[Columns]) -> Iterator[tuple[RowIndices, ...]]:
    """Yield the row indices of each side for a few prompts at a time, in prompt order, ascending."""
    codes, prompts = _codes(sides)
    orders = [np.argsort(each, kind="stable").astype(np.int32) for each in codes]
    counts = [np.bincount(each, minlength=prompts) for each in codes]
    ends = [np.concatenate([[0], np.cumsum(each)]) for each in counts]
    for first, last in _prompt_spans(np.sum(counts, axis=0)):
        yield tuple(np.sort(order[end[first] : end[last]]) for order, end in zip(orders, ends, strict=True))


def _codes(sides: Sequence[Columns]) -> tuple[list[RowIndices], int]:
    """The index of each row's prompt, shape (rows,) per side, and the number of prompts over all sides."""
    factorized = [pd.factorize(side["prompt_id"].to_numpy(object)) for side in sides]
    every = sorted({str(prompt) for _, found in factorized for prompt in found})
    numbers = {prompt: number for number, prompt in enumerate(every)}
    mapped = [
        np.array([*(numbers[str(each)] for each in found), len(every)], dtype=np.int32)[codes]
        for codes, found in factorized
    ]
    return mapped, len(every) + 1


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
class JoinedRows:
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
        if name.endswith(BASELINE):
            return _take(self.baseline[name.removesuffix(BASELINE)], self.right)
        return _take(self.arm[name.removesuffix(ARM)], self.left)

    def among(self, mask: Mask) -> JoinedRows:
        """Return the pairs selected by a mask of shape (pairs,)."""
        left, right, passes = (each[mask] for each in (self.left, self.right, self.passes))
        return JoinedRows(self.arm, self.baseline, left, right, passes, self.history[mask])


@dataclass(frozen=True)
class PairSide:
    """One side of the pairs, under its original column names."""

    rows: Columns
    suffix: str

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in PAIR_KEY or f"{name}{self.suffix}" in self.rows

    def __getitem__(self, name: str) -> pd.Series:
        return self.rows[name if name in PAIR_KEY else name + self.suffix]


@dataclass(frozen=True)
class Pairs:
    """Paired rows, with a suffix on each side's columns, and the number of requests that could not be paired."""

    rows: pd.DataFrame | JoinedRows
    candidates: int
    """Steady requests of the arm."""
    unpaired_later: int
    """Candidates that are later turns whose earlier replies differ from the baseline's or are not known."""

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
        rows = self.rows
        selected = rows.among(mask) if isinstance(rows, JoinedRows) else rows[mask].reset_index(drop=True)
        return Pairs(selected, int(mask.sum()), 0)

    def of_category(self, name: str) -> Pairs:
        """Return the pairs of one category."""
        return self.among((self.rows["category" + BASELINE] == name).to_numpy(np.bool_))


def pair_requests(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows) -> Pairs:
    """Pair the tidy rows of an arm with those of the baseline, over all repeats of one cell."""
    found = [_match(arm, baseline, *row_indices) for row_indices in iter_by_prompt((arm, baseline))]
    left, right, passes = (
        np.concatenate(each).astype(np.int32) for each in zip(*(one.rows for one in found), strict=True)
    )
    history = np.concatenate([one.history for one in found])
    order = np.argsort(left, kind="stable")
    joined = JoinedRows(arm, baseline, left[order], right[order], passes[order], history[order])
    return Pairs(joined, sum(one.candidates for one in found), sum(one.unpaired_later for one in found))


@dataclass(frozen=True)
class _Matches:
    """Pairs of some prompts: row indices of the arm and of the baseline, and passes, shape (pairs,) each."""

    rows: tuple[RowIndices, RowIndices, RowIndices]
    history: Values
    candidates: int
    unpaired_later: int


def _match(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, mine: RowIndices, theirs: RowIndices) -> _Matches:
    """Pair the rows of some prompts, given their row indices on both sides."""
    left, right = (
        _keyed(read_columns(rows_at(rows, row_indices), _READ), row_indices)
        for rows, row_indices in ((arm, mine), (baseline, theirs))
    )
    merged = left.merge(right, on=PAIR_KEY, how="inner", suffixes=(ARM, BASELINE))
    known = merged[HISTORY + ARM].notna() & (merged[HISTORY + ARM] == merged[HISTORY + BASELINE])
    comparable = known.to_numpy(bool) | (numbers(merged, "turn") == 0)
    comparable_rows = merged[comparable]
    arm_rows, baseline_rows, passes = (
        comparable_rows[name].to_numpy(np.int32) for name in (_ROW + ARM, _ROW + BASELINE, "pass")
    )
    history = comparable_rows[HISTORY + ARM].to_numpy(np.float64)
    return _Matches((arm_rows, baseline_rows, passes), history, len(left), int((~comparable).sum()))


def _keyed(rows: pd.DataFrame, row_indices: RowIndices) -> pd.DataFrame:
    """Return the steady rows with their row index, pass over the prompts and hash of their earlier replies."""
    numbered = with_pass_number(rows.assign(**{_ROW: row_indices}))
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
