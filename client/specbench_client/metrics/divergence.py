"""How often two answers to one question differ, and how often the baseline's own do: the control.

An answer is known by its SHA-256. Answers are compared where they were given to the same words: the same prompt, the
same turn, and earlier replies that were identical. Within such a question every answer of the arm is compared with
every answer of the baseline, and every answer of the baseline with every one that another repeat of it gave: answers
of one repeat come from one launch, and are no control for what another launch does. Both shares estimate a chance
without bias, P(a ≠ b) = 1 − Σ p(text) q(text), so that they are alike where both are drawn from one distribution.

Figures are means over prompts: of the questions of a prompt the mean, and of prompts the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import Values, flags
from specbench_client.metrics.pairing import histories, with_pass
from specbench_client.metrics.prompts import by_prompt
from specbench_client.metrics.rows import Columns, Rows, at, read

QUESTION = ["prompt_id", "turn", "history"]
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
"""All that is asked of an answer: copies of it are made, and answers may be a million."""
_ANSWER = "output_sha256"


@dataclass(frozen=True)
class Divergence:
    """One row a prompt and a repeat of the arm: `repeat, prompt_id, category, differs, control, answers`.

    differs: share of comparisons with the baseline's answers that differ. control: the same of the baseline's own
    answers of that repeat; NaN where no other repeat has any. answers: of the arm, that were compared.
    """

    table: pd.DataFrame

    @property
    def rate(self) -> float | None:
        """Mean over prompts of the share that differs; None where nothing could be compared."""
        return _mean(self.table, "differs")

    @property
    def control(self) -> float | None:
        """The same of the baseline against itself; None where it has no second repeat."""
        return _mean(self.table, "control")

    @property
    def controlled(self) -> pd.DataFrame:
        """The rows that have a control."""
        return self.table[self.table["control"].notna()].reset_index(drop=True)


def divergence(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows) -> Divergence:
    """Compare the answers of an arm with the baseline's. Both: tidy rows of one cell, all repeats."""
    each = [_of_prompts(at(arm, mine), at(baseline, theirs)) for mine, theirs in by_prompt((arm, baseline))]
    told = pd.concat([table for table in each if len(table)] or each[:1])
    return Divergence(told.sort_values(["repeat", "prompt_id"], kind="stable").reset_index(drop=True))


def _of_prompts(arm: Columns, baseline: Columns) -> pd.DataFrame:
    """The table of some prompts, all of whose rows these are."""
    mine, base = answers(arm), answers(baseline)
    rows = _against(mine, base, others=False)
    control = _against(base, base, others=True).rename(columns={"differs": "control"})
    keys = ["repeat", "prompt_id"]
    merged = rows.merge(control[[*keys, "control"]], on=keys, how="left")
    return merged[["repeat", "prompt_id", "category", "differs", "control", "answers"]]


def answers(rows: Columns) -> pd.DataFrame:
    """The rows with an answer and a known history, of any phase, with their pass; not those that only held the load.

    Their columns: what tells an answer apart, its words' digest and its length.
    """
    numbered = with_pass(read(rows, [name for name in _READ if name in rows]))
    numbered["history"] = histories(numbered)
    known = flags(numbered, "ok") & ~flags(numbered, "filler")
    known &= numbered[_ANSWER].notna().to_numpy(bool) & numbered["history"].notna().to_numpy(bool)
    return numbered[known].reset_index(drop=True)


def _against(mine: pd.DataFrame, base: pd.DataFrame, *, others: bool) -> pd.DataFrame:
    """By repeat and prompt of `mine`: the share of its comparisons with `base` that differ.

    `others`: leave out base's answers of the same repeat. A comparison is with every answer of a question; sums over
    texts give their number without making the pairs: Σ n(text) of the others over all others.
    """
    asked = mine.merge(_counts(base, QUESTION).rename("all"), on=QUESTION, how="inner")
    asked = asked.merge(_counts(base, [*QUESTION, _ANSWER]).rename("same"), on=[*QUESTION, _ANSWER], how="left")
    every, same = asked["all"].to_numpy(float), asked["same"].fillna(0).to_numpy(float)
    if others:
        own = asked.groupby([*QUESTION, "repeat"])["all"].transform("size").to_numpy(float)
        alike = asked.groupby([*QUESTION, _ANSWER, "repeat"])["all"].transform("size").to_numpy(float)
        every, same = every - own, same - alike
    asked["differs"] = np.where(every > 0, 1 - same / np.where(every > 0, every, 1), np.nan)
    known = asked[asked["differs"].notna()]
    by_question = known.groupby(["repeat", *QUESTION], sort=True)
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
