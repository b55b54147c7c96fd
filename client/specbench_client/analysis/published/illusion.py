"""Figures 1 and 2 of "Speculative Decoding: Performance or Illusion?", and its reasoning workloads."""

from __future__ import annotations

from typing import Any

from specbench_api.outcome.published import PublishedFigure
from specbench_client.analysis.published.table import Table, Values, by_batch, over_baseline

_SOURCE = "Liu et al., Speculative Decoding: Performance or Illusion?, arXiv 2601.11580"
_READ = "read off the figures, each value within 0.03"
_BATCHES = (1, 16, 64, 128)
_LLAMA_8B: Values = {
    ("GSM8K", "ngram", 3): "1.17 1.15 1.10 1.05",
    ("GSM8K", "eagle", None): "1.73 1.68 1.47 1.21",
    ("GSM8K", "eagle3", None): "1.76 1.70 1.49 1.22",
    ("CNN/DailyMail", "ngram", 3): "1.34 1.29 1.19 1.13",
    ("CNN/DailyMail", "eagle", None): "1.45 1.40 1.28 1.14",
    ("CNN/DailyMail", "eagle3", None): "1.69 1.58 1.40 1.24",
    ("ShareGPT", "ngram", 3): "1.27 1.25 1.19 1.11",
    ("ShareGPT", "eagle", None): "1.68 1.67 1.54 1.29",
    ("ShareGPT", "eagle3", None): "1.71 1.68 1.55 1.29",
    ("InstructCoder", "ngram", 3): "1.88 1.74 1.47 1.29",
    ("InstructCoder", "ngram", 5): "2.10 1.90 1.52 1.30",
    ("InstructCoder", "eagle", None): "1.97 1.86 1.53 1.30",
    ("InstructCoder", "eagle3", None): "2.02 1.92 1.57 1.31",
}
_LLAMA_70B: Values = {
    ("GSM8K", "ngram", None): "1.16 1.14 1.08 1.00",
    ("GSM8K", "eagle", None): "1.91 1.75 1.42 1.01",
    ("GSM8K", "draft_model", None): "2.35 2.12 1.70 1.26",
    ("CNN/DailyMail", "ngram", None): "1.28 1.21 1.12 1.06",
    ("CNN/DailyMail", "eagle", None): "1.85 1.57 1.27 1.02",
    ("CNN/DailyMail", "draft_model", None): "2.10 1.70 1.34 1.11",
    ("ShareGPT", "ngram", None): "1.20 1.15 1.10 1.05",
    ("ShareGPT", "eagle", None): "1.96 1.78 1.50 1.06",
    ("ShareGPT", "draft_model", None): "2.16 1.97 1.66 1.25",
    ("InstructCoder", "ngram", 3): "1.88 1.71 1.45 1.20",
    ("InstructCoder", "ngram", 5): "2.09 1.84 1.46 1.20",
    ("InstructCoder", "eagle", None): "2.50 2.15 1.66 1.20",
    ("InstructCoder", "draft_model", None): "2.55 2.18 1.70 1.27",
}
_QWEN: Values = {
    ("GSM8K", "ngram", None): "1.11 1.10 1.05 1.00",
    ("GSM8K", "eagle3", None): "1.82 1.76 1.50 1.16",
    ("GSM8K", "draft_model", None): "1.70 1.68 1.47 1.14",
    ("CNN/DailyMail", "ngram", None): "1.53 1.48 1.36 1.25",
    ("CNN/DailyMail", "eagle3", None): "1.82 1.71 1.47 1.24",
    ("CNN/DailyMail", "draft_model", None): "1.46 1.38 1.15 0.97",
    ("ShareGPT", "ngram", None): "1.14 1.10 1.09 1.02",
    ("ShareGPT", "eagle3", None): "1.63 1.57 1.44 1.14",
    ("ShareGPT", "draft_model", None): "1.35 1.32 1.13 0.92",
    ("InstructCoder", "ngram", 3): "2.18 2.00 1.63 1.38",
    ("InstructCoder", "ngram", 5): "2.63 2.30 1.70 1.38",
    ("InstructCoder", "eagle3", None): "1.99 1.84 1.47 1.18",
    ("InstructCoder", "draft_model", None): "1.79 1.70 1.40 1.12",
}
_TREES: Values = {
    ("GSM8K", "eagle3", 3): "1.65 1.58 1.31 1.22",
    ("GSM8K", "eagle3", 6): "1.68 1.50 1.09 1.03",
    ("GSM8K", "eagle3", 21): "1.85 1.34 0.58 0.55",
    ("CNN/DailyMail", "eagle3", 3): "1.61 1.51 1.28 1.24",
    ("CNN/DailyMail", "eagle3", 21): "1.74 1.18 0.62 0.60",
    ("ShareGPT", "eagle3", 3): "1.43 1.38 1.20 1.10",
    ("ShareGPT", "eagle3", 21): "1.60 1.14 0.52 0.49",
    ("InstructCoder", "eagle3", 3): "1.79 1.65 1.31 1.26",
    ("InstructCoder", "eagle3", 21): "1.82 1.28 0.62 0.60",
}
_GREEDY: dict[str, Any] = {"temperature": 0.0, "figure": "speedup"}
_VLLM: dict[str, Any] = {"engine": "vLLM 0.10.1 or 0.11.1", **_GREEDY}
_H100 = "1 x H100 80GB"
_LIKE_PROMPTS = "each batch holds copies of one prompt"


