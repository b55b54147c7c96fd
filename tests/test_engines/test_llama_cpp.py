"""llama.cpp's server: reuse of its prompt caches by depth, and judged answers, agree with its raw answers."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from specbench_testing.engine_witness import witnessed_command
from specbench_testing.real_engine_run import (
    REUSE_PROMPTS,
    compare_judged_with_answers,
    compare_reuse_with_answers,
    reuse_spec,
    run_here,
)
from specbench_testing.shared_files import shared_file

pytestmark = [pytest.mark.real, pytest.mark.timeout(3000)]


def engine_of(folder: Path, context: int) -> dict[str, Any]:
    """`spec.engine`: the server of the prebuilt wheel, whose answers are recorded in this folder."""
    server = [sys.executable, "-m", "specbench_client.local.llama_server"]
    args = ["--threads", "1", "--ctx-size", str(context)]
    return {"kind": "llama-cpp", "command": witnessed_command(folder / "witness", server), "args": args}


def drafters_of(models: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 4},
        {"name": "draft", "method": "draft_model", "model": models["drafter"], "numSpeculativeTokens": 3},
    ]


def test_reuse_by_depth_equals_the_cached_tokens_of_the_answers_the_counters_and_the_log(
    demo_models: dict[str, str], tmp_path: Path
) -> None:
    """Each point has a launch of its own. A cache belongs to a slot, so both slots compute the system prompt."""
    spec = reuse_spec(
        model={"name": "smol", "path": demo_models["target"]},
        engine=engine_of(tmp_path, 4096),
        drafters=drafters_of(demo_models),
        startupDeadlineSeconds=240,
    )
    run = run_here(tmp_path, spec, REUSE_PROMPTS, timeout_s=2900)
    points = compare_reuse_with_answers(run, tmp_path / "witness")
    assert len(points) == 6
    for (workload, _), witnessed in points.items():
        launch, answers = witnessed.launch, witnessed.launch.answers
        computed = [prompt - cached for cached, prompt in (answer.prompt_tokens for answer in answers)]
        assert launch.counted("llamacpp:prompt_tokens_total") == sum(computed)
        assert launch.counted("llamacpp:prompt_tokens_cached_total") == witnessed.point.total("cached_tokens")
        logged = re.findall(r"prompt eval time = .*?/ *(\d+) tokens", launch.log)
        assert Counter(map(str, computed)) <= Counter(logged)
        assert sum(tokens > 1000 for tokens in computed) == (2 if workload == "assistant" else 0)
    assert not run.checks & {"PromptsSentAgain", "ReuseLost"}


THINGS = ("Describe an apple as JSON.", "Describe a lemon as JSON.", "Describe a carrot as JSON.")
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "maxLength": 12}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


def is_thing(text: str, _: str) -> bool:
    """Whether an answer matches SCHEMA."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    if not isinstance(found, dict) or set(found) != {"colour", "count"}:
        return False
    colour, count = found["colour"], found["count"]
    return isinstance(colour, str) and len(colour) <= 12 and type(count) is int


def test_judged_answers_equal_a_second_reading_of_the_raw_answers(demo_models: dict[str, str], tmp_path: Path) -> None:
    """The model is too small for GSM8K, and is stopped after a sentence: both arms must fail on the same questions."""
    rows = shared_file("data", "gsm8k_test.jsonl").read_text().splitlines()[:3]
    (tmp_path / "gsm8k.jsonl").write_text("\n".join(rows) + "\n")
    expected = {f"line-{number}": json.loads(row)["answer"].split("#### ")[1] for number, row in enumerate(rows, 1)}

    def is_solved(text: str, prompt_id: str) -> bool:
        marked = re.findall(r"####\s*\$?([\d,]+)(?![\s\S]*####)", text) or re.findall(r"\d[\d,]*", text)
        return bool(marked) and marked[-1].strip(",").replace(",", "") == expected[prompt_id].replace(",", "")

    things = {"source": "jsonl", "uri": "prompts.jsonl"}
    questions = {"source": "gsm8k", "uri": "gsm8k.jsonl"}
    spec = {
        "model": {"name": "smol", "path": demo_models["target"]},
        "engine": engine_of(tmp_path, 4096),
        "drafters": drafters_of(demo_models)[1:],
        "workloads": [
            {"name": "json", "dataset": things, "output": {"maxTokens": 32}, "answers": {"jsonSchema": SCHEMA}},
            {
                "name": "gsm8k",
                "dataset": questions,
                "output": {"maxTokens": 40},
                "extraBody": {"stop": ["."]},
                "answers": {"expected": {"match": "Number"}},
            },
        ],
        "load": {"concurrency": [1, 8], "repeats": 2, "warmupRequests": 0},
        "startupDeadlineSeconds": 240,
    }
    run = run_here(tmp_path, spec, THINGS, timeout_s=2900)
    judged = compare_judged_with_answers(run, tmp_path / "witness", {"json": is_thing, "gsm8k": is_solved})
    assert {key[0] for key in judged} == {"json", "gsm8k"}
    for (workload, streams), counted in judged.items():
        if workload == "json":
            assert (counted["flawed"], counted["baselineFlawed"]) == (0, 0)
        else:
            assert 0 < counted["flaws"]["WrongAnswer"] <= counted["flawed"]
        if streams == 1:
            assert (counted["onlyArm"], counted["onlyBaseline"], counted["control"]) == (0, 0, 0)
    assert "AnswersWorse" not in run.checks
