"""Prompts too long for an arm's context are rejected before measuring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_api.plan.expansion import expand
from specbench_client.chat import ChatMessage
from specbench_client.drive.prompts import WorkloadPrompts, load_workload_prompts, reject_too_long_prompts
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_lengths import EncodingMissing
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.resources import run_of


class WordEncoding:
    """An encoding with one token per word."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [0 for _ in text.split()]


def prompts(*lengths: int) -> dict[str, WorkloadPrompts]:
    rows = [Prompt(f"q{words}", None, ((ChatMessage("user", "word " * words),),)) for words in lengths]
    return {"chat": WorkloadPrompts(Prompts(tuple(rows), "f"))}


def rejection_message(engine: dict[str, Any], drafter: list[str] | None = None, *lengths: int) -> str:
    edits: dict[str, Any] = {"spec.engine": engine, "spec.workloads[0].output": {"maxTokens": 100}}
    edits["spec.load"] = {"concurrency": [4], "repeats": 1}
    if drafter is not None:
        edits["spec.drafters[0].args"] = drafter
    plan = expand(run_of(edits))
    try:
        reject_too_long_prompts(plan, prompts(*lengths), WordEncoding)
    except BadInput as rejection:
        return str(rejection)
    return "fits"


VLLM = {"kind": "vllm", "args": ["--max-model-len=1000"]}


@pytest.mark.parametrize(
    "engine",
    [
        VLLM,
        {"kind": "vllm", "args": ["--max-model-len", "1000"]},
        {"kind": "sglang", "args": ["--context-length=1000"]},
        {"kind": "simulator", "args": ["--max-model-len=1000"]},
    ],
)
def test_prompt_without_room_for_its_answer_is_rejected_with_a_remedy(engine: dict[str, Any]) -> None:
    assert rejection_message(engine, None, 900) == "fits"
    assert rejection_message(engine, None, 900, 901, 950) == (
        "workload 'chat': 2 of 3 prompts are too long for the context of 1000 tokens of the arm 'none' with"
        " output.maxTokens 100: q901, q950; the longest has 950 (o200k_base): set dataset.inputTokens: {max: 836} to"
        " drop them on every arm, or raise the context length, or lower output.maxTokens"
    )


def test_engine_that_truncates_answers_rejects_only_prompts_above_its_context() -> None:
    engine = {"kind": "llama-cpp", "args": ["--ctx-size=4000"]}  # shared by four slots
    assert rejection_message(engine, None, 999) == "fits"
    assert "1 of 2 prompts are too long for the context of 1000 tokens of the arm 'none': q1000;" in rejection_message(
        engine, None, 999, 1000
    )


def test_smallest_context_of_all_arms_is_the_limit() -> None:
    message = rejection_message({"kind": "simulator"}, ["--max-model-len=500"], 450)
    assert "too long for the context of 500 tokens of the arm 'ngram'" in message


@pytest.mark.parametrize(
    "engine", [{"kind": "vllm"}, {"kind": "llama-cpp", "args": ["--ctx-size=4000", "--kv-unified"]}]
)
def test_prompts_are_not_checked_without_a_declared_context_length(engine: dict[str, Any]) -> None:
    assert rejection_message(engine, None, 3000) == "fits"


def test_prompts_are_not_checked_if_tokens_cannot_be_counted() -> None:
    def missing() -> WordEncoding:
        raise EncodingMissing("no table")

    plan = expand(run_of({"spec.engine": VLLM, "spec.workloads[0].output": {"maxTokens": 100}}))
    reject_too_long_prompts(plan, prompts(5000), missing)


def test_client_side_token_counts_are_used_if_available() -> None:
    def never() -> WordEncoding:
        raise AssertionError("no token count must be estimated")

    plan = expand(run_of({"spec.engine": VLLM, "spec.workloads[0].output": {"maxTokens": 100}}))
    rows = prompts(1, 2)["chat"].prompts
    reject_too_long_prompts(plan, {"chat": WorkloadPrompts(rows, None, {"q1": 899, "q2": 900})}, never)
    with pytest.raises(BadInput, match=r"1 of 2 prompts .*: q2; the longest has 901 \(the model's own tokens\)"):
        reject_too_long_prompts(plan, {"chat": WorkloadPrompts(rows, None, {"q1": 899, "q2": 901})}, never)


def test_longer_recorded_answers_than_the_workload_allows_are_rejected(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 9, "output_length": length, "hash_ids": [1]} for length in (20, 31, 31)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = {"spec.workloads[0].dataset": {"source": "mooncake", "uri": "t.jsonl"}}
    plan, fitting = (
        expand(run_of({**trace, "spec.workloads[0].output": {"maxTokens": tokens}})) for tokens in (30, 31)
    )
    assert load_workload_prompts(fitting, ["chat"], tmp_path)
    message = (
        "2 of 3 answers are to be longer than output.maxTokens 30, the first in line-2: set output.maxTokens to 31"
    )
    with pytest.raises(BadInput, match=message):
        load_workload_prompts(plan, ["chat"], tmp_path)
