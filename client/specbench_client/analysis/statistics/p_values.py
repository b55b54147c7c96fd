"""p-values that match intervals, and Holm's correction for several of them."""

from __future__ import annotations

from collections.abc import Sequence

import scipy

from specbench_client.analysis.statistics.bootstrap import IntervalBounds, t_quantile


def interval_p_value(value: float, bounds: IntervalBounds, freedom: float) -> float:
    """Return the two-sided p-value of "the value is 0", below 1 − LEVEL exactly if its t interval excludes 0."""
    reach = value - bounds.low if value > 0 else bounds.high - value
    if reach <= 0:  # no noise at all, as in a simulation
        return 1.0 if value == 0 else 0.0
    return float(2 * scipy.special.stdtr(freedom, -t_quantile(freedom) * abs(value) / reach))


def holm_rejections(p_values: Sequence[float | None], alpha: float) -> list[bool]:
    """Return which hypotheses are rejected (Holm 1979); none without a p-value.

    `alpha`: bound of the probability of any false rejection among all of them.
    """
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    found = [False] * len(p_values)
    for rank, (value, index) in enumerate(ranked):
        if value > alpha / (len(ranked) - rank):
            break
        found[index] = True
    return found
