"""All figures of a point or of a cell, by name and in order."""

from __future__ import annotations

from specbench_client.metrics import acceptance, latency, length, pace
from specbench_client.metrics.metric import Measure, Percentile, Ratio, mean_of

MEASURES: tuple[Measure, ...] = (*latency.MEASURES, *pace.MEASURES)
"""Shown as percentiles and as a mean."""

RATIOS: tuple[Ratio, ...] = (
    *pace.RATIOS,
    *acceptance.RATIOS,
    *(mean_of(measure) for measure in (*MEASURES, *length.MEASURES)),
    *length.RATIOS,
)

PERCENTILE_FIGURES: tuple[Percentile, ...] = tuple(
    Percentile(measure, percent) for measure in MEASURES for percent in measure.percents
)

CATEGORY_RATIOS: tuple[Ratio, ...] = (
    acceptance.EMITTED_POOLED,
    acceptance.VERIFIED_POOLED,
    acceptance.RATE,
    pace.TPOT_MS_POOLED,
    pace.STREAM_TPS,
)
"""What is shown for each category."""
