"""What two results share: the requests that both answered, each of them weighing the same on both sides.

A request is known by its prompt, its pass over the prompts, its turn, and what stood before it (all earlier replies;
a later turn of another history is another prompt). Requests that only one side answered are left out. Where one side
answered a request in more repeats than the other, or in fewer because an edge of the steady state cut it off, its rows
weigh accordingly less: else the one side's mix would hold more of the slow prompts, and look slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.analysis.statistics import bootstrap
from specbench_client.analysis.statistics.bootstrap import Layout, draws, layout_of
from specbench_client.analysis.statistics.draws import Codes, drawn
from specbench_client.metrics.frame import Mask, Values, flags, numbers
from specbench_client.metrics.pairing import ARM, HISTORY, KEY, Pairs, histories, with_pass
from specbench_client.metrics.rows import read

SAME = ["prompt_id", "pass", "turn", "history"]
"""What makes two requests the same."""


def answered(rows: pd.DataFrame) -> pd.DataFrame:
    """Steady rows of one arm with their pass and history; later turns of an unknown history are left out."""
    numbered = with_pass(rows)
    numbered["history"] = histories(numbered)
    known = numbered["history"].notna().to_numpy(bool)
    return numbered[flags(numbered, "steady") & known].reset_index(drop=True)


def answered_pairs(pairs: Pairs) -> pd.DataFrame:
    """The arm's side of the pairs with its baseline, with what makes a request the same."""
    told = read(pairs.rows, [*KEY, HISTORY + ARM, "category" + ARM])
    return told.set_axis([*KEY, HISTORY, "category"], axis=1)


@dataclass(frozen=True)
class Half:
    """One side of what is shared: a row a request, its parts, and how much it weighs."""

    rows: pd.DataFrame
    parts: Values
    """Rows × parts."""
    weights: Values
    repeat_of: Codes
    prompt_of: Codes
    repeats: int

    def matrices(self, prompts: int) -> list[Values]:
        """Weighted sums of each part by repeat × prompt."""
        cells = self.repeat_of * prompts + self.prompt_of
        size = self.repeats * prompts
        sums = [np.bincount(cells, weights=self.weights * part, minlength=size) for part in self.parts.T]
        return [np.asarray(each, dtype=np.float64).reshape(self.repeats, prompts) for each in sums]


@dataclass(frozen=True)
class Shared:
    """Both sides, and the prompts that both were asked."""

    before: Half
    after: Half
    layout: Layout
    """Of both sides' rows together: only its prompts and strata mean anything."""

    def draws(self, seed: int, resamples: int | None = None) -> Iterator[tuple[Values, Values, Values]]:
        """Blocks of draws: repeats before, repeats after, and prompts, one draw of which serves both sides.

        `resamples`: RESAMPLES of them without one.
        """
        chance = [np.random.default_rng((seed, side)) for side in (1, 2)]
        for _, prompts in draws(self.layout, seed, resamples or bootstrap.RESAMPLES):
            size, sides = len(prompts), (self.before.repeats, self.after.repeats)
            before, after = (drawn(rng, repeats, size) for rng, repeats in zip(chance, sides, strict=True))
            yield before.astype(np.float64), after.astype(np.float64), prompts.astype(np.float64)


def shared(before: tuple[pd.DataFrame, Values], after: tuple[pd.DataFrame, Values]) -> Shared | None:
    """What both sides have, complete; None where that is nothing. Each side: rows with `SAME`, and their parts."""
    whole = [_complete(*side) for side in (before, after)]
    keys = [pd.MultiIndex.from_frame(rows[SAME]) for rows, _ in whole]
    common = keys[0].intersection(keys[1]).unique()
    if not len(common):
        return None
    chosen = [_held(*side, mine.isin(common)) for side, mine in zip(whole, keys, strict=True)]
    layout = layout_of(pd.concat([rows for rows, _ in chosen], ignore_index=True))
    first = len(chosen[0][0])
    return Shared(_half(*chosen[0], layout.prompt_of[:first]), _half(*chosen[1], layout.prompt_of[first:]), layout)


def _complete(rows: pd.DataFrame, parts: Values) -> tuple[pd.DataFrame, Values]:
    return _held(rows, parts, np.asarray(~np.isnan(parts).any(axis=1), dtype=np.bool_))


def _held(rows: pd.DataFrame, parts: Values, held: Mask) -> tuple[pd.DataFrame, Values]:
    return rows.loc[held].reset_index(drop=True), parts[held]


def _half(rows: pd.DataFrame, parts: Values, prompt_of: Codes) -> Half:
    counts = rows.groupby(SAME, sort=False)["repeat"].transform("size").to_numpy(np.float64)
    repeat_of, repeats = pd.factorize(numbers(rows, "repeat"), sort=True)
    return Half(rows, parts, 1 / counts, np.asarray(repeat_of), prompt_of, len(repeats))
