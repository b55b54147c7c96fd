"""A paired speed-up taken apart into factors whose product it is, exactly.

Of each side, over the pairs in which both sides have all parts: N tokens, n requests, E stream time (intended to last
token), F time from first to last tokens, s steps. With t = F / s (time of a step), AL = (N − n) / s (tokens a step) and
f = F / E (share of decode in stream time), stream time is F / f and F = (N − n)·t / AL, so that tokens over stream time
of the arm, over the same of the baseline, is

    speed-up = (AL / AL₀) · (t₀ / t) · (f / f₀) · [N / (N − n)] / [N₀ / (N₀ − n)]

The first two are the prediction t_ar·AL / t_sd, which is exact for decode alone (reference: Leviathan et al. 2023 for
its form). The third is what waiting and prefill leave of it, the fourth is 1 where both sides answered alike. A
baseline makes one token a step: AL₀ = 1. Each factor, and each product of some, is a ratio of sums, and so has the
interval of every other log ratio: over the same pairs the product of all has the very interval of the speed-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.estimates.speedup import keys_of
from specbench_client.analysis.statistics.log_ratio import Laid, LogRatio
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs
from specbench_client.metrics.rows import Columns

_COLUMNS = ("tokens", "later", "stream_ns", "flow_ns", "steps")
Powers = Mapping[str, int]
"""Of a side's sums in a factor: the arm's as they stand, the baseline's inverted."""
ACCEPTANCE: Powers = {"later": 1, "steps": -1}
"""AL / AL₀."""
STEP_TIME: Powers = {"steps": 1, "flow_ns": -1}
"""t₀ / t."""
PREFILL: Powers = {"flow_ns": 1, "stream_ns": -1}
"""f / f₀."""
LENGTH: Powers = {"tokens": 1, "later": -1}
"""Tokens over later tokens, of the arm over the baseline's."""


def product(*factors: Powers) -> Powers:
    """Return the product of factors; sums that cancel are left out."""
    powers = {name: sum(factor.get(name, 0) for factor in factors) for name in _COLUMNS}
    return {name: power for name, power in powers.items() if power}


PREDICTED = product(ACCEPTANCE, STEP_TIME)
"""t_ar·AL / t_sd."""
GAP = product(PREFILL, LENGTH)
"""Measured over predicted."""
MEASURED = product(PREDICTED, GAP)
"""The speed-up."""


@dataclass(frozen=True)
class Parted:
    """The sums of both sides over all pairs that have all parts."""

    laid: Laid
    pairs: int

    def ratio(self, powers: Powers) -> LogRatio:
        """Return one factor, or a product of several."""
        arm = {f"{name}{ARM}": power for name, power in powers.items()}
        baseline = {f"{name}{BASELINE}": -power for name, power in powers.items()}
        found = self.laid.log_ratio({**arm, **baseline})
        assert found is not None, "all sums are positive"
        return found


def parted(pairs: Pairs, seed: int) -> Parted | None:
    """Take the speed-up apart; None where no pair has all parts."""
    if STEPS + ARM not in pairs.rows or not len(pairs.rows):
        return None
    sides = {**_side(pairs.rows, ARM), **_side(pairs.rows, BASELINE, baseline=True)}
    whole: Mask = np.asarray(~np.isnan(np.stack(list(sides.values()))).any(axis=0), dtype=np.bool_)
    rows = keys_of(pairs).loc[whole]
    known = {name: values[whole] for name, values in sides.items()}
    if not len(rows) or any(values.sum() <= 0 for values in known.values()):
        return None
    return Parted(Laid.of(rows, known, seed), len(rows))


def _side(rows: Columns, suffix: str, *, baseline: bool = False) -> dict[str, Values]:
    """Parts of each pair. An answer of one token has no step and no flow; one that came at once has neither told."""
    intended, first, last, tokens = (
        numbers(rows, name + suffix) for name in ("intended_ns", "first_token_ns", "last_token_ns", "tokens")
    )
    later, flow = tokens - 1, last - first
    steps = later if baseline else np.where(later == 0, 0.0, numbers(rows, STEPS + suffix))
    untold = (later > 0) & ~(flow > 0)
    parts = (np.where(untold, np.nan, part) for part in (tokens, later, last - intended, flow, steps))
    return {f"{name}{suffix}": part for name, part in zip(_COLUMNS, parts, strict=True)}
