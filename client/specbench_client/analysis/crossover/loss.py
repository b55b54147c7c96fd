"""How much of a speed-up is lost from the smallest measured place to the largest.

    lost = 1 - speed-up at the largest place / speed-up at the smallest

The interval is that of the joint replicates of both places (`replicates`): what the two share, the same prompts and the
same launches, does not count twice. Below 0 where the speed-up grows.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_client.analysis.crossover.shape import Curve
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.metrics.frame import Values


def loss(curve: Curve) -> Figure:
    """Return the loss as a ratio, of the speed-ups as they were measured."""
    first, last = curve.rungs[0], curve.rungs[-1]
    drawn = _lost(curve.samples[:, -1] - curve.samples[:, 0])
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    method = f"percentiles over {len(curve.samples)} joint replicates of both speed-ups"
    return Figure(
        value=float(_lost(curve.y[-1] - curve.y[0])),
        unit="ratio",
        definition=(
            f"Share of the speed-up that is lost from {curve.axis.words(first.place)} to"
            f" {curve.axis.words(last.place)}: 1 - the last speed-up / the first"
        ),
        n=min(first.ratio.prompts, last.ratio.prompts),
        interval=FigureInterval(low=float(low), high=float(high), level=LEVEL, method=method),
        source="both",
    )


def _lost(difference: Values) -> Values:
    """Of the last log speed-up less the first."""
    return np.asarray(1 - np.exp(difference), dtype=np.float64)
