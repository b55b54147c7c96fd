"""llama.cpp's server: reuse of its prompt caches by depth, and judged answers, agree with its raw answers."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from specbench_testing.engine_witness import witnessed_command
from specbench_testing.real_engine_run import (
    REUSE_PROMPTS,
    check_judged_answers,
    compare_reuse_with_answers,
    reuse_spec,
    run_here,
)

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


def test_judged_answers_equal_a_second_reading_of_the_raw_answers(demo_models: dict[str, str], tmp_path: Path) -> None:
    fields = {
        "model": {"name": "smol", "path": demo_models["target"]},
        "engine": engine_of(tmp_path, 4096),
        "drafters": drafters_of(demo_models)[1:],
        "startupDeadlineSeconds": 240,
    }
    # This build ignores tools if the model's chat template has none, without an error, whatever `tool_choice` says.
    check_judged_answers(tmp_path, fields, timeout_s=2900, calls_tools=False)
