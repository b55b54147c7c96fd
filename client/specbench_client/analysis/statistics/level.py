"""The confidence level of every interval, and the quantiles that follow from it."""

from __future__ import annotations

from statistics import NormalDist

import scipy

LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
"""Probability beyond each end of an interval."""


Z = NormalDist().inv_cdf(1 - TAIL)
"""Half-width of an interval in standard errors, if these are known exactly."""


def t_quantile(freedom: float) -> float:
    """Return Student's quantile, the half-width of an interval in estimated standard errors."""
    return float(scipy.special.stdtrit(freedom, 1 - TAIL))
