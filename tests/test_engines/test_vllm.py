"""vLLM on a CPU: the draft counts of requests, the counters and the reported results agree.

In float32, where greedy text is the same with every drafter. Each arm's engine takes about a minute to start.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench_api.launch.launcher import LaunchRequest, LaunchSpec
from specbench_api.launch.vllm import VllmLauncher
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.engine import Engine, EngineKind
from specbench_api.spec.model import Target
from specbench_client.cooperative_tasks import run_to_completion
from specbench_client.dialects.dialect import counter_difference
from specbench_client.dialects.registry import DIALECTS
from specbench_client.local.engine_process import EngineProcess
from specbench_testing.engine_witness import (
    Exchange,
    WitnessedLaunch,
    WitnessedStep,
    conditional_rate,
    joint_rate,
    steps_reaching,
    witnessed_command,
)
from specbench_testing.real_engine_run import (
    REUSE_PROMPTS,
    RealRun,
    check_judged_answers,
    compare_reuse_with_answers,
    launches_by_arm,
    reuse_spec,
    run_here,
)
from specbench_testing.transcripts import record_transcript

pytestmark = [pytest.mark.real, pytest.mark.timeout(3000)]
VERSION = "0.32.0"
START_S = 600
K = {"ngram": 4, "draft": 3, "scheduled": 3}
PROMPTS = (
    'Write the sentence "The quick brown fox jumps over the lazy dog." again and again.',
    "Repeat this exactly: one two three four five six seven eight nine ten eleven twelve thirteen fourteen.",
    "Write a short story about a lighthouse.",
)


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
        {"name": "scheduled", "method": "draft_model", "numSpeculativeTokens": K["scheduled"], "model": models["noisy"],
         "draftLengths": [{"batchSize": 1, "tokens": 3}, {"batchSize": 2, "tokens": 1}]},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run."""
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="module")
def run(demo_folders: dict[str, str], engine_python: str, folder: Path) -> RealRun:
    """One run over all arms, with two requests at a time. Its engines' answers are recorded."""
    engine = engine_of(engine_python)
    spec = {
        "model": {"name": "smol", "path": demo_folders["target"]},
        "engine": {**engine, "command": witnessed_command(folder / "witness", engine["command"])},
        "drafters": drafters_of(demo_folders),
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
    return run_here(folder, spec, PROMPTS, timeout_s=2900)


@pytest.fixture(scope="module")
def launches(run: RealRun, folder: Path) -> dict[str, WitnessedLaunch]:
    """What the engine of each arm answered itself."""
    return launches_by_arm(run, folder / "witness")


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


def steps_in(answer: Exchange) -> list[WitnessedStep]:
    """The steps of an answer that verified drafts, as the engine lists them."""
    block = answer.chunks[-1]["metrics"]["speculative_decoding"]
    pairs = zip(block.get("per_step_drafted", []), block.get("per_step_accepted", []), strict=True)
    return [WitnessedStep(drafted, accepted) for drafted, accepted in pairs]


def with_end(answer: Exchange, steps: list[WitnessedStep]) -> list[WitnessedStep]:
    """The steps with the accepted drafts that came after the end of an answer whose steps all verified drafts."""
    beyond = 1 + sum(step.accepted + 1 for step in steps) - answer.chunks[-1]["usage"]["completion_tokens"]
    assert 0 <= beyond <= steps[-1].accepted
    return [*steps[:-1], WitnessedStep(steps[-1].drafted, steps[-1].accepted, beyond)]


@pytest.mark.parametrize("arm", K)
def test_listed_steps_of_all_answers_equal_the_engines_counters(launches: dict[str, WitnessedLaunch], arm: str) -> None:
    launch = launches[arm]
    steps = [step for answer in launch.answers for step in steps_in(answer)]
    assert launch.counted("vllm:spec_decode_num_drafts_total") == len(steps) > 0
    assert launch.counted("vllm:spec_decode_num_draft_tokens_total") == sum(step.drafted for step in steps)
    assert launch.counted("vllm:spec_decode_num_accepted_tokens_total") == sum(step.accepted for step in steps)
    for position in range(1, K[arm] + 1):
        name, label = "vllm:spec_decode_num_accepted_tokens_per_pos_total", f'position="{position - 1}"'
        assert launch.counted(name, label) == steps_reaching(steps, position)


@pytest.mark.parametrize("arm", K)
def test_reported_acceptance_by_position_equals_the_engines_own_steps(
    run: RealRun, launches: dict[str, WitnessedLaunch], arm: str
) -> None:
    (point,) = run.points[arm]
    answers = launches[arm].answers_to(point.records.request_id[point.records.phase == "steady"])
    steps = [step for answer in answers for step in steps_in(answer)]
    assert {step.drafted for step in steps} == ({1, 3} if arm == "scheduled" else {K[arm]})
    (cell,) = [cell for cell in run.answer["cells"] if cell["arm"] == arm]
    figures = cell["figures"]
    for position in range(1, K[arm] + 1):
        reported = figures[f"conditional_position_acceptance_rate_{position}"]["value"]
        assert reported == pytest.approx(conditional_rate(steps, position))
    if arm == "ngram":
        return  # Nothing lists its steps without drafts, so the end of an answer is not known from its steps.
    delivered = [step.delivered for answer in answers for step in with_end(answer, steps_in(answer))]
    if arm == "draft":
        assert delivered != steps, "an answer ends within the accepted drafts of its last step"
    for position in range(1, K[arm] + 1):
        reported = figures[f"position_acceptance_rate_{position}"]["value"]
        assert reported == pytest.approx(joint_rate(delivered, position))


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


@pytest.mark.parametrize("arm", ["none", "ngram", "draft"])
async def test_the_draft_counts_of_a_request_equal_the_counter_differences(
    demo_folders: dict[str, str], engine_python: str, arm: str, tmp_path: Path
) -> None:
    dialect = DIALECTS[EngineKind.VLLM]
    async with EngineProcess(launch_of(demo_folders, engine_python, arm), tmp_path, tmp_path / "engine.log") as engine:
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


def test_reuse_by_depth_equals_the_cached_tokens_of_the_answers_and_the_counters(
    demo_folders: dict[str, str], engine_python: str, tmp_path: Path
) -> None:
    """One launch for each arm, with its cache emptied before each of two points."""
    engine = engine_of(engine_python)
    spec = reuse_spec(
        model={"name": "smol", "path": demo_folders["target"]},
        engine={
            **engine,
            "command": witnessed_command(tmp_path / "witness", engine["command"]),
            "args": ["--max-model-len=2048", *(one for one in engine["args"] if "model-len" not in one)],
        },
        drafters=[one for one in drafters_of(demo_folders) if one["name"] == "draft"],
        startupDeadlineSeconds=START_S,
    )
    run = run_here(tmp_path, spec, REUSE_PROMPTS, timeout_s=2900)
    points = compare_reuse_with_answers(run, tmp_path / "witness")
    assert len(points) == 4
    for witnessed in points.values():
        assert witnessed.launch.counted("vllm:prefix_cache_hits_total") == witnessed.point.total("cached_tokens")
        assert witnessed.launch.counted("vllm:prefix_cache_queries_total") == witnessed.point.total("input_tokens")
    assert not run.checks & {"PromptsSentAgain", "ReuseLost"}


def test_judged_answers_equal_a_second_reading_of_the_raw_answers(
    demo_folders: dict[str, str], engine_python: str, tmp_path: Path
) -> None:
    engine = engine_of(engine_python)
    fields = {
        "model": {"name": "smol", "path": demo_folders["target"]},
        "engine": {
            **engine,
            "command": witnessed_command(tmp_path / "witness", engine["command"]),
            "args": [
                *("--max-num-seqs=8", "--enable-auto-tool-choice", "--tool-call-parser=hermes"),
                *(one for one in engine["args"] if "num-seqs" not in one),
            ],
        },
        "drafters": [one for one in drafters_of(demo_folders) if one["name"] == "draft"],
        "startupDeadlineSeconds": START_S,
    }
    check_judged_answers(tmp_path, fields, timeout_s=2900, calls_tools=True)
