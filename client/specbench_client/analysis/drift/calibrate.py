"""Limits of both charts for a stated run length, by simulation from the reference's own requests.

Run lengths of such charts are close to exponential: were nothing to change, a chart with a mean of ARL requests
between false alarms has one among n requests with the chance 1 − exp(−n / ARL). That chance is halved between the two
charts (Bonferroni), and each one's limit is the quantile of the largest value that it comes to in simulated logs of n
requests. They draw from the reference's requests, which are skewed and bounded as no normal distribution is, and each
is standardised by a mean and a spread that are as uncertain as a reference of that size leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.drift.charts import Charts, Tuning
from specbench_client.metrics.frame import Values

PATHS = 1000
CHANCE_MIN = 0.02
"""Below this chance the horizon is made longer: a quantile needs paths beyond it."""
GROUP_NORMAL = 30
"""Means of as many requests are normal enough to be drawn as such."""


@dataclass(frozen=True)
class Limits:
    """Limits of |EWMA| and |CUSUM|, and the chance of a false alarm of either in the log that they were made for."""

    ewma: float
    cusum: float
    false_alarm: float


def limits_for(reference: Values, requests: int, tuning: Tuning, run_length: float, seed: int) -> Limits:
    """`reference`: log lengths. `requests`: of the log to be charted. `run_length`: requests between false alarms."""
    steps = max(requests // tuning.group, 1)
    needed = int(np.ceil(-np.log1p(-CHANCE_MIN) * run_length / tuning.group))
    horizon = max(steps, needed)
    tops = _largest(reference, horizon, tuning, seed)
    chance = 1 - np.exp(-horizon * tuning.group / run_length)
    ewma, cusum = (float(np.quantile(top, 1 - chance / 2)) for top in tops)
    return Limits(ewma, cusum, float(1 - np.exp(-requests / run_length)))


def _largest(reference: Values, steps: int, tuning: Tuning, seed: int) -> tuple[Values, Values]:
    """The largest |EWMA| and |CUSUM| of each simulated log in which nothing changes."""
    rng = np.random.default_rng(seed)
    count, mean, spread = reference.size, float(reference.mean()), float(reference.std(ddof=1))
    means = mean + spread * rng.standard_normal(PATHS) / np.sqrt(count)
    spreads = spread * np.sqrt(rng.chisquare(count - 1, PATHS) / (count - 1)) / np.sqrt(tuning.group)
    charts = Charts(tuning, PATHS)
    tops = (np.zeros(PATHS), np.zeros(PATHS))
    for _ in range(steps):
        told = charts.take((_drawn(reference, tuning.group, rng) - means) / spreads)
        tops = (np.maximum(tops[0], np.abs(told[0])), np.maximum(tops[1], np.abs(told[1])))
    return tops


def _drawn(reference: Values, group: int, rng: np.random.Generator) -> Values:
    """One subgroup's mean of each path."""
    if group > GROUP_NORMAL:
        return np.asarray(rng.normal(reference.mean(), reference.std(ddof=1) / np.sqrt(group), PATHS), dtype=np.float64)
    picks = reference[rng.integers(0, reference.size, (PATHS, group))]
    return np.asarray(picks.mean(axis=1), dtype=np.float64)
