"""How often two answers to the same question differ, and, as the control, how often the baseline differs from itself.

An answer is identified by its SHA-256. Answers are compared if they were given to the same input: the same prompt, the
same turn, and identical earlier replies. Within such a question every answer of the arm is compared with every answer
of the baseline, and every answer of the baseline with every answer from another repeat of it: answers of one repeat
come from one launch, and are no control for the behaviour of another launch. Both shares are unbiased estimates of a
probability, P(a ≠ b) = 1 − Σ p(text) q(text), so they are equal if both arms sample from the same distribution.

Figures are means over prompts of the mean over the questions of each prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_client.metrics.pairing import HISTORY, iter_by_prompt, with_history
from specbench_client.metrics.rows import Table, group_numbers, join_rows, join_tables
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.numpy_columns import Values

Codes = NDArray[np.intp]
QUESTION_KEY = ["prompt_id", "turn", "history"]
_READ = [
    "point",
    "repeat",
    "prompt_id",
    "conversation_id",
    "turn",
    "intended_ns",
    "category",
    "tokens",
    "text_bytes",
    "output_sha256",
    "ok",
    "filler",
]
"""Columns needed for the comparison: they are copied, and there may be a million answers."""
_ANSWER = "output_sha256"


@dataclass(frozen=True)
class Divergence:
    """Divergence by prompt and repeat of the arm.

    The table has one row per prompt and repeat, in any order, with the columns `repeat, prompt_id, category, differs,
    control, answers`. `differs` is the share of comparisons with the baseline's answers that differ. `control` is the
    same for the baseline's own answers of that repeat, and NaN if no other repeat has any. `answers` is the number of
    the arm's answers compared.
    """

    table: Table

    @property
    def rate(self) -> float | None:
        """Mean over prompts of the share that differs; None if nothing could be compared."""
        return _mean(self.table, "differs")

    @property
    def control(self) -> float | None:
        """Mean share for the baseline against itself; None if it has no second repeat."""
        return _mean(self.table, "control")

    @property
    def controlled(self) -> Table:
        """The rows that have a control."""
        return self.table.among(self.table.known("control"))


def divergence(arm: Table, baseline: Table) -> Divergence:
    """Compare the answers of an arm with the baseline's, given the tidy rows of one cell over all repeats."""
    each = iter_by_prompt((arm, baseline))
    return Divergence(join_tables([_compare_prompts(arm.at(mine), baseline.at(theirs)) for mine, theirs in each]))


def _compare_prompts(arm: Table, baseline: Table) -> Table:
    """The table for some prompts, given all of their rows."""
    mine, base = comparable_answers(arm), comparable_answers(baseline)
    found, control = _share_differing(mine, base), _share_differing(base, base, other_repeats=True)
    shares = np.full(len(found), np.nan)
    left, right = join_rows(found, control, ["repeat", "prompt_id"])
    shares[left] = control.array("differs")[right]
    return found.assign(control=shares)


def comparable_answers(rows: Table) -> Table:
    """Return the rows with an answer and a known history, with their pass; fillers are left out.

    They may be of any phase, and include the columns that describe an answer: its digest and its length.
    """
    found = with_history(rows.table(name for name in _READ if name in rows))
    return found.among(found.array("ok") & ~found.array("filler") & found.known(_ANSWER) & found.known(HISTORY))


def _share_differing(mine: Table, base: Table, *, other_repeats: bool = False) -> Table:
    """By repeat and prompt of `mine`: the share of its comparisons with `base` that differ.

    `other_repeats` leaves out base's answers of the same repeat. Each answer is compared with every answer to its
    question; the number of equal pairs is computed from counts per text, without building the pairs.
    """
    size, both = len(mine), join_tables([side.table([*QUESTION_KEY, _ANSWER]) for side in (mine, base)])
    question = group_numbers(*(both.column(name) for name in QUESTION_KEY))
    answer = group_numbers(question, both.column(_ANSWER))
    every, same = (np.bincount(each[size:], minlength=len(both))[each[:size]] for each in (question, answer))
    if other_repeats:
        own, alike = (group_numbers(each[:size], mine.column("repeat")) for each in (question, answer))
        every, same = every - np.bincount(own)[own], same - np.bincount(alike)[alike]
    compared = every > 0
    rows, question = mine.among(compared), question[:size][compared]
    prompt = group_numbers(rows.column("repeat"), rows.column("prompt_id"))
    questions = group_numbers(prompt, question)
    _, first_of_question = np.unique(questions, return_index=True)
    _, first_of_prompt = np.unique(prompt, return_index=True)
    by_question = _means(questions, 1 - same[compared] / every[compared])
    found = rows.at(first_of_prompt).table(["repeat", "prompt_id", "category"])
    return found.assign(differs=_means(prompt[first_of_question], by_question), answers=np.bincount(prompt))


def _means(groups: Codes, values: Values) -> Values:
    """Return the mean of each group's values, shape (groups,)."""
    return np.bincount(groups, values) / np.bincount(groups)


def _mean(table: Table, name: str) -> float | None:
    """Mean over prompts of the mean over repeats."""
    known = table.among(table.known(name))
    if not len(known):
        return None
    return float(_means(group_numbers(known.column("prompt_id")), numbers(known, name)).mean())
