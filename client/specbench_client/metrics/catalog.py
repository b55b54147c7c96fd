"""All figures of a point or a cell, by name and in display order; and the counts of tokens, their context."""

from __future__ import annotations

from specbench_client.metrics import acceptance, latency, time_per_token
from specbench_client.metrics.metric_types import (
    FigureOrigin,
    PercentileMetric,
    RatioMetric,
    RequestMetric,
    mean_metric,
)
from specbench_client.metrics.tidy_frame import numbers

INPUT_TOKENS = RequestMetric(
    "input_tokens",
    "tokens",
    "Prompt tokens as counted by the engine",
    "the engine does not report it",
    FigureOrigin.ENGINE,
    lambda rows: numbers(rows, "input_tokens"),
)
OUTPUT_TOKENS = RequestMetric(
    "output_tokens",
    "tokens",
    "Output tokens: the engine's count, else the client's",
    "neither counts them",
    FigureOrigin.ENGINE,
    lambda rows: numbers(rows, "tokens"),
)
CACHED_SHARE = RatioMetric(
    "prompt_cache_hit_rate",
    "ratio",
    "Share of prompt tokens that came from a prompt cache: Σ cached / Σ input tokens",
    "the engine does not report it",
    FigureOrigin.ENGINE,
    lambda rows: (numbers(rows, "cached_tokens"), numbers(rows, "input_tokens")),
    highest=1.0,
)

MEASURES: tuple[RequestMetric, ...] = (*latency.MEASURES, *time_per_token.MEASURES)
"""Shown as percentiles and as a mean."""

RATIOS: tuple[RatioMetric, ...] = (
    *time_per_token.RATIOS,
    *acceptance.RATIOS,
    *(mean_metric(measure) for measure in (*MEASURES, INPUT_TOKENS, OUTPUT_TOKENS)),
    CACHED_SHARE,
)

PERCENTILE_FIGURES: tuple[PercentileMetric, ...] = tuple(
    PercentileMetric(measure, percent) for measure in MEASURES for percent in measure.percents
)

CATEGORY_RATIOS: tuple[RatioMetric, ...] = (
    acceptance.EMITTED_POOLED,
    acceptance.VERIFIED_POOLED,
    acceptance.ACCEPTANCE_RATE,
    time_per_token.TPOT_MS_POOLED,
    time_per_token.STREAM_TPS,
)
"""Shown for each category."""
