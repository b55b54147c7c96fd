"""Published tables that are shipped as data. Their numbers are facts with a source, not a reference to calibrate on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from specbench_api.errors import InvalidSpec, Problem
from specbench_client.documents.published import PublishedFigure, PublishedTable

_JSON = ".json"


def published_names() -> list[str]:
    """Return the names of the documents that are shipped for `specbench analyze audit`."""
    files = (file.name for file in resources.files(__package__).iterdir())
    return sorted(name.removesuffix(_JSON) for name in files if name.endswith(_JSON))


def published_text(name: str) -> str:
    """Return a shipped document as JSON for `audit.reading`. `name`: one of `published_names`."""
    return resources.files(__package__).joinpath(name + _JSON).read_text(encoding="utf-8")


# Figures 1 and 2 of "Speculative Decoding: Performance or Illusion?", and its reasoning workloads.

Values = Mapping[tuple[str, str, int | None], str]
"""Maps (dataset, method, draft tokens) to the values by batch size, written as `1.17 1.15 …`."""


@dataclass(frozen=True)
class ShippedTable:
    """A published table. `read`: how its numbers were obtained. `caution`: known faults."""

    name: str
    title: str
    source: str
    read: str
    figures: tuple[PublishedFigure, ...]
    caution: str = ""

    @property
    def listing(self) -> PublishedTable:
        """The table's entry in documents."""
        return PublishedTable(
            name=self.name,
            title=self.title,
            source=self.source,
            read=self.read,
            caution=self.caution,
            rows=len(self.figures),
        )


def by_batch(batches: Iterable[int], values: Values, **common: Any) -> list[PublishedFigure]:
    """Return the rows of a figure over batch sizes."""
    sizes = list(batches)
    return [
        PublishedFigure(dataset=dataset, method=method, draft_tokens=drafts, batch=batch, value=value, **common)
        for (dataset, method, drafts), text in values.items()
        for batch, value in zip(sizes, map(float, text.split()), strict=True)
    ]


def over_baseline(
    batches: Iterable[int | None], baseline: str, values: Mapping[tuple[str, int | None], str], **common: Any
) -> list[PublishedFigure]:
    """Return speed-ups computed from published tokens/s.

    `baseline`: tokens/s without a drafter by batch size. `values`: (method, draft tokens) → tokens/s by batch size.
    """
    rates = list(map(float, baseline.split()))
    sizes = list(batches)
    return [
        PublishedFigure(
            method=method,
            draft_tokens=drafts,
            batch=batch,
            figure="speedup",
            value=round(value / rate, 3),
            note=f"from {value:g} over {rate:g} tokens/s",
            **common,
        )
        for (method, drafts), text in values.items()
        for batch, rate, value in zip(sizes, rates, map(float, text.split()), strict=True)
    ]


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
    fields = {**where, "method": "eagle3", "draft_tokens": draft_tokens, "note": note}
    return [
        PublishedFigure.model_validate({**fields, "figure": "acceptance_length", "value": length}),
        PublishedFigure.model_validate({**fields, "figure": "acceptance_rate", "value": rate}),
    ]


