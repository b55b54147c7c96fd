"""A paired speed-up taken apart into factors whose product it is, exactly.

Of each side, over the pairs in which both sides have all parts: N tokens, n requests, W time until the first tokens,
F time from first to last tokens, s steps. With t = F / s (time of a step), AL = (N − n) / s (tokens a step) and
f = F / (W + F) (share of decode in stream time), stream time is F / f and F = (N − n)·t / AL, so that tokens over
stream time of the arm, over the same of the baseline, is

    speed-up = (AL / AL₀) · (t₀ / t) · (f / f₀) · [N / (N − n)] / [N₀ / (N₀ − n)]

The first two are the prediction t_ar·AL / t_sd, which is exact for decode alone (reference: Leviathan et al. 2023 for
its form). The third is what waiting and prefill leave of it, the fourth is 1 where both sides answered alike. A
baseline makes one token a step: AL₀ = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.estimates.speedup import keys_of
from specbench_client.analysis.statistics.bootstrap import Layout, layout_of, resampled_sums
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs
from specbench_client.metrics.rows import Columns

_SIDES = 5
"""Parts of a side: tokens, later tokens, wait, flow, steps."""


@dataclass(frozen=True)
class Factors:
    """Logs of the factors, of one value or of many resamples alike."""

    acceptance: Values
    """AL / AL₀."""
    step_time: Values
    """t₀ / t."""
    prefill: Values
    """f / f₀."""
    length: Values
    """Tokens over later tokens, of the arm over the baseline's."""

    @property
    def predicted(self) -> Values:
        """t_ar·AL / t_sd."""
        return self.acceptance + self.step_time

    @property
    def gap(self) -> Values:
        """Measured over predicted."""
        return self.prefill + self.length

    @property
    def measured(self) -> Values:
        """The speed-up."""
        return self.predicted + self.gap


@dataclass(frozen=True)
class Parted:
    """Factors over all pairs, of each repeat, and of resamples of the prompts."""

    layout: Layout
    pairs: int
    value: Factors
    repeats: Factors
    resampled: Factors


def parted(pairs: Pairs, seed: int) -> Parted | None:
    """Take the speed-up apart; None where no pair has all parts."""
    if STEPS + ARM not in pairs.rows or not len(pairs.rows):
        return None
    sides = [(ARM, part) for part in _ARM], [(BASELINE, part) for part in _BASELINE]
    whole = _told(pairs.rows, ARM, _ARM) & _told(pairs.rows, BASELINE, _BASELINE)
    keys = keys_of(pairs)
    rows = keys if whole.all() else keys.loc[whole]
    layout = layout_of(rows)
    matrices = [layout.matrix(part(pairs.rows, suffix)[whole]) for side in sides for suffix, part in side]
    sums = np.array([matrix.sum() for matrix in matrices])
    if not len(rows) or (sums[[0, 1, 3, 4, 5, 6, 8, 9]] <= 0).any():
        return None
    repeats = np.stack([matrix.sum(axis=1) for matrix in matrices], axis=1)
    resampled = resampled_sums(matrices, layout, seed)
    return Parted(layout, len(rows), _factors(sums), _factors(repeats), _factors(resampled))


_Part = Callable[[Columns, str], Values]
"""One part of each pair, of the side with this suffix: whole numbers (tokens, steps, ns), whose sums are exact."""


def _tokens(rows: Columns, suffix: str) -> Values:
    return numbers(rows, "tokens" + suffix)


def _later(rows: Columns, suffix: str) -> Values:
    return _tokens(rows, suffix) - 1


def _wait_ns(rows: Columns, suffix: str) -> Values:
    return numbers(rows, "first_token_ns" + suffix) - numbers(rows, "intended_ns" + suffix)


def _flow_ns(rows: Columns, suffix: str) -> Values:
    return numbers(rows, "last_token_ns" + suffix) - numbers(rows, "first_token_ns" + suffix)


def _steps(rows: Columns, suffix: str) -> Values:
    """An answer of one token has no step."""
    return np.where(_later(rows, suffix) == 0, 0.0, numbers(rows, STEPS + suffix))


_ARM: Sequence[_Part] = (_tokens, _later, _wait_ns, _flow_ns, _steps)
_BASELINE: Sequence[_Part] = (_tokens, _later, _wait_ns, _flow_ns, _later)
"""Without drafts a step is a token."""


def _told(rows: Columns, suffix: str, parts: Sequence[_Part]) -> Mask:
    """Which pairs tell all parts of this side. An answer that came at one time does not tell its flow."""
    told: Mask = np.asarray(~((_later(rows, suffix) > 0) & ~(_flow_ns(rows, suffix) > 0)), dtype=np.bool_)
    for part in parts:
        told &= ~np.isnan(part(rows, suffix))
    return told


def _factors(sums: Values) -> Factors:
    """From the sums of both sides, over the last axis: the arm's parts, then the baseline's."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(sums)
        streams = np.log(np.stack([sums[..., 2] + sums[..., 3], sums[..., 7] + sums[..., 8]], axis=-1))
        tokens, later, flow, steps = (logs[..., at] - logs[..., at + _SIDES] for at in (0, 1, 3, 4))
        return Factors(
            acceptance=later - steps,
            step_time=steps - flow,
            prefill=flow - (streams[..., 0] - streams[..., 1]),
            length=tokens - later,
        )
