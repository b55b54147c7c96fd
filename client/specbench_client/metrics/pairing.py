"""Which request of an arm is compared with which of the baseline.

A pair is the same prompt, the same turn and the same pass over the prompts, in the same repeat, both in the steady
state and without error. What fails or drains on one side is left out on both. The prompt of a later turn holds the
model's own earlier replies: a later turn is paired only where all the earlier replies were identical on both sides
(by SHA-256); the others are counted, not compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.metrics.frame import flags, numbers

STEPS = "steps"
KEY = ["repeat", "prompt_id", "pass", "turn"]
SIDE = [
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
_NOTHING: str | None = ""
"""What stands before a first turn."""
_READ = dict.fromkeys(("repeat", "prompt_id", "turn", *SIDE, "point", "conversation_id", "steady"))
"""All that pairing asks of a row: a copy of it is made, and rows may be a million."""


@dataclass(frozen=True)
class Pairs:
    """Paired rows, each column of a side with its suffix, and what could not be paired."""

    rows: pd.DataFrame
    candidates: int
    """Steady requests of the arm."""
    unpaired_later: int
    """Of them, later turns whose earlier replies differ from the baseline's, or are not known."""

    def side(self, suffix: str) -> pd.DataFrame:
        """Return one side's rows under their own column names."""
        return self.rows[[*KEY, *(name + suffix for name in SIDE)]].set_axis([*KEY, *SIDE], axis=1)

    def of_category(self, name: str) -> Pairs:
        """Return the pairs of one category; what could not be paired is not told by category."""
        mine = (self.rows["category" + BASELINE] == name).to_numpy(bool)
        return Pairs(self.rows[mine].reset_index(drop=True), int(mine.sum()), 0)


def pair(arm: pd.DataFrame, baseline: pd.DataFrame) -> Pairs:
    """Pair the tidy rows of an arm with those of the baseline, over all repeats of one cell."""
    left, right = _keyed(arm), _keyed(baseline)
    merged = left.merge(right, on=KEY, how="inner", suffixes=(ARM, BASELINE))
    known = merged["history" + ARM].notna() & (merged["history" + ARM] == merged["history" + BASELINE])
    comparable = known.to_numpy(bool) | (numbers(merged, "turn") == 0)
    kept = merged[comparable].reset_index(drop=True)
    return Pairs(kept, len(left), int((~comparable).sum()))


def _keyed(rows: pd.DataFrame) -> pd.DataFrame:
    """Steady rows with their pass over the prompts and the replies that stand before them."""
    numbered = with_pass(rows[list(_READ)])
    numbered["history"] = histories(numbered)
    return numbered[flags(numbered, "steady")][[*KEY, *SIDE, "history"]]


def with_pass(rows: pd.DataFrame) -> pd.DataFrame:
    """Number the passes over each prompt of each repeat from 0, in the order in which they were meant to start."""
    talks = rows.groupby(["point", "repeat", "prompt_id", "conversation_id"], sort=False)
    begun = talks["intended_ns"].transform("min")
    numbered = rows.assign(begun=begun)
    ranked = numbered.groupby(["repeat", "prompt_id"], sort=False)["begun"].rank(method="dense")
    return numbered.assign(**{"pass": ranked.fillna(1).astype(int) - 1}).drop(columns="begun")


def histories(rows: pd.DataFrame) -> pd.Series:
    """Return the earlier replies of each row's conversation as one text; missing where one of them is not known.

    `rows`: with their pass, see `with_pass`. What stands before a first turn is the empty text.
    """
    talk = rows.groupby(["repeat", "prompt_id", "pass"], sort=False, dropna=False).ngroup().to_numpy()
    replies, found = rows["output_sha256"].to_numpy(object), np.empty(len(rows), dtype=np.object_)
    last, earlier = -1, _NOTHING
    for place in np.lexsort((numbers(rows, "turn"), talk)):
        if talk[place] != last:
            last, earlier = talk[place], _NOTHING
        found[place] = earlier
        earlier = None if earlier is None or replies[place] is None else earlier + replies[place]
    return pd.Series(found, index=rows.index, dtype=object)
