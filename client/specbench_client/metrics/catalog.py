"""All figures of a point or a cell, by name and in display order."""

from __future__ import annotations

from specbench_client.metrics import acceptance, decode_speed, latency, token_counts
from specbench_client.metrics.metric import PercentileMetric, RatioMetric, RequestMetric, mean_metric

MEASURES: tuple[RequestMetric, ...] = (*latency.MEASURES, *decode_speed.MEASURES)
"""Shown as percentiles and as a mean."""

RATIOS: tuple[RatioMetric, ...] = (
    *decode_speed.RATIOS,
    *acceptance.RATIOS,
    *(mean_metric(measure) for measure in (*MEASURES, *token_counts.MEASURES)),
    *token_counts.RATIOS,
)

PERCENTILE_FIGURES: tuple[PercentileMetric, ...] = tuple(
    PercentileMetric(measure, percent) for measure in MEASURES for percent in measure.percents
)

CATEGORY_RATIOS: tuple[RatioMetric, ...] = (
    acceptance.EMITTED_POOLED,
    acceptance.VERIFIED_POOLED,
    acceptance.ACCEPTANCE_RATE,
    decode_speed.TPOT_MS_POOLED,
    decode_speed.STREAM_TPS,
)
"""Shown for each category."""
