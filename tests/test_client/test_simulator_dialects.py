"""One contract for every dialect of the simulator, run with the real client; records are compared with the truth file.

What the wire format omits is missing in the records, never wrong. Every fault has the same effect in each dialect.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from specbench_api.spec.engine import SIMULATED_DIALECTS, DialectName, Engine, EngineKind
from specbench_api.spec.workload import Output
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import EngineIdentity
from specbench_client.documents.record import AcceptanceSource
from specbench_client.simulator import (
    SimulatedEngine,
    SimulatedMethod,
    SimulatedStepCost,
    SimulatorConfig,
    SimulatorServer,
    TruthFile,
    choose_dialect,
    make_drafter,
    parse_faults,
)
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.http_transport import KernelTransport
from specbench_client.workload.row_parsing import Prompt
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.conversation_turns import context, row
from specbench_testing.load_loops import DrivenEngine
from specbench_testing.simulator_client import accepted_response, serve_dialect

VLLM, SGLANG, TENSORRT_LLM = SIMULATED_DIALECTS
ALL = pytest.mark.parametrize("name", SIMULATED_DIALECTS)
EAGLE = make_drafter(SimulatedMethod.EAGLE3, 3)
NGRAM = make_drafter(SimulatedMethod.NGRAM, 4)
FAST = SimulatorConfig(time_scale=0, output_mean_tokens=40)
ROWS = [*(row(f"p{number}", f"Tell me about {number}") for number in range(10)), row("talk", "one", "two", "three")]
TOKENS = Prompt("ids", None, ((ChatMessage("user", "", (5, 6, 7)),),))


class Clock:
    """A monotonic clock that advances only when a test sets it."""

    now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


@dataclass
class Site(DrivenEngine):
    """A running simulator with its truth file and its recorded exit codes."""

    truth_file: Path
    exits: list[int]

    @property
    def truth(self) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.truth_file.read_text().splitlines()]
        return {line["request_id"]: line for line in lines}


@asynccontextmanager
async def simulated(
    folder: Path,
    name: DialectName,
    config: SimulatorConfig,
    *faults: str,
    clock: Clock | None = None,
    **request_config: Any,
) -> AsyncIterator[Site]:
    config = replace(config, faults=parse_faults(faults))
    truth, exits = folder / f"truth-{uuid4().hex}.jsonl", list[int]()
    engine = SimulatedEngine(config, clock=clock) if clock else SimulatedEngine(config)
    app = SimulatorServer(engine, choose_dialect(str(name), config), TruthFile(truth), exits.append).application()
    async with (
        ClosingTestServer(app, shutdown_timeout=0.1) as server,
        KernelTransport(idle_timeout_s=request_config.pop("idle_timeout_s", 120)) as transport,
        ControlClient(str(server.make_url(""))) as control,
    ):
        changed = {
            "engine": Engine(kind=EngineKind.SIMULATOR, dialect=name),
            "output": Output(max_tokens=48),
            "drafting": config.drafter.speculates,
            **request_config,
        }
        yield Site(context(transport, str(server.make_url("")), **changed), control, truth, exits)


def drafted_steps(truth: dict[str, Any]) -> list[int]:
    pairs = zip(truth["step_drafted"], truth["step_accepted"], strict=True)
    return [accepted for drafted, accepted in pairs if drafted]


@ALL
@pytest.mark.parametrize("drafting", [EAGLE, NGRAM], ids=["eagle3", "ngram"])
async def test_records_match_the_engine_as_far_as_the_wire_format_allows(
    name: DialectName, drafting: Any, tmp_path: Path
) -> None:
    async with simulated(tmp_path, name, replace(FAST, drafter=drafting)) as site:
        records = await site.drive(ROWS)
        truth = site.truth
    assert len(records) == len(ROWS) + 2
    for record in records:
        real = truth[record.request_id]
        assert record.error_class is None
        assert record.output_tokens == record.output_tokens_client == real["output_tokens"]
        assert (record.steps, record.accepted_tokens) == (real["steps"], real["accepted_tokens"])
        undrafted = real["steps"] > real["draft_steps"]
        in_order = None if name is TENSORRT_LLM or (name is SGLANG and undrafted) else drafted_steps(real)
        expected = (None, None) if name is TENSORRT_LLM else (real["draft_steps"], real["drafted_tokens"])
        if real["draft_steps"]:
            assert (record.draft_steps, record.drafted_tokens) == expected
            assert record.step_accepted == in_order
    if drafting is EAGLE:
        assert any(each.step_accepted for each in records) == (name is not TENSORRT_LLM)


@ALL
async def test_token_id_prompts_and_unstreamed_answers_are_counted(name: DialectName, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"output": Output(max_tokens=48, ignore_eos=True, stream=False)}
    async with (
        simulated(tmp_path, name, replace(FAST, drafter=EAGLE)) as site,
        simulated(tmp_path, name, replace(FAST, drafter=EAGLE), **whole) as unstreamed,
    ):
        ids = (await site.drive([TOKENS]))[0]
        one = (await unstreamed.drive(ROWS[:1]))[0]
        truth, real = site.truth[ids.request_id], unstreamed.truth[one.request_id]
    assert (ids.error_class, ids.input_tokens, ids.accepted_tokens) == (None, 3, truth["accepted_tokens"])
    assert ids.output_tokens == ids.output_tokens_client == truth["output_tokens"]
    assert (one.error_class, one.output_tokens, one.output_tokens_client) == (None, 48, None)
    expected = (None, None) if name is TENSORRT_LLM else (real["steps"], real["accepted_tokens"])
    assert (one.steps, one.accepted_tokens) == expected


@ALL
async def test_baseline_emits_one_token_per_step_and_the_same_text(name: DialectName, tmp_path: Path) -> None:
    texts = []
    for config in (FAST, replace(FAST, drafter=EAGLE)):
        async with simulated(tmp_path, name, config) as site:
            records = await site.drive(ROWS)
        texts.append({record.request_id: record.output_sha256 for record in records})
        if not config.drafter.speculates:
            assert all(record.steps == (record.output_tokens or 0) - 1 for record in records)
            assert {(each.draft_steps, each.drafted_tokens, each.accepted_tokens) for each in records} == {(None,) * 3}
    assert texts[0] == texts[1]


@ALL
async def test_health_identity_and_counters_match_the_engine(name: DialectName, tmp_path: Path) -> None:
    async with simulated(tmp_path, name, replace(FAST, drafter=EAGLE)) as site:
        dialect = site.context.dialect
        assert await site.control.healthy(dialect.health_path)
        records, counted = await site.counted_drive(ROWS)
        identity = dialect.identity(await site.control.documents(dialect.identity_paths))
        speculating = await site.speculating()
    tokens = sum(record.output_tokens or 0 for record in records)
    prompt_tokens = sum(record.input_tokens or 0 for record in records)
    drafts = sum(record.draft_steps or 0 for record in records)
    assert identity == EngineIdentity("simulated", "simulated-0.1.0")
    assert speculating is (None if name is TENSORRT_LLM else True)
    assert counted.output_tokens == (None if name is TENSORRT_LLM else tokens)
    assert counted.prompt_tokens == (None if name is TENSORRT_LLM else prompt_tokens)
    assert counted.draft_steps in ([drafts] if name is VLLM else [None, drafts]), (
        "SGLang exposes the counter only after drafting"
    )
    assert (counted.accepted_tokens is None) == (name is not VLLM)
    assert not counted.restarted


@ALL
@pytest.mark.parametrize(
    ("fault", "expected_class"),
    [
        ("reset-after=2", "reset"),
        ("stall=2", "timeout"),
        ("http-500", "http_5xx"),
        ("malformed-sse=2", "malformed"),
        ("never-ready", "http_5xx"),
    ],
)
async def test_each_wire_fault_has_its_error_class(
    name: DialectName, fault: str, expected_class: str, tmp_path: Path
) -> None:
    patience_s = (
        0.1 if expected_class == "timeout" else 120
    )  # only this fault needs a short timeout; elsewhere a busy machine must not cause one
    async with simulated(tmp_path, name, FAST, fault, idle_timeout_s=patience_s) as site:
        records = await site.drive([row("talk", "one", "two")], concurrency=1)
        assert await site.control.healthy(site.context.dialect.health_path) == (fault != "never-ready")
    assert [record.error_class for record in records] == [expected_class, "skipped_after_error"]
    assert records[0].error
    assert fault != "never-ready" or "still starting" in records[0].error


async def test_times_in_a_record_follow_their_causes(tmp_path: Path) -> None:
    async with simulated(tmp_path, VLLM, replace(FAST, drafter=EAGLE)) as site:
        records = await site.drive(ROWS)
        truth = site.truth
    for record in records:
        assert record.chunk_ns
        assert record.sent_ns is not None
        assert record.first_byte_ns is not None
        assert record.intended_ns <= record.sent_ns <= record.first_byte_ns <= record.chunk_ns[0]
        assert (record.first_token_ns, record.last_token_ns) == (record.chunk_ns[0], record.chunk_ns[-1])
        sent_ns = truth[record.request_id]["sent_ns"]
        assert all(seen >= sent for seen, sent in zip(record.chunk_ns, sent_ns, strict=True))


@ALL
async def test_false_counts_are_recorded_as_reported_or_left_out(name: DialectName, tmp_path: Path) -> None:
    async with simulated(tmp_path, name, replace(FAST, drafter=EAGLE), "miscount=3", "prompt-cache=0.5") as site:
        record = (await site.drive(ROWS[:1]))[0]
        truth = site.truth[record.request_id]
    sent = truth["output_tokens"]
    if name is DialectName.SGLANG:  # Its chunk with the finish reason has no count, so none follows the last text.
        assert (record.output_tokens, record.output_tokens_client) == (sent + 3, sent)
    else:
        assert (record.output_tokens, record.token_conflict) == (None, "UnequalUsages")
    assert record.cached_tokens == (record.input_tokens or 0) // 2
    assert record.error_class is None


@ALL
async def test_truncated_or_reworded_answer_is_recorded_as_received(name: DialectName, tmp_path: Path) -> None:
    config = replace(FAST, drafter=EAGLE)
    options: dict[str, Any] = {"output": Output(max_tokens=48, ignore_eos=True)}
    async with (
        simulated(tmp_path, name, config, **options) as unmodified,
        simulated(tmp_path, name, config, "truncate=0.5", **options) as cut,
        simulated(tmp_path, name, config, "diverge", **options) as other,
    ):
        first, half, reworded = [(await site.drive(ROWS[:1]))[0] for site in (unmodified, cut, other)]
    assert (first.output_tokens, first.finish_reason) == (48, "length")
    assert (half.output_tokens, half.finish_reason) == (24, "stop")
    assert reworded.output_tokens == 48
    assert reworded.output_sha256 != first.output_sha256


@ALL
async def test_server_side_limit_temperature_and_drafter_memory_show_in_the_records(
    name: DialectName, tmp_path: Path
) -> None:
    config = replace(FAST, drafter=EAGLE)
    async with (
        simulated(tmp_path, name, config) as greedy,
        simulated(tmp_path, name, config, "own-limit=5") as limited,
        simulated(tmp_path, name, config, "temperature=1") as warm,
        simulated(tmp_path, name, config, "drafter-memory=1") as remembering,
    ):
        (cut,) = await limited.drive(ROWS[:1])
        unchanged, sampled = [(await site.drive(ROWS[:1]))[0] for site in (greedy, warm)]
        await remembering.drive(ROWS[:1])
        (known,) = await remembering.drive(ROWS[:1])
        truth = remembering.truth[known.request_id]
    assert (cut.output_tokens, cut.finish_reason) == (5, "length")
    assert sampled.output_sha256 != unchanged.output_sha256
    assert set(truth["step_accepted"][:-1]) == {3}, "the answer's end truncates the last step"


@ALL
async def test_merged_chunks_keep_token_counts_and_steps_correct(name: DialectName, tmp_path: Path) -> None:
    async with simulated(tmp_path, name, replace(FAST, drafter=EAGLE), "merge-chunks=4") as site:
        records = await site.drive(ROWS)
        truth = site.truth
    for record in records:
        real = truth[record.request_id]
        assert record.output_tokens_client == real["output_tokens"]
        counts = (record.steps, record.accepted_tokens)
        assert counts in [(real["steps"], real["accepted_tokens"]), *([(None, None)] if name is TENSORRT_LLM else [])]
    assert max(max(record.chunk_tokens or [0]) for record in records) > 4


@ALL
async def test_drafter_that_never_drafts_has_no_accepted_tokens(name: DialectName, tmp_path: Path) -> None:
    async with simulated(tmp_path, name, replace(FAST, drafter=EAGLE), "never-draft") as site:
        records = await site.drive(ROWS)
        counted = await site.counters()
    assert {record.accepted_tokens for record in records} == {0}
    assert all(record.steps == (record.output_tokens or 0) - 1 for record in records)
    assert {record.drafted_tokens for record in records} == {0 if name is VLLM else None}
    assert counted.draft_steps == (0 if name is VLLM else None)
    source = {VLLM: AcceptanceSource.PER_STEP, SGLANG: AcceptanceSource.CHUNKS}.get(name, AcceptanceSource.PER_REQUEST)
    assert {record.acceptance_source for record in records} == {str(source)}


SYSTEM = " ".join(f"rule{number}" for number in range(64))
SHARED = [row(f"s{number}", f"{SYSTEM} Tell me about {number}") for number in range(3)]
CACHING = replace(FAST, drafter=EAGLE, prefix_cache_tokens=10_000)


@ALL
@pytest.mark.parametrize(("faults", "reused"), [((), 64), (("reuse-last-block",), 48), (("reuse-lost=0.5",), 32)])
async def test_lost_reuse_is_recorded_as_fewer_cached_tokens(
    name: DialectName, faults: tuple[str, ...], reused: int, tmp_path: Path
) -> None:
    """Without a drafter nothing is lost."""
    async with (
        simulated(tmp_path, name, CACHING, *faults) as site,
        simulated(tmp_path, name, replace(CACHING, drafter=FAST.drafter), *faults) as baseline,
    ):
        records = await site.drive(SHARED, concurrency=1)
        undrafted = await baseline.drive(SHARED, concurrency=1)
        truth = site.truth
    assert [record.cached_tokens or 0 for record in records] == [0, reused, reused]
    assert [truth[record.request_id]["cached_tokens"] for record in records] == [0, reused, reused]
    assert [record.cached_tokens or 0 for record in undrafted] == [0, 64, 64]


@ALL
@pytest.mark.parametrize(
    ("fault", "caches", "decays"),
    [("acceptance-decay=1", False, True), ("acceptance-decay-cached=1", True, True),
     ("acceptance-decay-cached=1", False, False)],
)  # fmt: skip
async def test_acceptance_decays_in_twelve_hours_of_engine_time(
    name: DialectName, fault: str, caches: bool, decays: bool, tmp_path: Path
) -> None:
    hour_long_steps = SimulatedStepCost(base_ms=3.6e6)
    config = replace(CACHING if caches else FAST, drafter=EAGLE, cost=hour_long_steps)
    async with simulated(tmp_path, name, config, fault) as site:
        records = await site.drive(ROWS, 1)
    first, *_, last = [record.accepted_tokens or 0 for record in records]
    assert first > 0
    assert (last == 0) is decays


JSON_BODY = {
    "model": "simulated", "temperature": 0, "max_tokens": 200, "messages": [{"role": "user", "content": "Tell me"}],
}  # fmt: skip
PROPERTIES = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": PROPERTIES}}


@ALL
@pytest.mark.parametrize(("fault", "valid"), [("never-draft", True), ("broken-tool-calls", False)])
async def test_broken_tool_calls_keep_their_name(name: DialectName, fault: str, valid: bool) -> None:
    async with serve_dialect(str(name), replace(FAST, drafter=EAGLE, faults=parse_faults((fault,)))) as client:
        answer = await accepted_response(client, {**JSON_BODY, "tools": [TOOL]})
    function = answer["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (function["name"], is_json(function["arguments"])) == ("look_up", valid)


@ALL
async def test_an_empty_answer_calls_no_tool(name: DialectName) -> None:
    async with serve_dialect(str(name), replace(FAST, faults=parse_faults(("empty",)))) as client:
        (choice,) = (await accepted_response(client, {**JSON_BODY, "tools": [TOOL]}))["choices"]
        chunks = await accepted_response(client, {**JSON_BODY, "tools": [TOOL], "stream": True})
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    assert not choice["message"]["tool_calls"]
    streamed = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert not any(each["delta"].get("tool_calls") for each in streamed)
    assert streamed[-1]["finish_reason"] == "stop"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


@ALL
async def test_slow_start_is_unhealthy_until_its_delay_has_passed(name: DialectName, tmp_path: Path) -> None:
    clock = Clock()
    async with simulated(tmp_path, name, FAST, "slow-start=30", clock=clock) as site:
        health = site.context.dialect.health_path
        assert not await site.control.healthy(health)
        clock.now_ns += 30 * 10**9
        assert await site.control.healthy(health)


@ALL
async def test_crash_and_oom_exit_after_the_configured_request(name: DialectName, tmp_path: Path) -> None:
    async with (
        simulated(tmp_path, name, FAST, "crash-after=2") as crashing,
        simulated(tmp_path, name, FAST, "oom=1") as killed,
    ):
        for site in (crashing, killed):
            await site.drive(ROWS[:1])
            assert site.exits == []
            await site.drive(ROWS[1:2])
    assert (crashing.exits, killed.exits) == ([1], [137])


@pytest.mark.parametrize("name", [VLLM, SGLANG])
async def test_counter_reset_is_detected_as_a_restart(name: DialectName, tmp_path: Path) -> None:
    """TensorRT-LLM is left out because it exposes no counters."""
    async with simulated(tmp_path, name, FAST, "restart-counters=2") as site:
        await site.drive(ROWS[:1])
        _, counted = await site.counted_drive(ROWS[1:2])
    assert counted.restarted