BATCH = ShippedTable(
    "illusion-batch",
    "Speed-up by batch size, three targets, four prompt sets (Figure 1)",
    _SOURCE,
    f"{_READ}; draft tokens where the figure states them",
    (
        *by_batch(_BATCHES, _LLAMA_8B, model="Llama-3.1-8B", hardware=_H100, note=_LIKE_PROMPTS, **_VLLM),
        *by_batch(_BATCHES, _LLAMA_70B, model="Llama-3-70B", hardware="4 x H100 80GB", note=_LIKE_PROMPTS, **_VLLM),
        *by_batch(_BATCHES, _QWEN, model="Qwen3-8B", hardware=_H100, note=_LIKE_PROMPTS, **_VLLM),
    ),
)
TREES = ShippedTable(
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
REASONING = ShippedTable(
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


# Table 1 of SPEED-Bench: mean acceptance length and speed-up over the qualitative split, batch 32, three drafts.

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

SPEED_BENCH = ShippedTable(
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


# The tables of "Speculative Decoding Production Benchmark 2026", a blog post whose numbers contradict each other.

_WHERE: dict[str, Any] = {
    "model": "Llama-3.1-70B-Instruct",
    "engine": "vLLM 0.7.3",
    "hardware": "4 x A100 80GB",
    "dataset": "its own mix of 500 prompts",
}
_E2E = "a ratio of end-to-end times"
_PRINTED_METHODS = {
    "none": "none",
    "vanilla draft model": "draft_model",
    "Medusa-2": "medusa",
    "EAGLE-1": "eagle",
    "EAGLE-3": "eagle3",
    "prompt lookup": "ngram",
}
_PRINTED_FIGURES = {"accept rate": "acceptance_rate", "TPOT P50 (ms)": "tpot_ms_p50", "speedup": "speedup"}


def _production_figures() -> Iterator[PublishedFigure]:
    """Read the figures from the document that `specbench analyze audit` reads, whose cells are as they were printed."""
    for table in json.loads(published_text("production-benchmark"))["tables"]:
        for printed in table["rows"]:
            row = {**table["facts"], **printed}
            method = _PRINTED_METHODS[row["method"]]
            for heading, figure in _PRINTED_FIGURES.items():
                # The baseline's speed-up over itself is 1 by definition, so it is no published result.
                if row.get(heading) is not None and (method, figure) != ("none", "speedup"):
                    fields = {
                        **_WHERE,
                        "method": method,
                        "draft_tokens": int(row["k"]) if method == "eagle3" else None,
                        "batch": int(row["concurrency"]),
                        "temperature": float(row["temperature"]),
                        "figure": figure,
                        "value": float(row[heading]),
                        "note": _E2E if table["name"] == "concurrency" else "",
                    }
                    yield PublishedFigure.model_validate(fields)


PRODUCTION = ShippedTable(
    "production-benchmark",
    "Acceptance, TPOT and speed-up by method, concurrency, temperature and draft length",
    "Speculative Decoding Production Benchmark 2026, youngju.dev, 4 March 2026",
    "copied from the tables",
    tuple(_production_figures()),
    "It contradicts itself: its step takes longer with one draft than with three, its speed-up is of end-to-end times"
    " in one row and of TPOT in others, and vLLM 0.7.3 had no EAGLE-3. Do not calibrate on it.",
)


# Smaller published tables.

_SPEC_BENCH = (
    ("Vicuna-7B", "A100", "eagle", "2.10 3.58"),
    ("Vicuna-7B", "A100", "medusa", "1.71 2.31"),
    ("Vicuna-7B", "A100", "ngram", "1.66 1.75"),
    ("Vicuna-7B", "A100", "draft_model", "1.52 2.28"),
    ("Vicuna-7B", "A100", "lookahead", "1.34 1.64"),
)


def _pair(model: str, hardware: str, method: str, values: str) -> list[PublishedFigure]:
    speedup, length = map(float, values.split())
    where = {"model": model, "hardware": hardware, "method": method, "engine": "transformers (research code)"}
    fields = {**where, "dataset": "Spec-Bench", "batch": 1, "temperature": 0.0}
    return [
        PublishedFigure.model_validate({**fields, "figure": "speedup", "value": speedup}),
        PublishedFigure.model_validate({**fields, "figure": "acceptance_length", "value": length}),
    ]


SPEC_BENCH = ShippedTable(
    "spec-bench",
    "Overall speed-up and mean accepted tokens, Vicuna-7B",
    "Spec-Bench, leaderboard of github.com/hemingkx/Spec-Bench",
    "copied from the leaderboard; methods that specbench has no name for are left out",
    tuple(figure for row in _SPEC_BENCH for figure in _pair(*row)),
    "Research code without batching: see the finding ResearchRuntime for what that means.",
)
SGLANG = ShippedTable(
    "sglang-eagle",
    "Tokens a second of one stream on MT-Bench",
    "SGLang documentation, speculative decoding",
    "copied, divided here",
    tuple(
        over_baseline(
            (1,),
            "158.3",
            {("eagle", None): "244.1", ("eagle3", None): "373.3"},
            model="Llama-3.1-8B-Instruct",
            engine="SGLang",
            hardware="1 x H100 80GB",
            dataset="MT-Bench",
        )
    ),
    "The row named eagle is EAGLE-2.",
)


def _angel_slim(dataset: str, baseline: str, speed: str, length: float) -> list[PublishedFigure]:
    where = {"model": "Qwen3-8B", "engine": "vLLM", "hardware": "unknown", "dataset": dataset}
    rows = over_baseline((None,), baseline, {("eagle3", None): speed}, **where)
    fields = {**where, "method": "eagle3", "figure": "acceptance_length", "value": length}
    return [*rows, PublishedFigure.model_validate(fields)]


ANGEL_SLIM = ShippedTable(
    "angelslim",
    "EAGLE-3 heads for Qwen3-8B: tokens a second and acceptance length",
    "AngelSlim, github.com/Tencent/AngelSlim",
    "copied, divided here",
    (
        *_angel_slim("GSM8K", "149.6", "257.3", 2.00),
        *_angel_slim("HumanEval", "153.9", "244.9", 1.97),
        *_angel_slim("MT-Bench", "153.8", "258.2", 1.97),
    ),
)


def _arctic(dataset: str, baseline: str, values: dict[tuple[str, int | None], str]) -> list[PublishedFigure]:
    where = {"model": "unknown", "engine": "vLLM with ArcticInference", "hardware": "unknown", "dataset": dataset}
    return over_baseline((None,), baseline, values, **where)


ARCTIC = ShippedTable(
    "arctic",
    "Tokens a second with n-gram, EAGLE and suffix decoding",
    "ArcticInference, github.com/snowflakedb/ArcticInference",
    "copied, divided here; its own drafter with suffix decoding is left out",
    (
        *_arctic("ShareGPT", "76", {("ngram", None): "91", ("eagle", None): "102", ("suffix", None): "113"}),
        *_arctic("HumanEval", "77", {("ngram", None): "100", ("eagle", None): "112", ("suffix", None): "148"}),
        *_arctic("SWE-Bench", "76", {("ngram", None): "175", ("suffix", None): "286"}),
    ),
)


TABLES: dict[str, ShippedTable] = {
    table.name: table
    for table in (BATCH, TREES, REASONING, SPEED_BENCH, PRODUCTION, SPEC_BENCH, SGLANG, ANGEL_SLIM, ARCTIC)
}
ALL = "all"
LIST = "list"


def tables_named(name: str) -> list[ShippedTable]:
    """Return one table, or `all` of them. Raises InvalidSpec."""
    if name == ALL:
        return list(TABLES.values())
    if name not in TABLES:
        raise InvalidSpec(
            [Problem("--published", f"{name!r} is not a table", f"one of {', '.join([*TABLES, ALL, LIST])}")]
        )
    return [TABLES[name]]
