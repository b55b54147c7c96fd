"""The research runtime with torch, transformers and tiny models, through the real client."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from specbench_api.launch.launcher import LaunchRequest, LaunchSpec
from specbench_api.launch.transformers import PROGRAM, TransformersLauncher
from specbench_api.spec.drafter import Drafter, Method
from specbench_api.spec.engine import Engine, EngineKind, EnvVar
from specbench_api.spec.model import Target
from specbench_api.spec.workload import Output, Sampling
from specbench_client.dialects.engine_facts import pages_of, read_facts
from specbench_client.dialects.registry import DIALECTS
from specbench_client.documents.record import AcceptanceSource, Record
from specbench_client.documents.summary import CounterDeltas
from specbench_client.errors import EngineFailed
from specbench_client.local.engine_process import EngineProcess
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.http_transport import KernelTransport
from specbench_testing.conversation_turns import context, row
from specbench_testing.load_loops import DrivenEngine
from specbench_testing.real_engine_run import run_here
from specbench_testing.transcripts import record_transcript

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
DIALECT = DIALECTS[EngineKind.TRANSFORMERS]
START_S = 120
K = {"none": 0, "ngram": 5, "noisy": 3, "shallow": 4, "same": 3, "medusa": 3}
TOO_MANY = 4
"""More drafts than Medusa heads."""
ARMS = [name for name in K if name != "none"]
OUTPUTS = {"cut": Output(max_tokens=33, ignore_eos=True), "ended": Output(max_tokens=160)}
ROWS = [
    row("fox", "the quick brown fox", "how many tokens are there"),
    row("again", "say the same thing again and again and"),
    row("odd", "one two three 😀"),
]


def drafter_of(tiny: dict[str, str], arm: str) -> Drafter | None:
    models = {"noisy": tiny["noisy"], "shallow": tiny["shallow"], "same": tiny["target"], "medusa": tiny["heads"],
              "too-many": tiny["heads"]}  # fmt: skip
    methods = {"ngram": Method.NGRAM, "medusa": Method.MEDUSA, "too-many": Method.MEDUSA}
    if arm == "none":
        return None
    method = methods.get(arm, Method.DRAFT_MODEL)
    return Drafter(name=arm, method=method, model=models.get(arm), num_speculative_tokens=K.get(arm, TOO_MANY))


def launch_of(tiny: dict[str, str], arm: str, python: str, path: str, *args: str) -> LaunchSpec:
    engine = Engine(
        kind=EngineKind.TRANSFORMERS,
        command=[python, *PROGRAM[1:]],
        env=[EnvVar(name="PYTHONPATH", value=path), EnvVar(name="HF_HUB_OFFLINE", value="1")],
        args=["--threads=1", "--dtype=float32", *args],
    )
    order = LaunchRequest(engine, Target(name="tiny", path=tiny["target"]), drafter_of(tiny, arm), slots=1)
    assert TransformersLauncher().problems(order) == []
    return TransformersLauncher().launch(order)


@asynccontextmanager
async def serving(launch: LaunchSpec, folder: Path) -> AsyncIterator[EngineProcess]:
    async with EngineProcess(launch, folder, folder / "engine.log") as process:
        await process.wait_ready(START_S)
        yield process


async def drive(url: str, arm: str, output: Output, sampling: Sampling) -> tuple[list[Record], CounterDeltas]:
    """Send all rows; return their records and the differences of the engine's counters."""
    async with KernelTransport() as transport, ControlClient(url) as control:
        changed = {"model": "tiny", "drafting": arm != "none", "output": output, "sampling": sampling}
        engine = DrivenEngine(context(transport, url, EngineKind.TRANSFORMERS, **changed), control)
        records, counted = await engine.counted_drive(ROWS, 1)
        assert await engine.speculating() is (arm != "none")
    assert [record.error for record in records if record.error] == []
    return records, counted


DRAFTERS = {"none": (0, None), "ngram": (0, None), "noisy": (460_032, 320), "medusa": (295_680, None)}
"""Bytes of an arm's drafter, and its vocabulary size if it has its own."""


