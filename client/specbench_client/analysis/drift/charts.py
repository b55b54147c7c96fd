"""EWMA and CUSUM of each request's log acceptance length, standardised by the reference's mean and spread.

z_t = (log AL_t − μ) / σ, with μ and σ of the reference. Both charts look for small lasting shifts, in either direction:

- EWMA (Roberts 1959): E_t = (1 − λ) E_{t−1} + λ z_t; the statistic is |E_t| / sqrt(λ / (2 − λ) × (1 − (1 − λ)^{2t}));
- CUSUM (Page 1954; Page-Hinkley where only one direction counts): C⁺_t = max(0, C⁺_{t−1} + z_t − κ), C⁻ alike with −z;
  the statistic is the larger of the two.

A long log is charted in subgroups of g consecutive requests: their mean, whose spread is σ / sqrt(g), with κ × sqrt(g)
and λ to the same memory, 1 − (1 − λ)^g. Limits come from `calibrate`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.metrics.frame import Values

SHIFT = 0.2
"""Shift in σ that the charts are tuned to: about 6 % of acceptance length where its log spreads by 0.3."""
LAMBDA = 0.05
STEPS_MOST = 4000


@dataclass(frozen=True)
class Tuning:
    """Constants of both charts for subgroups of g requests."""

    group: int

    @property
    def allowance(self) -> float:
        """κ of the CUSUM: half of the shift that it is tuned to."""
        return SHIFT / 2 * float(np.sqrt(self.group))

    @property
    def memory(self) -> float:
        """λ of the EWMA."""
        return 1 - (1 - LAMBDA) ** self.group

    def subgroups(self, values: Values) -> Values:
        """Means of consecutive requests; the rest that fills no group is not charted."""
        whole = values.size // self.group * self.group
        return np.asarray(values[:whole].reshape(-1, self.group).mean(axis=1), dtype=np.float64)


def tuning_for(requests: int) -> Tuning:
    """As small as a chart of at most STEPS_MOST points allows."""
    return Tuning(max(1, -(-requests // STEPS_MOST)))


@dataclass
class Charts:
    """Both charts of many paths at once: the state after each step. Arrays have one element a path."""

    tuning: Tuning
    paths: int

    def __post_init__(self) -> None:
        self.up, self.down, self.smooth = (np.zeros(self.paths) for _ in range(3))
        self.step = 0

    def take(self, z: Values) -> tuple[Values, Values]:
        """One more standardised value of each path → signed statistics (EWMA, CUSUM); negative: towards lower."""
        self.step += 1
        allowance, memory = self.tuning.allowance, self.tuning.memory
        self.up = np.maximum(0.0, self.up + z - allowance)
        self.down = np.maximum(0.0, self.down - z - allowance)
        self.smooth = (1 - memory) * self.smooth + memory * z
        spread = np.sqrt(memory / (2 - memory) * (1 - (1 - memory) ** (2 * self.step)))
        return self.smooth / spread, np.where(self.up >= self.down, self.up, -self.down)


def run_charts(z: Values, tuning: Tuning) -> tuple[Values, Values]:
    """Signed statistics of one path, EWMA and CUSUM, each as long as `z`."""
    charts = Charts(tuning, 1)
    told = [charts.take(np.array([value])) for value in z]
    return (np.array([each[0][0] for each in told]), np.array([each[1][0] for each in told]))
