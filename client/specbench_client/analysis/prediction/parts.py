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

from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.statistics.bootstrap import Layout, layout_of, resampled_sums
from specbench_client.metrics.frame import Mask, Values, numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS, Pairs

_COLUMNS = ("tokens", "later", "wait_ns", "flow_ns", "steps")
_SIDES = len(_COLUMNS)


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
    sides = np.concatenate([_side(pairs, ARM), _side(pairs, BASELINE, baseline=True)])
    whole: Mask = np.asarray(~np.isnan(sides).any(axis=0), dtype=np.bool_)
    rows = pairs.rows.loc[whole, ["repeat", "prompt_id"]].assign(category=pairs.rows.loc[whole, "category" + BASELINE])
    sums = sides[:, whole].sum(axis=1)
    if not len(rows) or (sums[[0, 1, 3, 4, 5, 6, 8, 9]] <= 0).any():
        return None
    layout = layout_of(rows)
    matrices = [layout.matrix(values) for values in sides[:, whole]]
    repeats = np.stack([matrix.sum(axis=1) for matrix in matrices], axis=1)
    resampled = resampled_sums(matrices, layout, seed)
    return Parted(layout, len(rows), _factors(sums), _factors(repeats), _factors(resampled))


def _side(pairs: Pairs, suffix: str, *, baseline: bool = False) -> Values:
    """Parts × pairs. An answer of one token has no step and no flow; one that came at one time has neither told."""
    rows = pairs.rows
    intended, first, last, tokens = (
        numbers(rows, name + suffix) for name in ("intended_ns", "first_token_ns", "last_token_ns", "tokens")
    )
    later, flow = tokens - 1, last - first
    steps = later if baseline else np.where(later == 0, 0.0, numbers(rows, STEPS + suffix))
    untold = (later > 0) & ~(flow > 0)
    return np.where(untold, np.nan, np.stack([tokens, later, first - intended, flow, steps]))


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
