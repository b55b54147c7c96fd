"""Lengths of prompts and answers, and the share of prompts served from a cache: context for every other figure."""

from __future__ import annotations

from specbench_client.metrics.metric import FigureOrigin, RatioMetric, RequestMetric
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

MEASURES = (INPUT_TOKENS, OUTPUT_TOKENS)
RATIOS = (CACHED_SHARE,)
