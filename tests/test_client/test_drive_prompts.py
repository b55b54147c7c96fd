"""Prompts that no arm, or not every arm, could hold are refused before anything is measured."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.plan.expansion import expand
from specbench_client.chat import ChatMessage
from specbench_client.drive.prompts import WorkloadPrompts, reject_too_long_prompts
from specbench_client.errors import BadInput
from specbench_client.workload.prompt_lengths import EncodingMissing
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.resources import run_of


class Words:
    """An encoding with a token a word."""

    def encode_ordinary(self, text: str) -> list[int]:
        return [0 for _ in text.split()]


def prompts(*lengths: int) -> dict[str, WorkloadPrompts]:
    rows = [Prompt(f"q{words}", None, ((ChatMessage("user", "word " * words),),)) for words in lengths]
    return {"chat": WorkloadPrompts(Prompts(tuple(rows), "f"))}


def refusal(engine: dict[str, Any], drafter: list[str] | None = None, *lengths: int) -> str:
    edits: dict[str, Any] = {"spec.engine": engine, "spec.workloads[0].output": {"maxTokens": 100}}
    edits["spec.load"] = {"concurrency": [4], "repeats": 1}
    if drafter is not None:
        edits["spec.drafters[0].args"] = drafter
    plan = expand(run_of(edits))
    try:
        reject_too_long_prompts(plan, prompts(*lengths), Words)
    except BadInput as refused:
        return str(refused)
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
def test_a_prompt_that_leaves_no_room_for_its_answer_is_refused_with_what_to_do(engine: dict[str, Any]) -> None:
    assert refusal(engine, None, 900) == "fits"
    assert refusal(engine, None, 900, 901, 950) == (
        "workload 'chat': 2 of 3 prompts are too long for the context of 1000 tokens of the arm 'none' with"
        " output.maxTokens 100: q901, q950; the longest has 950 (o200k_base): set dataset.inputTokens: {max: 836} to"
        " drop them on every arm, or raise the context length, or lower output.maxTokens"
    )


def test_an_engine_that_cuts_answers_refuses_no_prompt_that_it_can_read() -> None:
    engine = {"kind": "llama-cpp", "args": ["--ctx-size=4000"]}  # for four slots
    assert refusal(engine, None, 999) == "fits"
    assert "1 of 2 prompts are too long for the context of 1000 tokens of the arm 'none': q1000;" in refusal(
        engine, None, 999, 1000
    )


def test_the_narrowest_arm_counts_for_all() -> None:
    said = refusal({"kind": "simulator"}, ["--max-model-len=500"], 450)
    assert "too long for the context of 500 tokens of the arm 'ngram'" in said


@pytest.mark.parametrize(
    "engine", [{"kind": "vllm"}, {"kind": "llama-cpp", "args": ["--ctx-size=4000", "--kv-unified"]}]
)
def test_where_no_length_is_declared_nothing_is_said(engine: dict[str, Any]) -> None:
    assert refusal(engine, None, 3000) == "fits"


def test_where_tokens_cannot_be_counted_nothing_is_said() -> None:
    def missing() -> Words:
        raise EncodingMissing("no table")

    plan = expand(run_of({"spec.engine": VLLM, "spec.workloads[0].output": {"maxTokens": 100}}))
    reject_too_long_prompts(plan, prompts(5000), missing)


def test_where_the_client_makes_the_tokens_they_are_counted_and_no_other() -> None:
    def never() -> Words:
        raise AssertionError("nothing is to be estimated")

    plan = expand(run_of({"spec.engine": VLLM, "spec.workloads[0].output": {"maxTokens": 100}}))
    rows = prompts(1, 2)["chat"].prompts
    reject_too_long_prompts(plan, {"chat": WorkloadPrompts(rows, None, {"q1": 899, "q2": 900})}, never)
    with pytest.raises(BadInput, match=r"1 of 2 prompts .*: q2; the longest has 901 \(the model's own tokens\)"):
        reject_too_long_prompts(plan, {"chat": WorkloadPrompts(rows, None, {"q1": 899, "q2": 901})}, never)
