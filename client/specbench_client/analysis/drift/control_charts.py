"""EWMA and CUSUM control charts of each request's log acceptance length, with limits calibrated by simulation.

z_t = (log AL_t − μ) / σ, with mean μ and standard deviation σ of the reference. Both charts detect small lasting
shifts in either direction:

- EWMA (Roberts 1959): E_t = (1 − λ) E_{t−1} + λ z_t; the statistic is |E_t| / sqrt(λ / (2 − λ) × (1 − (1 − λ)^{2t}));
- CUSUM (Page 1954; Page-Hinkley if only one direction counts): C⁺_t = max(0, C⁺_{t−1} + z_t − κ), and C⁻ likewise with
  −z; the statistic is the larger of the two.

A long log is charted in subgroups of g consecutive requests: their mean has the standard deviation σ / sqrt(g), κ is
multiplied by sqrt(g), and λ becomes 1 − (1 − λ)^g, which has the same memory. `calibrate_limits` sets the limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.numpy_columns import Values

SHIFT = 0.2
"""Shift in σ that the charts are tuned to: about 6 % of acceptance length if its log has a spread of 0.3."""
LAMBDA = 0.05
STEPS_MOST = 4000


@dataclass(frozen=True)
class ChartTuning:
    """Constants of both charts for subgroups of `group` requests."""

    group: int

    @property
    def allowance(self) -> float:
        """κ of the CUSUM: half of the shift that it is tuned to, in standard deviations of a subgroup's mean."""
        return SHIFT / 2 * float(np.sqrt(self.group))

    @property
    def memory(self) -> float:
        """λ of the EWMA."""
        return 1 - (1 - LAMBDA) ** self.group

    def subgroups(self, values: Values) -> Values:
        """Return the means of consecutive requests, shape (subgroups,); an incomplete last subgroup is not charted."""
        whole = values.size // self.group * self.group
        return np.asarray(values[:whole].reshape(-1, self.group).mean(axis=1), dtype=np.float64)


def tuning_for(requests: int) -> ChartTuning:
    """Return the smallest subgroups for which the chart has at most STEPS_MOST points."""
    return ChartTuning(max(1, -(-requests // STEPS_MOST)))


@dataclass
class ControlCharts:
    """State of both charts for many paths at once; arrays have shape (paths,)."""

    tuning: ChartTuning
    paths: int

    def __post_init__(self) -> None:
        self.up, self.down, self.smooth = (np.zeros(self.paths) for _ in range(3))
        self.step = 0

    def take(self, z: Values) -> tuple[Values, Values]:
        """Add one standardised value per path and return the signed statistics (EWMA, CUSUM), shape (paths,) each.

        Negative statistics are shifts to lower acceptance.
        """
        self.step += 1
        allowance, memory = self.tuning.allowance, self.tuning.memory
        self.up = np.maximum(0.0, self.up + z - allowance)
        self.down = np.maximum(0.0, self.down - z - allowance)
        self.smooth = (1 - memory) * self.smooth + memory * z
        spread = np.sqrt(memory / (2 - memory) * (1 - (1 - memory) ** (2 * self.step)))
        return self.smooth / spread, np.where(self.up >= self.down, self.up, -self.down)


def run_charts(z: Values, tuning: ChartTuning) -> tuple[Values, Values]:
    """Return the signed EWMA and CUSUM statistics of one path. `z` and both results: shape (steps,)."""
    charts = ControlCharts(tuning, 1)
    statistics = [charts.take(np.array([value])) for value in z]
    return (np.array([each[0][0] for each in statistics]), np.array([each[1][0] for each in statistics]))


# The limits for a given run length come from simulation with the reference's own requests.
#
# Run lengths of such charts are close to exponential: without any change, a chart with a mean of ARL requests between
# false alarms has one among n requests with probability 1 − exp(−n / ARL). This probability is halved between the two
# charts (Bonferroni), and each limit is the quantile of the chart's maximum in simulated logs of n requests. The
# simulation draws from the reference's requests, because they are skewed and bounded, unlike a normal distribution.
# Each path is standardised by a mean and a spread with the sampling error of a reference of that size.

PER_LOG = 20.0
"""Default run length, in lengths of the current log: one false alarm in twenty comparisons."""
PATHS = 1000
CHANCE_MIN = 0.02
"""For smaller false-alarm probabilities the horizon is longer, because a quantile needs paths beyond it."""
GROUP_NORMAL = 30
"""From this subgroup size on, means are drawn from a normal distribution."""


@dataclass(frozen=True)
class ChartLimits:
    """Limits of |EWMA| and |CUSUM|, and the probability that either gives a false alarm in the charted log."""

    ewma: float
    cusum: float
    false_alarm: float


def calibrate_limits(
    reference: Values, requests: int, tuning: ChartTuning, run_length: float, seed: int
) -> ChartLimits:
    """Return the limits for a log of `requests` requests.

    `reference`: log acceptance lengths, shape (reference requests,). `run_length`: mean requests between false alarms.
    """
    steps = max(requests // tuning.group, 1)
    needed = int(np.ceil(-np.log1p(-CHANCE_MIN) * run_length / tuning.group))
    horizon = max(steps, needed)
    tops = _largest(reference, horizon, tuning, seed)
    chance = 1 - np.exp(-horizon * tuning.group / run_length)
    ewma, cusum = (float(np.quantile(top, 1 - chance / 2)) for top in tops)
    return ChartLimits(ewma, cusum, float(1 - np.exp(-requests / run_length)))


def _largest(reference: Values, steps: int, tuning: ChartTuning, seed: int) -> tuple[Values, Values]:
    """Return the largest |EWMA| and |CUSUM| of each simulated log without a change, shape (paths,) each."""
    rng = np.random.default_rng(seed)
    count, mean, spread = reference.size, float(reference.mean()), float(reference.std(ddof=1))
    means = mean + spread * rng.standard_normal(PATHS) / np.sqrt(count)
    spreads = spread * np.sqrt(rng.chisquare(count - 1, PATHS) / (count - 1)) / np.sqrt(tuning.group)
    charts = ControlCharts(tuning, PATHS)
    tops = (np.zeros(PATHS), np.zeros(PATHS))
    for _ in range(steps):
        ewma, cusum = charts.take((_drawn(reference, tuning.group, rng) - means) / spreads)
        tops = (np.maximum(tops[0], np.abs(ewma)), np.maximum(tops[1], np.abs(cusum)))
    return tops


def _drawn(reference: Values, group: int, rng: np.random.Generator) -> Values:
    """Draw the mean of one subgroup for each path, shape (paths,)."""
    if group > GROUP_NORMAL:
        return np.asarray(rng.normal(reference.mean(), reference.std(ddof=1) / np.sqrt(group), PATHS), dtype=np.float64)
    picks = reference[rng.integers(0, reference.size, (PATHS, group))]
    return np.asarray(picks.mean(axis=1), dtype=np.float64)
