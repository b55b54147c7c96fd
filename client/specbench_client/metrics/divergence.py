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
import pandas as pd

from specbench_client.metrics.pairing import history_hashes, iter_by_prompt, with_pass_number
from specbench_client.metrics.rows import Columns, Rows, read_columns, rows_at
from specbench_client.metrics.tidy_frame import Values, flags

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

    The table has one row per prompt and repeat, with the columns `repeat, prompt_id, category, differs, control,
    answers`. `differs` is the share of comparisons with the baseline's answers that differ. `control` is the same
    for the baseline's own answers of that repeat, and NaN if no other repeat has any. `answers` is the number of
    the arm's answers compared.
    """

    table: pd.DataFrame

    @property
    def rate(self) -> float | None:
        """Mean over prompts of the share that differs; None if nothing could be compared."""
        return _mean(self.table, "differs")

    @property
    def control(self) -> float | None:
        """Mean share for the baseline against itself; None if it has no second repeat."""
        return _mean(self.table, "control")

    @property
    def controlled(self) -> pd.DataFrame:
        """The rows that have a control."""
        return self.table[self.table["control"].notna()].reset_index(drop=True)


def divergence(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows) -> Divergence:
    """Compare the answers of an arm with the baseline's, given the tidy rows of one cell over all repeats."""
    each = [
        _compare_prompts(rows_at(arm, mine), rows_at(baseline, theirs))
        for mine, theirs in iter_by_prompt((arm, baseline))
    ]
    table = pd.concat([part for part in each if len(part)] or each[:1])
    return Divergence(table.sort_values(["repeat", "prompt_id"], kind="stable").reset_index(drop=True))


def _compare_prompts(arm: Columns, baseline: Columns) -> pd.DataFrame:
    """The table for some prompts, given all of their rows."""
    mine, base = comparable_answers(arm), comparable_answers(baseline)
    rows = _share_differing(mine, base, other_repeats=False)
    control = _share_differing(base, base, other_repeats=True).rename(columns={"differs": "control"})
    keys = ["repeat", "prompt_id"]
    merged = rows.merge(control[[*keys, "control"]], on=keys, how="left")
    return merged[["repeat", "prompt_id", "category", "differs", "control", "answers"]]


def comparable_answers(rows: Columns) -> pd.DataFrame:
    """Return the rows with an answer and a known history, with their pass; fillers are left out.

    They may be of any phase, and include the columns that describe an answer: its digest and its length.
    """
    numbered = with_pass_number(read_columns(rows, [name for name in _READ if name in rows]))
    numbered["history"] = history_hashes(numbered)
    known = flags(numbered, "ok") & ~flags(numbered, "filler")
    known &= numbered[_ANSWER].notna().to_numpy(bool) & numbered["history"].notna().to_numpy(bool)
    return numbered[known].reset_index(drop=True)


def _share_differing(mine: pd.DataFrame, base: pd.DataFrame, *, other_repeats: bool) -> pd.DataFrame:
    """By repeat and prompt of `mine`: the share of its comparisons with `base` that differ.

    `other_repeats` leaves out base's answers of the same repeat. Each answer is compared with every answer to its
    question; the number of equal pairs is computed from counts per text, without building the pairs.
    """
    matched = mine.merge(_counts(base, QUESTION_KEY).rename("all"), on=QUESTION_KEY, how="inner")
    matched = matched.merge(
        _counts(base, [*QUESTION_KEY, _ANSWER]).rename("same"), on=[*QUESTION_KEY, _ANSWER], how="left"
    )
    every, same = matched["all"].to_numpy(float), matched["same"].fillna(0).to_numpy(float)
    if other_repeats:
        own = matched.groupby([*QUESTION_KEY, "repeat"])["all"].transform("size").to_numpy(float)
        alike = matched.groupby([*QUESTION_KEY, _ANSWER, "repeat"])["all"].transform("size").to_numpy(float)
        every, same = every - own, same - alike
    matched["differs"] = np.where(every > 0, 1 - same / np.where(every > 0, every, 1), np.nan)
    known = matched[matched["differs"].notna()]
    by_question = known.groupby(["repeat", *QUESTION_KEY], sort=True)
    questions = by_question.agg(
        differs=("differs", "mean"), category=("category", "first"), answers=("differs", "size")
    )
    by_prompt = questions.reset_index().groupby(["repeat", "prompt_id"], sort=True)
    return by_prompt.agg(
        differs=("differs", "mean"), category=("category", "first"), answers=("answers", "sum")
    ).reset_index()


def _counts(rows: pd.DataFrame, by: list[str]) -> pd.Series:
    return rows.groupby(by).size()


def _mean(table: pd.DataFrame, name: str) -> float | None:
    """Mean over prompts of the mean over repeats."""
    known: Values = table.groupby("prompt_id")[name].mean().dropna().to_numpy(float)
    return float(known.mean()) if known.size else None
