"""llama.cpp's server with prompt caches as served: reuse by depth agrees with its answers, counters and log."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from specbench_testing.engine_witness import witnessed_command
from specbench_testing.real_engine_run import REUSE_PROMPTS, compare_reuse_with_answers, reuse_spec, run_here

pytestmark = [pytest.mark.real, pytest.mark.timeout(3000)]


def test_reuse_by_depth_equals_the_cached_tokens_of_the_answers_the_counters_and_the_log(
    demo_models: dict[str, str], tmp_path: Path
) -> None:
    """Each point has a launch of its own. A cache belongs to a slot, so both slots compute the system prompt."""
    server = [sys.executable, "-m", "specbench_client.local.llama_server"]
    spec = reuse_spec(
        model={"name": "smol", "path": demo_models["target"]},
        engine={
            "kind": "llama-cpp",
            "command": witnessed_command(tmp_path / "witness", server),
            "args": ["--threads", "1", "--ctx-size", "4096"],
        },
        drafters=[
            {"name": "ngram", "method": "ngram", "numSpeculativeTokens": 4},
            {"name": "draft", "method": "draft_model", "model": demo_models["drafter"], "numSpeculativeTokens": 3},
        ],
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