def _accepted(draft_tokens: int, length: float, rate: float, note: str) -> list[PublishedFigure]:
    where = {"model": "Qwen3-8B", "engine": "SGLang 0.5.9", "hardware": _H100, "dataset": "GSM8K", "temperature": 0.0}
    told = {**where, "method": "eagle3", "draft_tokens": draft_tokens, "note": note}
    return [
        PublishedFigure.model_validate({**told, "figure": "acceptance_length", "value": length}),
        PublishedFigure.model_validate({**told, "figure": "acceptance_rate", "value": rate}),
    ]


BATCH = Table(
    "illusion-batch",
    "Speed-up by batch size, three targets, four prompt sets (Figure 1)",
    _SOURCE,
    f"{_READ}; draft tokens where the figure tells them",
    (
        *by_batch(_BATCHES, _LLAMA_8B, model="Llama-3.1-8B", hardware=_H100, note=_LIKE_PROMPTS, **_VLLM),
        *by_batch(_BATCHES, _LLAMA_70B, model="Llama-3-70B", hardware="4 x H100 80GB", note=_LIKE_PROMPTS, **_VLLM),
        *by_batch(_BATCHES, _QWEN, model="Qwen3-8B", hardware=_H100, note=_LIKE_PROMPTS, **_VLLM),
    ),
)
TREES = Table(
    "illusion-trees",
    "Chain against tree: speed-up by batch size of EAGLE-3 (Figure 2)",
    _SOURCE,
    f"{_READ}; acceptance from the text",
    (
        *by_batch(_BATCHES, _TREES, model="Qwen3-8B", hardware=_H100, engine="SGLang 0.5.9", **_GREEDY),
        *_accepted(3, 2.25, 0.415, "a chain"),
        *_accepted(21, 2.92, 0.095, "a tree with four branches"),
    ),
    "The two shapes use different attention kernels, so the tree's speed is not the shape's alone.",
)
REASONING = Table(
    "illusion-reasoning",
    "Speed-up on reasoning workloads: long outputs, small batches",
    _SOURCE,
    "tokens a second read off the figures, divided here",
    (
        *over_baseline(
            (8, 16),
            "780 1150",
            {("ngram", None): "1170 1790", ("eagle3", None): "1350 2080"},
            model="Qwen3-8B-Thinking",
            engine="vLLM 0.10.1 or 0.11.1",
            hardware=_H100,
            dataset="AIME 2022-24",
            temperature=0.0,
        ),
        *over_baseline(
            (8, 16),
            "920 1570",
            {("ngram", None): "1430 2420", ("eagle3", None): "1500 2620"},
            model="Qwen3-8B-Thinking",
            engine="vLLM 0.10.1 or 0.11.1",
            hardware=_H100,
            dataset="GPQA Main",
            temperature=0.0,
        ),
        *over_baseline(
            (1, 2, 4),
            "145 270 512",
            {("mtp", None): "258 408 620"},
            model="GLM-4.5-Air-106B",
            engine="vLLM 0.10.1 or 0.11.1",
            hardware="H100 80GB",
            dataset="AIME 2022-24",
            temperature=0.0,
        ),
    ),
)