@pytest.mark.parametrize("arm", DRAFTERS)
async def test_the_runtime_reports_the_facts_of_its_models(
    arm: str, tiny: dict[str, str], engine_python: str, specbench_path: str, tmp_path: Path
) -> None:
    launch = launch_of(tiny, arm, engine_python, specbench_path)
    async with serving(launch, tmp_path) as engine, ControlClient(engine.url) as control:
        facts = read_facts(DIALECT.readings, await control.documents(pages_of(DIALECT.readings)))
    values = {name.value: fact.value for name, fact in facts.items()}
    assert (values["drafter_weights_bytes"], values["drafter_vocabulary"]) == DRAFTERS[arm]
    assert values["weights_bytes"] == 460_032
    assert values["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 4, "key and value, layers, heads, width, bytes of a float32"
    assert (values["dtype"], values["quantization"], values["max_model_len"]) == ("float32", "none", 512)
    assert values["torch"]
    assert values["gpu"] is None, "this environment computes on the CPU"


Responses = dict[str, dict[str, tuple[list[Record], CounterDeltas]]]


@pytest.fixture(scope="module")
async def responses(
    tiny: dict[str, str], engine_python: str, specbench_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Responses:
    """The responses of every arm to every kind of request; each engine is started once."""
    ways = {name: (output, Sampling(temperature=0)) for name, output in OUTPUTS.items()}
    ways |= {name: (OUTPUTS["cut"], Sampling(temperature=1.5, top_p=0.9, seed=7)) for name in ("drawn", "drawn-again")}
    found: Responses = {}
    for arm in K:
        launch = launch_of(tiny, arm, engine_python, specbench_path)
        async with serving(launch, tmp_path_factory.mktemp(arm)) as engine:
            found[arm] = {way: await drive(engine.url, arm, *how) for way, how in ways.items()}
    return found


@pytest.mark.parametrize("way", ["cut", "ended", "drawn"])
@pytest.mark.parametrize("arm", K)
def test_token_counts_add_up_to_the_engines_counters(responses: Responses, arm: str, way: str) -> None:
    records, counted = responses[arm][way]
    assert len(records) == len(ROWS) + 1
    assert counted.output_tokens == sum(record.output_tokens or 0 for record in records)
    assert counted.prompt_tokens == sum(record.input_tokens or 0 for record in records)
    for record in records:
        assert record.output_tokens == record.output_tokens_client
        assert record.cached_tokens == 0
    if arm == "none":
        assert {record.drafted_tokens for record in records} == {None}
        return
    assert counted.draft_steps == sum(record.draft_steps or 0 for record in records)
    assert counted.drafted_tokens == sum(record.drafted_tokens or 0 for record in records)
    assert counted.accepted_tokens == sum(record.accepted_tokens or 0 for record in records)
    for record in records:
        assert record.acceptance_source == AcceptanceSource.PER_STEP
        assert record.output_tokens == 1 + (record.steps or 0) + (record.accepted_tokens or 0)
        assert record.step_accepted is not None
        assert max(record.step_accepted, default=0) <= K[arm]
        assert record.chunk_tokens is not None
        assert record.chunk_tokens[0] == 1, "the prefill verifies no drafts"


@pytest.mark.parametrize("way", OUTPUTS)
@pytest.mark.parametrize("arm", ARMS)
def test_greedy_text_equals_the_baseline_with_every_drafter(responses: Responses, arm: str, way: str) -> None:
    texts = [
        {(record.prompt_id, record.turn): (record.output_sha256, record.output_tokens) for record in records}
        for records, _ in (responses["none"][way], responses[arm][way])
    ]
    assert texts[0] == texts[1]


def test_an_answer_ends_at_the_models_end_token(responses: Responses) -> None:
    assert {record.finish_reason for record in responses["none"]["cut"][0]} == {"length"}
    assert "stop" in {record.finish_reason for record in responses["none"]["ended"][0]}


def test_identical_weights_accept_all_drafts_and_others_some(responses: Responses) -> None:
    rates = {}
    for arm in ARMS:
        counted = responses[arm]["cut"][1]
        rates[arm] = (counted.accepted_tokens or 0) / (counted.drafted_tokens or 1)
    assert rates["same"] == 1
    for arm in ("ngram", "noisy", "medusa"):
        assert 0 < rates[arm] < 1, rates
    assert 0 < rates["shallow"] <= 1


@pytest.mark.parametrize("arm", K)
def test_a_seed_reproduces_the_text_and_differs_from_greedy(responses: Responses, arm: str) -> None:
    drawn, again, greedy = (
        Counter(record.output_sha256 for record in responses[arm][way][0]) for way in ("drawn", "drawn-again", "cut")
    )
    assert drawn == again
    assert drawn != greedy


@pytest.mark.parametrize(
    ("role", "path", "arm", "expected"),
    [
        ("noisy", "{strange}", "noisy", r"(?s)ended with 2.*its vocabulary has \d+ tokens and the target.s \d+"),
        ("target", "{empty}", "none", r"(?s)ended with 2.*--model \S+/empty: "),
        ("heads", "{heads}", "too-many", r"it has 3 heads: --num-speculative-tokens 4 is too many"),
    ],
)
async def test_models_that_cannot_be_used_are_refused_at_startup(
    *, role: str, path: str, arm: str, expected: str, tiny: dict[str, str], engine_python: str, specbench_path: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "empty").mkdir()
    models = {**tiny, role: path.format(**tiny, empty=tmp_path / "empty")}
    with pytest.raises(EngineFailed, match=expected):
        async with serving(launch_of(models, arm, engine_python, specbench_path), tmp_path):
            pass


async def test_a_prompt_that_exceeds_the_context_is_refused(
    tiny: dict[str, str], engine_python: str, specbench_path: str, tmp_path: Path
) -> None:
    launch = launch_of(tiny, "none", engine_python, specbench_path, "--max-model-len=64")
    request: dict[str, Any] = {"prompt": "word " * 99, "max_tokens": 4}
    async with (
        serving(launch, tmp_path) as engine,
        aiohttp.ClientSession(engine.url) as session,
        session.post("/v1/completions", json=request) as answer,
    ):
        assert answer.status == 400
        assert "maximum context length is 64" in (await answer.json())["error"]["message"]


def test_a_command_line_run_matches_the_counters_and_names_the_research_runtime(
    tiny: dict[str, str], engine_python: str, specbench_path: str, tmp_path: Path
) -> None:
    launch = launch_of(tiny, "none", engine_python, specbench_path)
    drafters = [drafter_of(tiny, arm) for arm in ("noisy", "medusa")]
    spec = {
        "model": {"name": "tiny", "path": tiny["target"]},
        "engine": {
            "kind": "transformers",
            "command": list(launch.command or ()),
            "env": [{"name": name, "value": value} for name, value in launch.env.items()],
            "args": ["--threads=1", "--dtype=float32"],
        },
        "drafters": [one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in drafters if one],
        "workloads": [
            {"name": "mixed", "dataset": {"source": "jsonl", "uri": "prompts.jsonl"}, "output": {"maxTokens": 24}}
        ],
        "load": {"concurrency": [1], "repeats": 1, "warmupRequests": 1},
    }
    run = run_here(tmp_path, spec, [one.turns[0][0].content or "" for one in ROWS], timeout_s=300)
    for arm, (point,) in run.points.items():
        assert point.records.error_class.isna().all()
        assert point.counters.output_tokens == point.total("output_tokens")
        if arm != "none":
            assert point.counters.drafted_tokens == point.total("drafted_tokens") > 0
            assert point.counters.accepted_tokens == point.total("accepted_tokens") > 0
    assert set(run.points) == {"none", "noisy", "medusa"}
    assert run.answer["headline"].startswith("On a research runtime: ")
    assert "ResearchRuntime" in run.checks
    assert not {"AcceptanceCounterMismatch", "GreedyDivergence", "TokenCountMismatch"} & run.checks


@pytest.mark.parametrize("arm", ["none", "ngram", "noisy", "medusa"])
async def test_a_recorded_stream_has_usage_and_draft_metrics(
    tiny: dict[str, str], engine_python: str, specbench_path: str, arm: str, tmp_path: Path
) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "the quick brown fox"}], "max_tokens": 24,
            "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}  # fmt: skip
    async with serving(launch_of(tiny, arm, engine_python, specbench_path), tmp_path) as engine:
        transcript = await record_transcript(
            engine.url, "transformers-5.19.0", "transformers", body, drafting=arm != "none"
        )
    transcript.keep(arm)
    last = json.loads(transcript.data[-2])
    assert (last["choices"], transcript.data[-1]) == ([], "[DONE]")
    assert last["usage"]["completion_tokens"] == 24
    assert ("speculative_decoding" in last["metrics"]) is (arm != "none")
