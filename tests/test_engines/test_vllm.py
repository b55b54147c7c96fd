"""vLLM on a CPU: the draft counts of requests, the counters and the reported results agree.

In float32, where greedy text is the same with every drafter. Each arm's engine takes about a minute to start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench_api.launch.launcher import LaunchRequest, LaunchSpec
from specbench_api.launch.vllm import VllmLauncher
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.model import Target
from specbench_client.dialects.dialect import counter_difference
from specbench_client.dialects.registry import DIALECTS
from specbench_client.local.engine_process import EngineProcess
from specbench_client.sliced_tasks import run_to_completion
from specbench_testing.real_engine_run import RealRun, run_here
from specbench_testing.transcripts import record_transcript

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
VERSION = "0.32.0"
START_S = 600
K = {"ngram": 4, "draft": 3}
PROMPTS = (
    'Write the sentence "The quick brown fox jumps over the lazy dog." again and again.',
    "Repeat this exactly: one two three four five six seven eight nine ten eleven twelve thirteen fourteen.",
    "Write a short story about a lighthouse.",
)


@pytest.fixture(scope="module")
def models(engine_python: str) -> dict[str, str]:
    """The demo's model as Hugging Face folders, made once per machine."""
    made = _json([sys.executable, str(ROOT / "hack" / "models" / "demo_model")])
    script = str(Path(__file__).with_name("demo_models.py"))
    return _json([engine_python, script, made["drafter"], str(Path(made["drafter"]).parent / "hf")])


def _json(command: list[str]) -> dict[str, str]:
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, str] = json.loads(made.stdout)
    return found


def engine_of(python: str) -> dict[str, Any]:
    """`spec.engine`: the environment's own program with limits for a shared machine."""
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    return {
        "kind": "vllm",
        "version": VERSION,
        "command": [str(Path(python).with_name("vllm")), "serve"],
        "args": ["--dtype=float32", "--max-model-len=1024", "--max-num-seqs=4", "--enforce-eager"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }


def drafters_of(models: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": "ngram", "method": "ngram", "numSpeculativeTokens": K["ngram"], "promptLookupMin": 2,
         "promptLookupMax": 5},
        {"name": "draft", "method": "draft_model", "numSpeculativeTokens": K["draft"], "model": models["noisy"]},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run(models: dict[str, str], engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> RealRun:
    """One run over all arms, with two requests at a time."""
    spec = {
        "model": {"name": "smol", "path": models["target"]},
        "engine": engine_of(engine_python),
        "drafters": drafters_of(models),
        "workloads": [
            {
                "name": "mixed",
                "dataset": {"source": "jsonl", "uri": "prompts.jsonl"},
                "output": {"maxTokens": 40, "ignoreEos": True},
            }
        ],
        "load": {"concurrency": [2], "repeats": 1, "warmupRequests": 1},
        "startupDeadlineSeconds": START_S,
    }
    return run_here(tmp_path_factory.mktemp("vllm"), spec, PROMPTS, timeout_s=1700)


@pytest.mark.parametrize("arm", ["none", *K])
def test_the_records_of_an_arm_match_the_engines_counters(run: RealRun, arm: str) -> None:
    (point,) = run.points[arm]
    assert point.records.error_class.isna().all()
    assert point.counters.output_tokens == point.total("output_tokens") == point.total("output_tokens_client")
    assert point.counters.prompt_tokens == point.total("input_tokens")
    if arm == "none":
        assert point.records.drafted_tokens.isna().all()
        return
    assert point.counters.draft_steps == point.total("draft_steps")
    assert point.counters.drafted_tokens == point.total("drafted_tokens")
    # vLLM counts drafts that it accepted beyond the answer's end; the records do not.
    beyond = (point.counters.accepted_tokens or 0) - point.total("accepted_tokens")
    assert 0 <= beyond <= K[arm] * len(point.records)


@pytest.mark.parametrize("arm", K)
def test_the_reported_acceptance_rate_matches_the_records(run: RealRun, arm: str) -> None:
    (cell,) = [cell for cell in run.answer["cells"] if cell["arm"] == arm]
    (point,) = run.points[arm]
    steady = point.records[point.records.phase == "steady"]
    rate = cell["figures"]["acceptance_rate"]["value"]
    assert rate == pytest.approx(steady.accepted_tokens.sum() / steady.drafted_tokens.sum())
    assert 0 < rate < 1


def test_drafters_do_not_change_the_text(run: RealRun) -> None:
    texts = {
        arm: point.records.drop_duplicates("prompt_id").set_index("prompt_id").output_sha256
        for arm, (point,) in run.points.items()
    }
    for arm in K:
        same = texts["none"].index.intersection(texts[arm].index)
        assert len(same) >= len(PROMPTS)
        assert texts["none"][same].tolist() == texts[arm][same].tolist(), arm


def test_no_finding_makes_the_run_invalid(run: RealRun) -> None:
    invalid = [finding for finding in run.answer["findings"] if finding["severity"] == "Invalid"]
    assert invalid == []
    assert "AcceptanceCounterMismatch" not in run.checks


@pytest.mark.parametrize("arm", ["none", *K])
async def test_the_draft_counts_of_a_request_equal_the_counter_differences(
    models: dict[str, str], engine_python: str, arm: str, tmp_path: Path
) -> None:
    dialect = DIALECTS[EngineKind.VLLM]
    async with EngineProcess(launch_of(models, engine_python, arm), tmp_path, tmp_path / "engine.log") as engine:
        await engine.wait_ready(START_S)
        for number, prompt in enumerate(PROMPTS):
            body = {"model": "smol", "messages": [{"role": "user", "content": prompt}], "max_tokens": 40,
                    "temperature": 0, "ignore_eos": True, "stream": True,
                    "stream_options": {"include_usage": True, "continuous_usage_stats": True}}  # fmt: skip
            drafting = arm != "none"
            transcript = await record_transcript(engine.url, f"vllm-{VERSION}", "vllm", body, drafting=drafting)
            transcript.keep(f"{arm}-{number}")
            counted = counter_difference(
                dialect.counters(transcript.metrics_before), dialect.counters(transcript.metrics_after)
            )
            answer = run_to_completion(dialect.read(transcript.events, drafting=drafting))
            assert answer.output_tokens == answer.output_tokens_client == counted.output_tokens == 40
            if drafting:
                block = answer_block(transcript.data)
                assert block["num_spec_steps"] == counted.draft_steps
                assert block["num_draft_tokens"] == counted.drafted_tokens
                assert block["num_accepted_draft_tokens"] == counted.accepted_tokens


def launch_of(models: dict[str, str], python: str, arm: str) -> LaunchSpec:
    engine = Engine.model_validate(engine_of(python))
    rows = {row["name"]: Drafter.model_validate(row) for row in drafters_of(models)}
    order = LaunchRequest(engine, Target(name="smol", path=models["target"]), rows.get(arm), slots=2)
    assert VllmLauncher().problems(order) == []
    return VllmLauncher().launch(order)


def answer_block(data: list[str]) -> dict[str, Any]:
    """The draft counts in the last chunk of a response."""
    block: dict[str, Any] = json.loads(data[-2])["metrics"]["speculative_decoding"]
    return block
