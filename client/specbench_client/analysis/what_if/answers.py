"""Recorded answers, and how many drafts a drafter had accepted at each position of them.

Both are flat arrays: the answers end to end, one element per output token. Position p of an answer is where p of its
tokens have been emitted and token p is next. Token 0 comes from the prefill, so no step begins at position 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specbench_client.analysis.statistics.row_layout import RowLayout, layout_of
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import TextCodes

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class AnswerSet:
    """Answers with their lengths.

    `ids`: prompt of each answer, length (answers,); answers to one prompt are resampled together in intervals.
    `prompt_tokens`, `output_tokens`, `repeats`: shape (answers,).
    """

    ids: tuple[str, ...]
    categories: tuple[str | None, ...]
    prompt_tokens: Tokens
    output_tokens: Tokens
    repeats: Tokens

    @property
    def count(self) -> int:
        return len(self.ids)

    @cached_property
    def starts(self) -> Tokens:
        """Index of each answer's position 0 in the flat arrays, shape (answers,)."""
        return np.concatenate([[0], np.cumsum(self.output_tokens)[:-1]]).astype(np.int64)

    @property
    def positions(self) -> int:
        """Length of the flat arrays."""
        return int(self.output_tokens.sum())

    @cached_property
    def layout(self) -> RowLayout:
        """Prompts, repeats and categories that the resamples of an interval are drawn from."""
        texts = {"prompt_id": TextCodes.of(self.ids), "category": TextCodes.of(self.categories)}
        return layout_of(Table({"repeat": self.repeats, **texts}))

    def of(self, chosen: NDArray[np.bool_]) -> tuple[AnswerSet, Tokens]:
        """Return some of the answers, and the indexes of their positions in the flat arrays of all.

        `chosen`: shape (answers,).
        """
        keep = np.flatnonzero(chosen)
        some = AnswerSet(
            tuple(self.ids[each] for each in keep),
            tuple(self.categories[each] for each in keep),
            self.prompt_tokens[keep],
            self.output_tokens[keep],
            self.repeats[keep],
        )
        return some, np.flatnonzero(np.repeat(chosen, self.output_tokens))


@dataclass(frozen=True)
class PositionAcceptance:
    """Number of drafts of one drafter that a step at each position accepts, if it drafts enough.

    `accepted`, `proposed`: shape (positions,).
    """

    accepted: Tokens
    proposed: Tokens | None = None
    """Draft tokens that the drafter can propose there; None if it always proposes as many as requested."""

    def at(self, positions: Tokens) -> PositionAcceptance:
        """Return the acceptance at these indexes of the flat arrays."""
        return PositionAcceptance(self.accepted[positions], None if self.proposed is None else self.proposed[positions])

    def drafts(self, most: int) -> Tokens:
        """Return the draft tokens of a step that requests `most`, shape (positions,)."""
        return np.full_like(self.accepted, most) if self.proposed is None else np.minimum(self.proposed, most)


# Span-split: a step that emits L tokens at position p would have emitted at least L − j tokens at p + j, because the
# drafts accepted after p + j are the same where drafts depend on the text alone. This gives a lower bound for the
# positions inside a step. A walk with shorter drafts over these bounds is about 3 % too low on released traces;
# truncating each step separately is up to 30 % too low.


def steps_cover_answer(step_accepted: Sequence[int] | Tokens | None, output_tokens: int) -> bool:
    """Return whether these are all steps of an answer: 1 token from the prefill, and accepted + 1 from each step.

    Engines report only the steps that drafted. If some steps did not draft, the positions of the others are unknown.
    """
    if step_accepted is None:
        return False
    accepted = np.asarray(step_accepted, dtype=np.int64)
    return 1 + int(accepted.sum()) + accepted.size == output_tokens and bool((accepted >= 0).all())


