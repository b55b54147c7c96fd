"""A confidence sequence for the mean of blocks: intervals that all contain it at once, however often one looks.

An ordinary 95 % interval is wrong more often if the measurement stops when it happens to exclude 1. The sequence here
may be looked at after every block. It contains every mean that the mixture t-test has not rejected: for n values with
mean m, standard deviation s and ν = n − 1,

    E(μ) = (1 + n g)^(−1/2) × [(1 + t²/ν) / (1 + t²/(ν (1 + n g)))]^(n/2),    t² = n (m − μ)² / s²

is an e-process for normal values of unknown variance, so that it ever exceeds 1/α with a probability of at most α
(Ville 1939; Pérez-Ortiz, Lardy, de Heide and Grünwald 2024, "E-statistics, group invariance and anytime-valid
testing").
g is the prior variance of the effect in units of s²: it decides how wide the interval is after few or many blocks, and
never whether it is valid.
"""

from __future__ import annotations

import numpy as np

from specbench_client.analysis.statistics.bootstrap import LEVEL, ChosenInterval, IntervalBounds
from specbench_client.metrics.tidy_frame import Values

PRIOR_VARIANCE = 10.0
"""g: effects of about three standard deviations of a block are decided soonest."""


def confidence_sequence(blocks: Values) -> ChosenInterval | None:
    """Return the interval of the mean after these blocks; None as long as it is unbounded.

    `blocks`: the same quantity in each block, shape (blocks,), in any order.
    """
    count = blocks.size
    if count < 2 or not np.isfinite(blocks).all():
        return None
    freedom, growth = count - 1, 1 + count * PRIOR_VARIANCE
    limit = (np.sqrt(growth) / (1 - LEVEL)) ** (2 / count)
    if limit >= growth:
        return None
    squared = freedom * (limit - 1) / (1 - limit / growth)
    mean, half = float(blocks.mean()), float(blocks.std(ddof=1) * np.sqrt(squared / count))
    method = f"anytime-valid confidence sequence (mixture t) over {count} repeats, unit: repeat"
    return ChosenInterval(IntervalBounds(mean - half, mean + half), method, float(freedom), over_repeats=True)


def anytime_p_value(blocks: Values) -> float:
    """Return the p-value of "the mean is 0" that matches the sequence: 1 / E(0), at most 1."""
    spread = float(blocks.std(ddof=1)) if blocks.size > 1 else 0.0
    if spread == 0.0:
        return 1.0
    count, freedom = blocks.size, blocks.size - 1
    growth, squared = 1 + count * PRIOR_VARIANCE, count * (float(blocks.mean()) / spread) ** 2 / freedom
    log_e = count / 2 * (np.log1p(squared) - np.log1p(squared / growth)) - np.log(growth) / 2
    return float(min(1.0, np.exp(-log_e)))
