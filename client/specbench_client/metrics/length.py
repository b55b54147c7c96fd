"""How long prompts and answers were, and how much of the prompts came from a cache: context of every other figure."""

from __future__ import annotations

from specbench_client.metrics.frame import numbers
from specbench_client.metrics.metric import Measure, Origin, Ratio

INPUT_TOKENS = Measure(
    "input_tokens",
    "tokens",
    "Prompt tokens, as the engine counts them",
    "the engine does not tell",
    Origin.ENGINE,
    lambda rows: numbers(rows, "input_tokens"),
)
OUTPUT_TOKENS = Measure(
    "output_tokens",
    "tokens",
    "Output tokens: the engine's count, else the client's",
    "neither counts them",
    Origin.ENGINE,
    lambda rows: numbers(rows, "tokens"),
)
CACHED_SHARE = Ratio(
    "cached_share",
    "ratio",
    "Share of prompt tokens that came from a prompt cache: Σ cached / Σ input tokens",
    "the engine does not tell",
    Origin.ENGINE,
    lambda rows: (numbers(rows, "cached_tokens"), numbers(rows, "input_tokens")),
    highest=1.0,
)

MEASURES = (INPUT_TOKENS, OUTPUT_TOKENS)
RATIOS = (CACHED_SHARE,)
