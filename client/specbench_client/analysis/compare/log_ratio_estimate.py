"""A log ratio of two results with its uncertainty, from which bounds and p-values are computed.

Two standard errors are computed and the larger one is used, as for the speed-up of one run:

- over prompts: the bootstrap of `analysis.statistics.bootstrap`, with a common draw of prompts, because both results
  have the same ones, and a separate draw of repeats for each side, because their repeats are unrelated;
- over repeats: Welch's, sqrt(s1² / n1 + s2² / n2) of the repeats' own logs, with Welch-Satterthwaite's degrees of
  freedom. It includes the variation between whole runs, which prompts alone understate.

If a run stops when its speed-up is decided, neither is valid for its speed-up: the confidence sequences of both sides
are combined instead (`estimate_of_stopped_runs`).

A bound at any one-sided level is value ± t × standard error, and p-values invert the same formula, so a test rejects
exactly if the bound does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from specbench_client.analysis.statistics.bootstrap import TAIL, ResamplingLayout, expanded_percentiles, t_quantile
from specbench_client.analysis.statistics.confidence_sequence import confidence_sequence
from specbench_client.columns import Values

NORMAL_FREEDOM = 1e6
"""Degrees of freedom at which Student's t is practically the normal distribution."""
REPEATS_MOST = 100
"""Maximum number of repeats to recommend."""


@dataclass(frozen=True)
class LogRatioEstimate:
    """A log ratio with its standard errors towards smaller and larger values, which differ if it is skewed."""

    value: float
    below: float
    above: float
    freedom: float
    method: str
    run_variance: float | None = None
    """s1² + s2² of the repeats' own values if the variation of repeats determines the interval; None if prompts do."""

    def low(self, confidence: float) -> float:
        """Return the one-sided lower bound."""
        return self.value - float(scipy.special.stdtrit(self.freedom, confidence)) * self.below

    def high(self, confidence: float) -> float:
        """Return the one-sided upper bound."""
        return self.value + float(scipy.special.stdtrit(self.freedom, confidence)) * self.above

    def p_below(self, limit: float) -> float:
        """One-sided p-value of "the true value is at the limit or above"; small if it is below."""
        return self._p(limit - self.value, self.above)

    def p_above(self, limit: float) -> float:
        """One-sided p-value of "the true value is at the limit or below"; small if it is above."""
        return self._p(self.value - limit, self.below)

    def p_two_sided(self) -> float:
        """Two-sided p-value of "no difference"."""
        return min(1.0, 2 * min(self.p_below(0.0), self.p_above(0.0)))

    def mirrored(self) -> LogRatioEstimate:
        """Return the estimate of the inverse ratio."""
        return replace(self, value=-self.value, below=self.above, above=self.below)

    def _p(self, distance: float, error: float) -> float:
        if error <= 0:  # no noise at all, as in a simulation
            return 0.0 if distance > 0 else 1.0
        return float(scipy.special.stdtr(self.freedom, -distance / error))


def estimate_over_prompts(
    value: float, samples: Values, prompts: ResamplingLayout, method: str
) -> LogRatioEstimate | None:
    """Build an estimate from resamples, shape (resamples,), by expanded percentiles; None if there are none."""
    bounds = expanded_percentiles(value, samples, prompts)
    if bounds is None:
        return None
    freedom = prompts.prompts - prompts.strata
    critical = t_quantile(freedom)
    return LogRatioEstimate(value, (value - bounds.low) / critical, (bounds.high - value) / critical, freedom, method)


def estimate_over_repeats(value: float, before: Values, after: Values) -> LogRatioEstimate | None:
    """Welch's estimate from the repeats' own logs; None if a side has fewer than two, or one without a value."""
    if min(before.size, after.size) < 2 or not np.isfinite([*before, *after]).all():
        return None
    variances = (float(before.var(ddof=1)), float(after.var(ddof=1)))
    parts = (variances[0] / before.size, variances[1] / after.size)
    error = float(np.sqrt(sum(parts)))
    method = f"Welch's t, unit: repeat; {before.size} repeats before and {after.size} after"
    return LogRatioEstimate(value, error, error, _freedom(parts, (before.size, after.size)), method, sum(variances))


def estimate_of_stopped_runs(
    sides: tuple[Values, Values], turns: tuple[Values | None, Values | None]
) -> LogRatioEstimate | None:
    """Estimate from the repeats' own logs of both sides, at least one of which stopped when it was decided.

    The interval at `LEVEL` is MOVER (`analysis.estimates.figure_ratios`) from two confidence sequences; other levels
    scale it by Student's t. None as long as a sequence is unbounded. `turns`: `ResamplingLayout.turns` of each side.
    """
    before, after = (confidence_sequence(each, order) for each, order in zip(sides, turns, strict=True))
    if before is None or after is None:
        return None
    widths = [each.bounds.high - each.bounds.low for each in (before, after)]
    freedom, value = before.freedom + after.freedom, float(sides[1].mean() - sides[0].mean())
    error = math.hypot(*widths) / 2 / t_quantile(freedom)
    counts = f"{sides[0].size} repeats before and {sides[1].size} after"
    method = f"MOVER from two anytime-valid confidence sequences (mixture t), unit: repeat; {counts}"
    return LogRatioEstimate(value, error, error, freedom, method)


def wider_estimate(prompts: LogRatioEstimate | None, repeats: LogRatioEstimate | None) -> LogRatioEstimate | None:
    """Return the wider one; None without the prompts' one, because repeats do not generalise to other prompts."""
    if prompts is None or repeats is None:
        return prompts
    width = {id(each): each.high(1 - TAIL) - each.low(1 - TAIL) for each in (prompts, repeats)}
    return prompts if width[id(prompts)] >= width[id(repeats)] else repeats


def repeats_to_decide(estimate: LogRatioEstimate, limit: float, confidence: float) -> int | None:
    """Return about how many repeats on each side would separate the value from the limit, at the same estimates.

    It is the smallest n for which t(2n − 2) × sqrt((s1² + s2²) / n) is less than the distance. None if prompts and
    not repeats dominate the uncertainty, or if more than `REPEATS_MOST` would be needed.
    """
    if estimate.run_variance is None:
        return None
    counts = np.arange(2, REPEATS_MOST + 1)
    reach = scipy.special.stdtrit(2 * counts - 2, confidence) * np.sqrt(estimate.run_variance / counts)
    found = counts[reach < abs(estimate.value - limit)]
    return int(found[0]) if found.size else None


def _freedom(parts: tuple[float, float], sizes: tuple[int, int]) -> float:
    """Welch-Satterthwaite's degrees of freedom; n1 + n2 − 2 if neither side has any variation."""
    if sum(parts) <= 0:
        return float(sum(sizes) - 2)
    under = sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return float(sum(parts) ** 2 / under)
