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
import pandas as pd
from numpy.typing import NDArray

from specbench_client.analysis.lossless.answer_texts import shared_prefix
from specbench_client.analysis.statistics.row_layout import RowLayout, layout_of
from specbench_client.columns import TextCodes
from specbench_client.documents.record import RecordPhase
from specbench_client.load.conversations import is_filler
from specbench_client.metrics.pairing import pass_numbers
from specbench_client.metrics.rows import Table

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
    repeats: Tokens | None = None
    """Repeat of each answer; None if all are of the same repeat."""

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
        repeats = np.zeros(self.count, dtype=np.int64) if self.repeats is None else self.repeats
        texts = {"prompt_id": TextCodes.of(self.ids), "category": TextCodes.of(self.categories)}
        return layout_of(Table({"repeat": repeats, **texts}))

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
            None if self.repeats is None else self.repeats[keep],
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

QuestionKey = tuple[str, int, int]
"""(prompt, repeat, pass and turn): answers of two drafters with the same key answer the same request."""


@dataclass(frozen=True)
class DraftedAnswer:
    """One answer, and the accepted drafts of a drafter at each of its positions."""

    prompt_id: str
    category: str | None
    repeat: int
    prompt_tokens: int
    acceptance: PositionAcceptance
    ids: Tokens | None = None
    """Its token ids, of the same length as its acceptance; None if not recorded."""
    sha256: str | None = None
    """SHA-256 of its text; None if not recorded."""

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return int(self.acceptance.accepted.size)


@dataclass(frozen=True)
class DrafterAnswers:
    """All answers of one drafter, end to end."""

    answers: AnswerSet
    acceptance: PositionAcceptance


@dataclass(frozen=True)
class SharedAnswers:
    """The same positions of the same answers, drafted by two drafters.

    `covered`: share of the second drafter's output tokens that these are. `compared_by`: how the texts were compared.
    """

    answers: AnswerSet
    first: PositionAcceptance
    second: PositionAcceptance
    covered: float
    compared_by: str


def join_answers(drafted: Iterable[DraftedAnswer]) -> DrafterAnswers:
    """Put answers end to end; answers without a decode step are left out."""
    stepped = [each for each in drafted if each.tokens >= STEPPED_MIN]
    return DrafterAnswers(
        _answer_set(stepped, [each.tokens for each in stepped]),
        _joined_acceptance([each.acceptance for each in stepped]),
    )


def shared_answers(
    first: Mapping[QuestionKey, DraftedAnswer], second: Mapping[QuestionKey, DraftedAnswer], *, unchecked: bool = False
) -> SharedAnswers:
    """Return the answers that both drafters gave, each cut before the first token that differs.

    Token ids are compared where both answers have them. Otherwise answers with the same SHA-256 are taken whole and
    all others are dropped. `unchecked`: the texts cannot be compared, so answers are cut to the shorter of the two, as
    the published simulator does.
    """
    shared = [key for key in second if key in first]
    lengths = {key: _shared_length(first[key], second[key], unchecked=unchecked) for key in shared}
    keys = [key for key in shared if lengths[key] >= STEPPED_MIN]
    answers = _answer_set([second[key] for key in keys], [lengths[key] for key in keys])
    sides = [_joined_acceptance([_cut(side[key].acceptance, lengths[key]) for key in keys]) for side in (first, second)]
    covered = answers.positions / max(1, sum(each.tokens for each in second.values()))
    return SharedAnswers(answers, sides[0], sides[1], covered, _compared_by(first, second, shared, unchecked=unchecked))


def _shared_length(first: DraftedAnswer, second: DraftedAnswer, *, unchecked: bool) -> int:
    if first.ids is not None and second.ids is not None:
        return shared_prefix(first.ids, second.ids)
    if first.sha256 is not None and second.sha256 is not None:
        return second.tokens if first.sha256 == second.sha256 and first.tokens == second.tokens else 0
    return min(first.tokens, second.tokens) if unchecked else 0


def _compared_by(
    first: Mapping[QuestionKey, DraftedAnswer],
    second: Mapping[QuestionKey, DraftedAnswer],
    keys: Sequence[QuestionKey],
    *,
    unchecked: bool,
) -> str:
    if all(side[key].ids is not None for key in keys for side in (first, second)):
        return "token ids, up to the first that differs"
    if unchecked:
        return "nothing: each answer is cut to the shorter of the two, and their texts may differ before that"
    return "SHA-256 of the texts: answers that differ anywhere count as not covered"


def _cut(acceptance: PositionAcceptance, length: int) -> PositionAcceptance:
    return PositionAcceptance(
        acceptance.accepted[:length], None if acceptance.proposed is None else acceptance.proposed[:length]
    )


