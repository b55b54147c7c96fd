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

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.estimates.speedup import keys_of
from specbench_client.analysis.statistics.log_ratio import Laid, LogRatio
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs
from specbench_client.metrics.rows import Columns


def _tokens(rows: Columns, suffix: str) -> Values:
    return numbers(rows, "tokens" + suffix)


def _later(rows: Columns, suffix: str) -> Values:
    return _tokens(rows, suffix) - 1


def _stream_ns(rows: Columns, suffix: str) -> Values:
    return numbers(rows, "last_token_ns" + suffix) - numbers(rows, "intended_ns" + suffix)


def _flow_ns(rows: Columns, suffix: str) -> Values:
    return numbers(rows, "last_token_ns" + suffix) - numbers(rows, "first_token_ns" + suffix)


def _steps(rows: Columns, suffix: str) -> Values:
    """An answer of one token has no step; without drafts a step is a token."""
    later = _later(rows, suffix)
    return later if suffix == BASELINE else np.where(later == 0, 0.0, numbers(rows, STEPS + suffix))


_PARTS: Mapping[str, Callable[[Columns, str], Values]] = {
    "tokens": _tokens,
    "later": _later,
    "stream_ns": _stream_ns,
    "flow_ns": _flow_ns,
    "steps": _steps,
}
"""Of each pair, of the side with the suffix; made one at a time, since the rows may be many."""

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
    powers = {name: sum(factor.get(name, 0) for factor in factors) for name in _PARTS}
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
    whole = _told(pairs.rows, ARM) & _told(pairs.rows, BASELINE)
    keys = keys_of(pairs)
    rows = keys if whole.all() else keys.loc[whole]
    if not len(rows):
        return None
    sides = ((name, part, suffix) for suffix in (ARM, BASELINE) for name, part in _PARTS.items())
    laid = Laid.of(rows, ((name + suffix, part(pairs.rows, suffix)[whole]) for name, part, suffix in sides), seed)
    if any(matrix.sum() <= 0 for matrix in laid.matrices.values()):
        return None
    return Parted(laid, len(rows))


def _told(rows: Columns, suffix: str) -> Mask:
    """Which pairs tell all parts of this side: an answer of several tokens that came at once tells no flow."""
    told: Mask = np.asarray(~((_later(rows, suffix) > 0) & ~(_flow_ns(rows, suffix) > 0)), dtype=np.bool_)
    for part in _PARTS.values():
        told &= ~np.isnan(part(rows, suffix))
    return told
