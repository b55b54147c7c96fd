"""What is known of single answers, and the answers of which two drafters are known, cut to the text they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.oracle.answers import Answers, Reach, Tokens
from specbench_client.analysis.oracle.spans import common_length

STEPPED_MIN = 2
"""Tokens of an answer in which there is a step at all: the first comes from the prefill."""

Key = tuple[str, int, int]
"""Prompt, repeat, and the pass or turn: which answers of two drafters are of the same question."""


@dataclass(frozen=True)
class Told:
    """One answer, and what a drafter has accepted at each of its positions."""

    prompt_id: str
    category: str | None
    repeat: int
    prompt_tokens: int
    reach: Reach
    ids: Tokens | None = None
    """Its token ids, as long as its reach."""
    sha256: str | None = None
    """Of its text."""

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return int(self.reach.accepted.size)


@dataclass(frozen=True)
class Single:
    """Answers of one drafter."""

    answers: Answers
    reach: Reach


@dataclass(frozen=True)
class Both:
    """The same positions of the same answers, by two drafters. `covered`: their share of the second's output tokens."""

    answers: Answers
    first: Reach
    second: Reach
    covered: float
    compared_by: str


def single(told: Iterable[Told]) -> Single:
    """Put answers end to end; those without a step are left out."""
    told = [each for each in told if each.tokens >= STEPPED_MIN]
    return Single(_answers(told, [each.tokens for each in told]), _reach([each.reach for each in told]))


def both(first: Mapping[Key, Told], second: Mapping[Key, Told], *, unchecked: bool = False) -> Both:
    """Answers of both, cut before the first token that differs; what nothing is known of is cut whole.

    Where ids are known of both they are compared; else equal texts (by SHA-256) are taken whole and others not at all.
    `unchecked`: neither is known of anything, and answers are cut to the shorter one, as the published simulator does.
    """
    shared = [key for key in second if key in first]
    lengths = {key: _common(first[key], second[key], unchecked=unchecked) for key in shared}
    keys = [key for key in shared if lengths[key] >= STEPPED_MIN]
    answers = _answers([second[key] for key in keys], [lengths[key] for key in keys])
    sides = [_reach([_cut(side[key].reach, lengths[key]) for key in keys]) for side in (first, second)]
    covered = answers.positions / max(1, sum(each.tokens for each in second.values()))
    return Both(answers, sides[0], sides[1], covered, _how(first, second, shared, unchecked=unchecked))


def _common(first: Told, second: Told, *, unchecked: bool) -> int:
    if first.ids is not None and second.ids is not None:
        return common_length(first.ids, second.ids)
    if first.sha256 is not None and second.sha256 is not None:
        return second.tokens if first.sha256 == second.sha256 and first.tokens == second.tokens else 0
    return min(first.tokens, second.tokens) if unchecked else 0


def _how(first: Mapping[Key, Told], second: Mapping[Key, Told], keys: Sequence[Key], *, unchecked: bool) -> str:
    if all(side[key].ids is not None for key in keys for side in (first, second)):
        return "token ids, up to the first that differs"
    if unchecked:
        return "nothing: each answer is cut to the shorter of the two, whose texts may differ before that"
    return "SHA-256 of the texts: answers that differ anywhere count as not covered"


def _cut(reach: Reach, length: int) -> Reach:
    return Reach(reach.accepted[:length], None if reach.proposed is None else reach.proposed[:length])


def _answers(told: Sequence[Told], lengths: Sequence[int]) -> Answers:
    return Answers(
        tuple(each.prompt_id for each in told),
        tuple(each.category for each in told),
        np.array([each.prompt_tokens for each in told], dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        np.array([each.repeat for each in told], dtype=np.int64),
    )


def _reach(reaches: Sequence[Reach]) -> Reach:
    """One drafter's, so that all of them know what was proposed, or none does."""
    accepted = np.concatenate([each.accepted for each in reaches] or [np.empty(0, dtype=np.int64)])
    proposed = [each.proposed for each in reaches if each.proposed is not None]
    known = bool(reaches) and len(proposed) == len(reaches)
    return Reach(accepted, np.concatenate(proposed) if known else None)
