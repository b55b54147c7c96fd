"""Table 1 of SPEED-Bench: mean acceptance length and speed-up over the qualitative split, batch 32, three drafts."""

from __future__ import annotations

from typing import Literal

from specbench_api.outcome.published import PublishedFigure
from specbench_client.analysis.published.table import Table

_TENSORRT, _SGLANG = "TensorRT-LLM", "SGLang"
_ARMS: tuple[tuple[str, str, str, tuple[float | None, ...]], ...] = (
    ("Llama-3.3-70B", _TENSORRT, "ngram", (1.41, 0.88, 1.37, 0.85)),
    ("Llama-3.3-70B", _TENSORRT, "draft_model", (2.44, 1.60, 1.98, 1.15)),
    ("Llama-3.3-70B", _TENSORRT, "eagle3", (2.44, 1.90, 2.37, 1.75)),
    ("GPT-OSS-120B", _TENSORRT, "ngram", (1.31, 0.29, 1.27, 0.27)),
    ("GPT-OSS-120B", _TENSORRT, "eagle3", (2.25, 1.34, 2.07, 1.06)),
    ("DeepSeek-R1", _TENSORRT, "mtp", (2.55, 1.45, None, None)),
    ("Qwen3-235B", _SGLANG, "draft_model", (2.43, 1.17, 2.21, 1.06)),
    ("Qwen3-235B", _SGLANG, "eagle3", (2.22, 1.33, 2.03, 1.21)),
    ("Qwen3-Next", _SGLANG, "eagle3", (2.36, 1.06, 2.26, 1.03)),
    ("Qwen3-Next", _SGLANG, "mtp", (2.81, 1.20, 2.68, 1.18)),
)
"""Model, engine, method; then AL and speed-up at temperature 0, and both at 1."""
_COLUMNS: tuple[tuple[Literal["acceptance_length", "speedup"], float], ...] = (
    ("acceptance_length", 0.0),
    ("speedup", 0.0),
    ("acceptance_length", 1.0),
    ("speedup", 1.0),
)

SPEED_BENCH = Table(
    "speed-bench",
    "Mean acceptance length (with the bonus) and speed-up over eleven categories (Table 1)",
    "SPEED-Bench, arXiv 2604.09557",
    "copied from the table, two decimals",
    tuple(
        PublishedFigure(
            model=model,
            engine=engine,
            hardware="B200",
            method=method,
            draft_tokens=3,
            dataset="SPEED-Bench qualitative",
            batch=32,
            temperature=temperature,
            figure=figure,
            value=value,
            note="mean over categories",
        )
        for model, engine, method, values in _ARMS
        for (figure, temperature), value in zip(_COLUMNS, values, strict=True)
        if value is not None
    ),
)
