"""A log ratio of two results with its uncertainty, from which every bound and every p-value is read off.

Two standard errors are made of it and the larger one is taken, as for the speed-up of one run:

- over prompts: the bootstrap of `analysis.statistics.bootstrap`, with one draw of prompts for both sides, since both
  were asked the same ones, and a draw of repeats for each side, since no repeat of the one belongs to one of the other;
- over repeats: Welch's, sqrt(s1² / n1 + s2² / n2) of the repeats' own logs, with Welch-Satterthwaite's degrees of
  freedom. It holds what whole runs do, which prompts alone understate.

A bound at any one-sided level is value ± t × standard error, and p-values are the same sum turned round, so that a
test rejects exactly where its bound says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from specbench_client.analysis.statistics.bootstrap import LEVEL, Layout, expanded
from specbench_client.metrics.frame import Values

TAIL = (1 - LEVEL) / 2
NORMAL = 1e6
"""Degrees of freedom that make Student's t the normal distribution."""
REPEATS_MOST = 100
"""More repeats than these are nothing to advise."""


@dataclass(frozen=True)
class Estimate:
    """`below` and `above`: standard errors towards smaller and towards larger values; they differ where it is skew."""

    value: float
    below: float
    above: float
    freedom: float
    method: str
    run_variance: float | None = None
    """s1² + s2² of the repeats' own values, where the spread of repeats decides; None where prompts do."""

    def low(self, confidence: float) -> float:
        """One-sided lower bound."""
        return self.value - float(special.stdtrit(self.freedom, confidence)) * self.below

    def high(self, confidence: float) -> float:
        """One-sided upper bound."""
        return self.value + float(special.stdtrit(self.freedom, confidence)) * self.above

    def p_below(self, limit: float) -> float:
        """One-sided p-value of `the truth lies at the limit or above`; small: it lies below."""
        return self._p(limit - self.value, self.above)

    def p_above(self, limit: float) -> float:
        """One-sided p-value of `the truth lies at the limit or below`; small: it lies above."""
        return self._p(self.value - limit, self.below)

    def p_two_sided(self) -> float:
        """P-value of `no difference`."""
        return min(1.0, 2 * min(self.p_below(0.0), self.p_above(0.0)))

    def mirrored(self) -> Estimate:
        """The same of the inverse ratio."""
        return replace(self, value=-self.value, below=self.above, above=self.below)

    def _p(self, distance: float, error: float) -> float:
        if error <= 0:  # no noise at all, as of a simulation
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.freedom, -distance / error))


def over_prompts(value: float, samples: Values, prompts: Layout, words: str) -> Estimate | None:
    """From resamples, expanded as `analysis.statistics.bootstrap.expanded` does. None where they tell nothing."""
    bounds = expanded(value, samples, prompts)
    if bounds is None:
        return None
    freedom = prompts.prompts - prompts.strata
    critical = float(special.stdtrit(freedom, 1 - TAIL))
    return Estimate(value, (value - bounds.low) / critical, (bounds.high - value) / critical, freedom, words)


def over_repeats(value: float, before: Values, after: Values) -> Estimate | None:
    """Welch's, from the repeats' own logs on each side; None where a side has fewer than two, or one of no value."""
    if min(before.size, after.size) < 2 or not np.isfinite([*before, *after]).all():
        return None
    variances = (float(before.var(ddof=1)), float(after.var(ddof=1)))
    parts = (variances[0] / before.size, variances[1] / after.size)
    error = float(np.sqrt(sum(parts)))
    words = f"Welch's t, unit: repeat; {before.size} repeats before and {after.size} after"
    return Estimate(value, error, error, _freedom(parts, (before.size, after.size)), words, sum(variances))


def wider(prompts: Estimate | None, repeats: Estimate | None) -> Estimate | None:
    """The more careful one. Without the prompts' there is none: runs alone say nothing of other prompts."""
    if prompts is None or repeats is None:
        return prompts
    width = {id(each): each.high(1 - TAIL) - each.low(1 - TAIL) for each in (prompts, repeats)}
    return prompts if width[id(prompts)] >= width[id(repeats)] else repeats


def repeats_to_decide(estimate: Estimate, limit: float, confidence: float) -> int | None:
    """About how many repeats on each side would tell the value from the limit, if both stayed what they seem.

    The smallest n for which t(2n - 2) × sqrt((s1² + s2²) / n) is less than the distance. None where prompts and not
    repeats are the larger uncertainty, or where more than `REPEATS_MOST` would be needed.
    """
    if estimate.run_variance is None:
        return None
    counts = np.arange(2, REPEATS_MOST + 1)
    reach = special.stdtrit(2 * counts - 2, confidence) * np.sqrt(estimate.run_variance / counts)
    found = counts[reach < abs(estimate.value - limit)]
    return int(found[0]) if found.size else None


def _freedom(parts: tuple[float, float], sizes: tuple[int, int]) -> float:
    """Welch-Satterthwaite; where neither side has any spread, what both together have."""
    if sum(parts) <= 0:
        return float(sum(sizes) - 2)
    under = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return float(sum(parts) ** 2 / under)