def span_split(step_accepted: Sequence[int] | Tokens) -> Tokens:
    """Return the accepted drafts at every position of one answer, shape (output tokens,).

    `step_accepted`: accepted drafts a of each step in order, shape (steps,); a step covers a, a − 1, …, 0.
    """
    emitted = np.asarray(step_accepted, dtype=np.int64) + 1
    ends = np.cumsum(emitted)
    remaining = np.repeat(ends, emitted) - np.arange(int(emitted.sum())) - 1
    return np.concatenate([[0], remaining]).astype(np.int64)


STEPPED_MIN = 2
"""Fewest output tokens of an answer that has a decode step: its first token comes from the prefill."""


@dataclass(frozen=True)
class DraftedAnswer:
    """One answer, and the accepted drafts of a drafter at each of its positions."""

    prompt_id: str
    category: str | None
    repeat: int
    prompt_tokens: int
    acceptance: PositionAcceptance

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return int(self.acceptance.accepted.size)


@dataclass(frozen=True)
class DrafterAnswers:
    """All answers of one drafter, end to end."""

    answers: AnswerSet
    acceptance: PositionAcceptance


def join_answers(drafted: Iterable[DraftedAnswer]) -> DrafterAnswers:
    """Put answers end to end; answers without a decode step are left out.

    `proposed` is known only where all answers have it.
    """
    stepped = [each for each in drafted if each.tokens >= STEPPED_MIN]
    accepted = np.concatenate([each.acceptance.accepted for each in stepped] or [np.empty(0, dtype=np.int64)])
    proposed = [each.acceptance.proposed for each in stepped if each.acceptance.proposed is not None]
    known = bool(stepped) and len(proposed) == len(stepped)
    answers = AnswerSet(
        tuple(each.prompt_id for each in stepped),
        tuple(each.category for each in stepped),
        np.array([each.prompt_tokens for each in stepped], dtype=np.int64),
        np.array([each.tokens for each in stepped], dtype=np.int64),
        np.array([each.repeat for each in stepped], dtype=np.int64),
    )
    return DrafterAnswers(answers, PositionAcceptance(accepted, np.concatenate(proposed) if known else None))


# Answers are read from the records of a run. Accepted drafts between its steps come from span-split.

COLUMNS = (
    "prompt_id", "category", "turn", "repeat", "phase", "input_tokens", "output_tokens", "step_accepted", "error_class",
    "output_text", "output_token_ids",
)  # fmt: skip
"""Columns that are read from the records."""
REQUEST_FAILED = "the request failed"
TOKENS_NOT_COUNTED = "the engine did not count its tokens"
STEPS_NOT_REPORTED = "the engine did not report the accepted drafts of each step"
STEPS_WITHOUT_DRAFTS = "some steps drafted nothing, and their positions are not recorded"
TOO_SHORT = "fewer than two output tokens"


@dataclass(frozen=True)
class RecordedAnswers:
    """Answers of one arm, and the number of answers left out by reason."""

    answers: Sequence[DraftedAnswer]
    left_out: Mapping[str, int]


def recorded_answers(rows: Iterable[Mapping[str, Any]]) -> RecordedAnswers:
    """Read the answers of measured records with COLUMNS; accepted drafts between steps come from `span_split`."""
    answers = list[DraftedAnswer]()
    left_out: Counter[str] = Counter()
    for row in rows:
        why = _unusable(row)
        if why:
            left_out[why] += 1
            continue
        acceptance = PositionAcceptance(span_split(row["step_accepted"]))
        category, repeat, prompt_tokens = row["category"], row["repeat"], row["input_tokens"]
        answers.append(DraftedAnswer(row["prompt_id"], category, repeat, prompt_tokens, acceptance))
    return RecordedAnswers(answers, dict(left_out))


def _unusable(row: Mapping[str, Any]) -> str | None:
    if row["error_class"] is not None:
        return REQUEST_FAILED
    if row["output_tokens"] is None or row["input_tokens"] is None:
        return TOKENS_NOT_COUNTED
    if row["output_tokens"] < STEPPED_MIN:
        return TOO_SHORT
    if row["step_accepted"] is None:
        return STEPS_NOT_REPORTED
    return None if steps_cover_answer(row["step_accepted"], row["output_tokens"]) else STEPS_WITHOUT_DRAFTS
