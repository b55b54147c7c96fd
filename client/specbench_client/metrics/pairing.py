"""Pair each request of an arm with the baseline's request for the same prompt.

A pair has the same prompt, the same turn and the same pass over the prompts, in the same repeat, and both requests are
steady and without error. What fails or drains on one side is left out on both. The prompt of a later turn contains the
model's own earlier replies: a later turn is paired only if all of its earlier replies were identical on both sides (by
SHA-256); the others are counted but not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specbench_api.plan.plan import Plan
from specbench_client.metrics.rows import Table, group_numbers, has_text, join_rows
from specbench_client.metrics.tidy_frame import NUMBERS_TOGETHER, chain_history, numbers
from specbench_client.numpy_columns import Mask, RowIndices, TextCodes, Values

BUCKET_ROWS = 50_000
"""Rows processed together to bound memory, over all sides; the rows of one prompt are never split."""


def iter_by_prompt(sides: Sequence[Table]) -> Iterator[tuple[RowIndices, ...]]:
    """Yield the row indices of each side for a few prompts at a time, in prompt order, ascending."""
    columns = [side.codes("prompt_id") for side in sides]
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


PAIR_KEY = ["repeat", "prompt_id", "pass", "turn"]
HISTORY = "history"
ROW = "row"
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


@dataclass(frozen=True)
class Pairs:
    """Paired requests: row i of the arm's table is paired with row i of the baseline's. Both are selections of rows."""

    arm: Table
    baseline: Table
    candidates: int
    """Steady requests of the arm."""
    unpaired_later: int
    """Candidates that are later turns whose earlier replies differ from the baseline's or are not known."""
    alternating: bool = False
    """Whether the arms change their order in every repeat (ABBA)."""
    anytime: bool = False
    """Whether the measurement stops when its speed-up is decided, so that intervals must be valid at any time."""
    launches: bool = False
    """Whether each repeat has launches of its own."""

    def __len__(self) -> int:
        return len(self.arm)

    def pieces(self) -> Iterator[Pairs]:
        """Yield at most `NUMBERS_TOGETHER` pairs at a time."""
        for arm, baseline in zip(
            self.arm.pieces(NUMBERS_TOGETHER), self.baseline.pieces(NUMBERS_TOGETHER), strict=True
        ):
            yield replace(self, arm=arm, baseline=baseline)

    def among(self, mask: Mask) -> Pairs:
        """Return the pairs selected by a mask of shape (pairs,), without the counts of unpaired requests."""
        arm, baseline = self.arm.among(mask), self.baseline.among(mask)
        return replace(self, arm=arm, baseline=baseline, candidates=int(mask.sum()), unpaired_later=0)

    def of_category(self, name: str) -> Pairs:
        """Return the pairs of one category: the baseline's, as everywhere."""
        return self.among(has_text(self.baseline, "category", name))


def pair_requests(arm: Table, baseline: Table, plan: Plan | None) -> Pairs:
    """Pair the tidy rows of an arm with those of the baseline, over all repeats of one cell.

    `plan`: of the run that both belong to; None for rows without one, whose arms have a fixed order and number of
    repeats.
    """
    found = (_match(arm, baseline, *row_indices) for row_indices in iter_by_prompt((arm, baseline)))
    lefts, rights, candidates, unpaired_later = zip(*found, strict=True)
    left, right = np.concatenate(lefts), np.concatenate(rights)
    order = np.argsort(left, kind="stable")
    pairs = Pairs(arm.at(left[order]), baseline.at(right[order]), sum(candidates), sum(unpaired_later))
    if plan is None:
        return pairs
    return replace(pairs, alternating=plan.alternates, anytime=plan.may_end_early, launches=plan.launches_repeats)


def _match(
    arm: Table, baseline: Table, mine: RowIndices, theirs: RowIndices
) -> tuple[RowIndices, RowIndices, int, int]:
    """Pair the rows of some prompts, given their row indices on both sides.

    Returns the row indices of the pairs on both sides, shape (pairs,) each, and the numbers of candidates and of
    unpaired later turns.
    """
    left, right = (keyed_requests(rows, row_indices) for rows, row_indices in ((arm, mine), (baseline, theirs)))
    first, second = join_rows(left, right, PAIR_KEY)
    same_history = left.array(HISTORY)[first] == right.array(HISTORY)[second]
    comparable = same_history | (left.array("turn")[first] == 0)
    rows = left.array(ROW)[first[comparable]], right.array(ROW)[second[comparable]]
    return *rows, len(left), int((~comparable).sum())


def keyed_requests(rows: Table, at: RowIndices) -> Table:
    """Return the steady rows among these rows of some prompts, all of which are needed.

    The columns are those of `PAIR_KEY`, the hash of earlier replies, and `row`, the row's index.
    """
    some = with_history(rows.at(at).table(_READ)).assign(**{ROW: at})
    return some.table([*PAIR_KEY, HISTORY, ROW]).among(some.array("steady"))


def with_history(rows: Table) -> Table:
    """Add the columns `pass` (`pass_numbers`) and `history` to all rows of some prompts.

    The history is a number for the earlier replies of the row's conversation: equal for equal replies
    (`metrics.tidy_frame.text_digests`), 0 if there are none, and NaN if one of them is not known.
    """
    passes = pass_numbers(rows)
    return rows.assign(**{"pass": passes}, history=_history_hashes(rows, passes))


def pass_numbers(rows: Table) -> RowIndices:
    """Number the passes over each prompt of each repeat from 0, in the order of their intended start; shape (rows,).

    `rows`: all rows of some prompts.
    """
    question = group_numbers(rows.column("repeat"), rows.column("prompt_id"))
    conversation = group_numbers(rows.column("point"), question, rows.column("conversation_id"))
    started = np.full(len(rows), np.inf)
    np.fmin.at(started, conversation, numbers(rows, "intended_ns"))
    ranks, first = group_numbers(question, started[conversation]), np.full(len(rows), len(rows))
    np.minimum.at(first, question, ranks)
    passes: RowIndices = (ranks - first[question]).astype(np.int32)
    return passes


def _history_hashes(rows: Table, passes: RowIndices) -> Values:
    """Return the history of each row, shape (rows,)."""
    conversation = group_numbers(rows.column("repeat"), rows.column("prompt_id"), passes)
    order = np.lexsort((numbers(rows, "turn"), conversation))
    replies, found = numbers(rows, "output_sha256")[order], np.full(len(rows), _NO_HISTORY)
    firsts = np.flatnonzero(np.diff(conversation[order], prepend=-1) != 0)
    depth = np.arange(len(rows)) - np.repeat(firsts, np.diff(np.append(firsts, len(rows))))
    for turns in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == turns)
        found[here] = chain_history(found[here - 1], replies[here - 1])
    hashes = np.empty(len(rows))
    hashes[order] = found
    return hashes
