"""What was measured at one place of a curve: the speed-up, and the acceptance length over the same pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specbench_client.analysis.curves.samples import Sample
from specbench_client.analysis.estimates.speedup import PAIRED, SPEEDUP, Compared, complete, speedup
from specbench_client.analysis.statistics.log_ratio import LogRatio, log_ratio
from specbench_client.metrics.frame import numbers
from specbench_client.metrics.pace import later_tokens
from specbench_client.metrics.pairing import ARM

LENGTH_DEFINITION = f"Acceptance length, emitted, pooled over steps: Σ(tokens − 1) / Σ steps of the arm, {PAIRED}"


@dataclass(frozen=True)
class Measured:
    """One place. `length`: None where the engine does not tell its steps."""

    sample: Sample
    compared: Compared
    length: LogRatio | None

    @property
    def seed(self) -> int:
        """Of its draws."""
        return self.sample.cells[0].workload.sampling.seed


def measured(sample: Sample) -> Measured:
    """Measure it."""
    seed = sample.cells[0].workload.sampling.seed
    side = sample.pairs.side(ARM)
    steps = numbers(side, "steps")
    rows, parts = complete(sample.pairs, [later_tokens(side), np.where(steps >= 1, steps, np.nan)])
    return Measured(sample, speedup(SPEEDUP, sample.pairs, seed), log_ratio(rows, parts, (1, -1), seed))
