"""Summarises how a number is distributed over the prompts of a set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.model import ApiModel


class Distribution(ApiModel):
    """Percentiles (linear between neighbours) and mean of a number over `n` prompts, in that number's unit."""

    n: int
    least: float
    p50: float
    p90: float
    p99: float
    most: float
    mean: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """Return the distribution of the values; None if there are none."""
    if not values:
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(values, [50, 90, 99]))
    least, most, mean = float(min(values)), float(max(values)), float(np.mean(values))
    return Distribution(n=len(values), least=least, p50=p50, p90=p90, p99=p99, most=most, mean=mean)
