"""Steps over answers: where each begins, and how many tokens it emits. All answers at once, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from specbench_client.analysis.oracle.answers import Answers, Tokens
from specbench_client.metrics.frame import Values


class First(IntEnum):
    """At which position the first step looks."""

    PUBLISHED = 0
    """Position 0, whose token the prefill has made: every step looks one position too early. As the simulator of
    "Performance or Illusion?" does; only to compare with its numbers."""
    AFTER_PREFILL = 1
    """Position 1: one token is out."""


@dataclass(frozen=True)
class Steps:
    """One value a step.

    `answer`: whose. `place`: where it looks, in flat arrays. `cached`: tokens of its request that stand before it.
    `emitted`: tokens that it adds, never more than the answer still needs.
    """

    answer: Tokens
    place: Tokens
    cached: Tokens
    emitted: Tokens

    def sums(self, answers: Answers, values: Values | None = None) -> Values:
        """Of each answer: the sum of a value over its steps; without one, their number."""
        return np.bincount(self.answer, weights=values, minlength=answers.count).astype(np.float64)


def walk(answers: Answers, emitted: Tokens, first: First = First.AFTER_PREFILL) -> Steps:
    """Go through every answer; `emitted` (≥ 1): what a step emits at each position."""
    at = answers.starts + first
    end = at + answers.output_tokens - 1
    answer, place, went = [], [], []
    going = np.flatnonzero(at < end)
    while going.size:
        here = at[going]
        gained = np.minimum(emitted[here], end[going] - here)
        answer.append(going)
        place.append(here)
        went.append(gained)
        at[going] += gained
        going = going[at[going] < end[going]]
    whose, places = _joined(answer), _joined(place)
    out = places - answers.starts[whose] + (First.AFTER_PREFILL - first)
    return Steps(whose, places, answers.prompt_tokens[whose] + out, _joined(went))


def _joined(parts: list[Tokens]) -> Tokens:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