def _answer_set(drafted: Sequence[DraftedAnswer], lengths: Sequence[int]) -> AnswerSet:
    return AnswerSet(
        tuple(each.prompt_id for each in drafted),
        tuple(each.category for each in drafted),
        np.array([each.prompt_tokens for each in drafted], dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        np.array([each.repeat for each in drafted], dtype=np.int64),
    )


def _joined_acceptance(parts: Sequence[PositionAcceptance]) -> PositionAcceptance:
    """Join the acceptance of one drafter's answers; `proposed` is known only where all answers have it."""
    accepted = np.concatenate([each.accepted for each in parts] or [np.empty(0, dtype=np.int64)])
    proposed = [each.proposed for each in parts if each.proposed is not None]
    known = bool(parts) and len(proposed) == len(parts)
    return PositionAcceptance(accepted, np.concatenate(proposed) if known else None)


# Answers are read from the records of a run. Accepted drafts between its steps come from span-split.

COLUMNS = (
    "prompt_id", "category", "conversation_id", "turn", "repeat", "phase", "intended_ns", "input_tokens",
    "output_tokens", "step_accepted", "error_class", "output_sha256", "output_text", "output_token_ids",
)  # fmt: skip
"""Columns that are read from the records."""
REQUEST_FAILED = "the request failed"
TOKENS_NOT_COUNTED = "the engine did not count its tokens"
STEPS_NOT_REPORTED = "the engine did not report the accepted drafts of each step"
STEPS_WITHOUT_DRAFTS = "some steps drafted nothing, and their positions are not recorded"
TOO_SHORT = "fewer than two output tokens"


@dataclass(frozen=True)
class RecordedAnswers:
    """Answers of one arm by key, and the number of answers left out by reason."""

    answers: Mapping[QuestionKey, DraftedAnswer]
    left_out: Mapping[str, int]


def measured_answers(records: pd.DataFrame) -> pd.DataFrame:
    """Return the measured answers, without warm-up and filler requests, each with its pass over the prompts.

    `records`: COLUMNS and the column `point`.
    """
    measured = (records["phase"] != RecordPhase.WARMUP.value) & ~records["prompt_id"].map(is_filler).astype(bool)
    rows = records[measured.to_numpy(bool)].reset_index(drop=True)
    texts = {name: TextCodes.of(rows[name].tolist()) for name in ("point", "prompt_id", "conversation_id")}
    columns = {name: rows[name].to_numpy() for name in ("repeat", "intended_ns")}
    return rows.assign(**{"pass": pass_numbers(Table({**texts, **columns}))})


def recorded_answers(rows: pd.DataFrame) -> RecordedAnswers:
    """Read the answers of measured rows; accepted drafts between steps come from `span_split`."""
    answers: dict[QuestionKey, DraftedAnswer] = {}
    left_out: Counter[str] = Counter()
    for row in rows.to_dict("records"):
        why = _unusable(row)
        if why:
            left_out[why] += 1
        else:
            answers[key_of(row)] = _drafted_answer(row)
    return RecordedAnswers(answers, dict(left_out))


def key_of(row: Mapping[Any, Any]) -> QuestionKey:
    """Return the key of a row's request; its last element combines pass and turn."""
    return str(row["prompt_id"]), int(row["repeat"]), (int(row["pass"]) << 16) + int(row["turn"])


def token_ids_of(row: Mapping[Any, Any]) -> Tokens | None:
    """Return the answer's token ids, shape (tokens,); None if the record has none."""
    return _int_array(row["output_token_ids"])


def _unusable(row: Mapping[Any, Any]) -> str | None:
    if not pd.isna(row["error_class"]):
        return REQUEST_FAILED
    if pd.isna(row["output_tokens"]) or pd.isna(row["input_tokens"]):
        return TOKENS_NOT_COUNTED
    if row["output_tokens"] < STEPPED_MIN:
        return TOO_SHORT
    accepted = _int_array(row["step_accepted"])
    if accepted is None:
        return STEPS_NOT_REPORTED
    return None if steps_cover_answer(accepted, int(row["output_tokens"])) else STEPS_WITHOUT_DRAFTS


def _drafted_answer(row: Mapping[Any, Any]) -> DraftedAnswer:
    accepted = _int_array(row["step_accepted"])
    acceptance = PositionAcceptance(span_split([] if accepted is None else accepted))
    ids = token_ids_of(row)
    known = ids is not None and ids.size == acceptance.accepted.size
    return DraftedAnswer(
        prompt_id=str(row["prompt_id"]),
        category=None if pd.isna(row["category"]) else str(row["category"]),
        repeat=int(row["repeat"]),
        prompt_tokens=int(row["input_tokens"]),
        acceptance=acceptance,
        ids=ids if known else None,
        sha256=None if pd.isna(row["output_sha256"]) else str(row["output_sha256"]),
    )


def _int_array(value: Any) -> Tokens | None:
    if value is None or isinstance(value, float):
        return None
    return np.asarray(value, dtype=np.int64)
