"""Confidence intervals of figures, from resamples or from a half-width."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.figure import FigureInterval
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.metrics.tidy_frame import Values


def percentile_interval(samples: Values, method: str) -> FigureInterval:
    """Return the central LEVEL of the samples. `samples`: shape (resamples,), all finite."""
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return FigureInterval(low=float(low), high=float(high), level=LEVEL, method=method)


def symmetric_interval(value: float, half_width: float, method: str, least: float = -np.inf) -> FigureInterval:
    """Return value ± half-width. `least`: what the lower bound is cut at, for quantities that are never below it."""
    return FigureInterval(low=max(least, value - half_width), high=value + half_width, level=LEVEL, method=method)
