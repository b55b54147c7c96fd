"""Smaller published tables."""

from __future__ import annotations

from specbench_api.outcome.published import PublishedFigure
from specbench_client.analysis.published.table import Table, over_baseline

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
    told = {**where, "dataset": "Spec-Bench", "batch": 1, "temperature": 0.0}
    return [
        PublishedFigure.model_validate({**told, "figure": "speedup", "value": speedup}),
        PublishedFigure.model_validate({**told, "figure": "acceptance_length", "value": length}),
    ]


SPEC_BENCH = Table(
    "spec-bench",
    "Overall speed-up and mean accepted tokens, Vicuna-7B",
    "Spec-Bench, leaderboard of github.com/hemingkx/Spec-Bench",
    "copied from the leaderboard; methods that specbench has no name for are left out",
    tuple(figure for row in _SPEC_BENCH for figure in _pair(*row)),
    "Research code without batching: see the finding ResearchRuntime for what that means.",
)
SGLANG = Table(
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
    where = {"model": "Qwen3-8B", "engine": "vLLM", "hardware": "not told", "dataset": dataset}
    rows = over_baseline((None,), baseline, {("eagle3", None): speed}, **where)
    told = {**where, "method": "eagle3", "figure": "acceptance_length", "value": length}
    return [*rows, PublishedFigure.model_validate(told)]


ANGEL_SLIM = Table(
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
    where = {"model": "not told", "engine": "vLLM with ArcticInference", "hardware": "not told", "dataset": dataset}
    return over_baseline((None,), baseline, values, **where)


ARCTIC = Table(
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
