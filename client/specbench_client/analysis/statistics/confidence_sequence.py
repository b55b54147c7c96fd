"""A confidence sequence for the mean of blocks: intervals that all contain it at once, however often one looks.

An ordinary 95 % interval is wrong more often if the measurement stops when it happens to exclude 1. The sequence here
may be looked at after every block. It contains every mean that the mixture t-test has not rejected: for n values with
mean m, standard deviation s and ν = n − 1,

    E(μ) = (1 + n g)^(−1/2) × [(1 + t²/ν) / (1 + t²/(ν (1 + n g)))]^((ν + 1)/2),    t² = n (m − μ)² / s²

is an e-process for normal values of unknown variance, so that it ever exceeds 1/α with a probability of at most α
(Ville 1939; Pérez-Ortiz, Lardy, de Heide and Grünwald 2024, "E-statistics, group invariance and anytime-valid
testing"). If servers take turns (ABBA), the effect of their order is removed from the values and ν = n − 2, as in
`bootstrap.deviations`; that is the same test in a linear model with this effect (Lindon, Ham, Tingley and Bojinov 2022,
"Anytime-Valid Linear Models and Regression Adjusted Causal Inference").
g is the prior variance of the effect in units of s²: it decides how wide the interval is after few or many blocks, and
never whether it is valid. Values with heavy tails are excluded less often, and skewed ones more often: with a skewness
of 1.8 (log-normal, σ = 0.5) in 5 % to 7 %. Logarithms of speed-ups are nearly symmetric.
"""

from __future__ import annotations

import numpy as np

from specbench_client.analysis.statistics.bootstrap import (
    ChosenInterval,
    IntervalBounds,
    order_note,
    runs_freedom,
    runs_variance,
)
from specbench_client.analysis.statistics.level import LEVEL
from specbench_client.numpy_columns import Values

PRIOR_VARIANCE = 10.0
"""g: effects of about three standard deviations of a block are decided soonest."""


def confidence_sequence(blocks: Values, turns: Values | None = None) -> ChosenInterval | None:
    """Return the interval of the mean after these blocks; None as long as it is unbounded.

    `blocks`: the same quantity in each block, shape (blocks,), in any order. `turns`: `ResamplingLayout.turns`.
    """
    if blocks.size < 2 or not np.isfinite(blocks).all():
        return None
    count, freedom = blocks.size, runs_freedom(blocks.size, turns)
    mean, half = float(blocks.mean()), half_width(runs_variance(blocks, turns), count, freedom, 1 - LEVEL)
    if not np.isfinite(half):
        return None
    method = f"anytime-valid confidence sequence (mixture t) over {count} repeats{order_note(turns)}, unit: repeat"
    return ChosenInterval(IntervalBounds(mean - half, mean + half), method, float(freedom), over_repeats=True)


def half_width(variance: float, count: float, freedom: float, miss: float) -> float:
    """Return the half-width of the sequence for a mean of `count` values with this variance; infinite if unbounded.

    `miss`: how often the sequence may ever miss the mean. `freedom`: that of the variance.
    """
    growth = 1 + count * PRIOR_VARIANCE
    limit = (np.sqrt(growth) / miss) ** (2 / (freedom + 1))
    if limit >= growth:
        return float("inf")
    return float(np.sqrt(variance * freedom * (limit - 1) / (1 - limit / growth) / count))


def anytime_p_value(blocks: Values, turns: Values | None = None) -> float:
    """Return the p-value of "the mean is 0" that matches the sequence: 1 / E(0), at most 1."""
    if blocks.size < 2:
        return 1.0
    freedom = float(runs_freedom(blocks.size, turns))
    return sequence_p_value(float(blocks.mean()), runs_variance(blocks, turns), blocks.size, freedom)


def sequence_p_value(mean: float, variance: float, count: float, freedom: float) -> float:
    """Return the p-value of "the mean is 0" for a mean of `count` values with this variance, see `half_width`."""
    if variance == 0.0:
        return 1.0
    growth = 1 + count * PRIOR_VARIANCE
    squared = count * mean**2 / variance / freedom
    log_e = (freedom + 1) / 2 * (np.log1p(squared) - np.log1p(squared / growth)) - np.log(growth) / 2
    return float(min(1.0, np.exp(-log_e)))
