"""Which request of an arm is compared with which of the baseline.

A pair is the same prompt, the same turn and the same pass over the prompts, in the same repeat, both in the steady
state and without error. What fails or drains on one side is left out on both. The prompt of a later turn holds the
model's own earlier replies: a later turn is paired only where all the earlier replies were identical on both sides
(by SHA-256); the others are counted, not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.metrics.digests import chained
from specbench_client.metrics.frame import Mask, Values, flags, numbers
from specbench_client.metrics.prompts import Places, by_prompt
from specbench_client.metrics.rows import Columns, Rows, at, read

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
HISTORY = "history"
_NOTHING = 0.0
"""The history of a first turn: nothing stands before it."""
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
"""All that pairing asks of a row."""
_ROW = "row"


@dataclass(frozen=True)
class Joined:
    """Pairs as the numbers of their rows on both sides: the columns are the sides' own, read as they are asked for."""

    arm: Columns
    baseline: Columns
    left: Places
    right: Places
    passes: Places
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
            return _taken(self.baseline[name.removesuffix(BASELINE)], self.right)
        return _taken(self.arm[name.removesuffix(ARM)], self.left)

    def among(self, mine: Mask) -> Joined:
        """Return the pairs that are marked."""
        left, right, passes = (each[mine] for each in (self.left, self.right, self.passes))
        return Joined(self.arm, self.baseline, left, right, passes, self.history[mine])


@dataclass(frozen=True)
class Side:
    """One side's rows under their own column names."""

    rows: Columns
    suffix: str

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in KEY or f"{name}{self.suffix}" in self.rows

    def __getitem__(self, name: str) -> pd.Series:
        return self.rows[name if name in KEY else name + self.suffix]


@dataclass(frozen=True)
class Pairs:
    """Paired rows, each column of a side with its suffix, and what could not be paired."""

    rows: pd.DataFrame | Joined
    candidates: int
    """Steady requests of the arm."""
    unpaired_later: int
    """Of them, later turns whose earlier replies differ from the baseline's, or are not known."""

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a data frame of their own: a copy of all columns."""
        if isinstance(self.rows, pd.DataFrame):
            return self.rows
        sides = (name + suffix for suffix in (ARM, BASELINE) for name in SIDE)
        return read(self.rows, [*KEY, *(name for name in sides if name in self.rows), HISTORY + ARM])

    def side(self, suffix: str) -> Side:
        """Return one side's rows under their own column names."""
        return Side(self.rows, suffix)

    def among(self, mine: Mask) -> Pairs:
        """Return the pairs that are marked; what could not be paired is not told of them."""
        rows = self.rows
        kept = rows.among(mine) if isinstance(rows, Joined) else rows[mine].reset_index(drop=True)
        return Pairs(kept, int(mine.sum()), 0)

    def of_category(self, name: str) -> Pairs:
        """Return the pairs of one category."""
        return self.among((self.rows["category" + BASELINE] == name).to_numpy(np.bool_))


def pair(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows) -> Pairs:
    """Pair the tidy rows of an arm with those of the baseline, over all repeats of one cell."""
    found = [_found(arm, baseline, *places) for places in by_prompt((arm, baseline))]
    left, right, passes = (
        np.concatenate(each).astype(np.int32) for each in zip(*(one.rows for one in found), strict=True)
    )
    history = np.concatenate([one.history for one in found])
    order = np.argsort(left, kind="stable")
    joined = Joined(arm, baseline, left[order], right[order], passes[order], history[order])
    return Pairs(joined, sum(one.candidates for one in found), sum(one.unpaired_later for one in found))


@dataclass(frozen=True)
class _Found:
    """Pairs of some prompts. `rows`: of the arm, of the baseline, and their pass."""

    rows: tuple[Places, Places, Places]
    history: Values
    candidates: int
    unpaired_later: int


def _found(arm: pd.DataFrame | Rows, baseline: pd.DataFrame | Rows, mine: Places, theirs: Places) -> _Found:
    """Pair the rows of some prompts. `mine`, `theirs`: their numbers."""
    left, right = (_keyed(read(at(rows, places), _READ), places) for rows, places in ((arm, mine), (baseline, theirs)))
    merged = left.merge(right, on=KEY, how="inner", suffixes=(ARM, BASELINE))
    known = merged[HISTORY + ARM].notna() & (merged[HISTORY + ARM] == merged[HISTORY + BASELINE])
    comparable = known.to_numpy(bool) | (numbers(merged, "turn") == 0)
    kept = merged[comparable]
    rows = (kept[name].to_numpy(np.int32) for name in (_ROW + ARM, _ROW + BASELINE, "pass"))
    history = kept[HISTORY + ARM].to_numpy(np.float64)
    return _Found(_three(rows), history, len(left), int((~comparable).sum()))


def _three(each: Iterable[Places]) -> tuple[Places, Places, Places]:
    first, second, third = each
    return first, second, third


def _keyed(rows: pd.DataFrame, places: Places) -> pd.DataFrame:
    """Steady rows by their number, with their pass over the prompts and the replies that stand before them."""
    numbered = with_pass(rows.assign(**{_ROW: places}))
    numbered[HISTORY] = histories(numbered)
    return numbered.loc[flags(numbered, "steady"), [*KEY, HISTORY, _ROW]]


def _taken(column: pd.Series, places: Places) -> pd.Series:
    return pd.Series(column.to_numpy()[places], dtype=column.dtype, copy=False)


def with_pass(rows: pd.DataFrame) -> pd.DataFrame:
    """Number the passes over each prompt of each repeat from 0, in the order in which they were meant to start."""
    talks = rows.groupby(["point", "repeat", "prompt_id", "conversation_id"], sort=False)
    begun = talks["intended_ns"].transform("min")
    numbered = rows.assign(begun=begun)
    ranked = numbered.groupby(["repeat", "prompt_id"], sort=False)["begun"].rank(method="dense")
    return numbered.assign(**{"pass": ranked.fillna(1).astype(int) - 1}).drop(columns="begun")


def histories(rows: pd.DataFrame) -> pd.Series:
    """Return the earlier replies of each row's conversation as one number; missing where one of them is not known.

    `rows`: with their pass, see `with_pass`. Equal numbers are equal replies (`metrics.digests`); 0 is none.
    """
    talk = rows.groupby(["repeat", "prompt_id", "pass"], sort=False, dropna=False).ngroup().to_numpy()
    order = np.lexsort((numbers(rows, "turn"), talk))
    replies, found = numbers(rows, "output_sha256")[order], np.full(len(rows), _NOTHING)
    firsts = np.flatnonzero(np.diff(talk[order], prepend=-1) != 0)
    depth = np.arange(len(rows)) - np.repeat(firsts, np.diff(np.append(firsts, len(rows))))
    for turns in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == turns)
        found[here] = chained(found[here - 1], replies[here - 1])
    told = np.empty(len(rows))
    told[order] = found
    return pd.Series(told, index=rows.index)
