"""Client against the simulator over a socket: records match the engine's truth, and faults have an error class."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from specbench_api.outcome.record import Record
from specbench_api.spec.workload import Output
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import EngineIdentity, counter_difference
from specbench_client.drive.engine_connection import first_completion
from specbench_client.errors import EngineFailed
from specbench_client.load.turn_client import HttpTurnClient
from specbench_client.simulator import (
    SimulatedEngine,
    SimulatedMethod,
    SimulatorConfig,
    SimulatorServer,
    TruthFile,
    choose_dialect,
    make_drafter,
    parse_faults,
)
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.kernel_transport import KernelTransport
from specbench_testing.closing_servers import ClosingTestServer
from specbench_testing.conversation_turns import Row, context, row
from specbench_testing.load_loops import LoopDriver

FAST = SimulatorConfig(time_scale=0, output_mean_tokens=40)
DRAFTERS = {
    "eagle3": make_drafter(SimulatedMethod.EAGLE3, 3),
    "ngram": make_drafter(SimulatedMethod.NGRAM, 4),
    "suffix": make_drafter(SimulatedMethod.SUFFIX, 8),
}
ROWS = [*(row(f"p{number}", f"Tell me about {number}") for number in range(10)), row("talk", "one", "two", "three")]


@dataclass
class Site:
    """A running simulator with a request context, a control client and its truth file."""

    context: HttpTurnClient
    control: ControlClient
    truth_file: Path

    @property
    def truth(self) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.truth_file.read_text().splitlines()]
        return {line["request_id"]: line for line in lines}

    async def drive(self, rows: list[Row], concurrency: int = 3) -> list[Record]:
        driver = LoopDriver(self.context)
        await driver.closed(rows, concurrency)
        return driver.records


@asynccontextmanager
async def simulated(
    folder: Path, config: SimulatorConfig, *faults: str, idle_timeout_s: float = 120
) -> AsyncIterator[Site]:
    config = replace(config, faults=parse_faults(faults))
    truth = folder / "truth.jsonl"
    app = SimulatorServer(SimulatedEngine(config), choose_dialect("vllm", config), TruthFile(truth)).application()
    async with (
        ClosingTestServer(app, shutdown_timeout=0.1) as server,
        KernelTransport(idle_timeout_s=idle_timeout_s) as transport,
        ControlClient(str(server.make_url(""))) as control,
    ):
        changed: dict[str, Any] = {"output": Output(max_tokens=48), "drafting": config.drafter.speculates}
        turn_context = context(transport, str(server.make_url("")), **changed)
        yield Site(turn_context, control, truth)


@pytest.mark.parametrize("name", DRAFTERS)
async def test_records_match_the_engines_truth_step_by_step(name: str, tmp_path: Path) -> None:
    async with simulated(tmp_path, replace(FAST, drafter=DRAFTERS[name])) as site:
        records = await site.drive(ROWS)
    assert len(records) == len(ROWS) + 2
    for record in records:
        truth = site.truth[record.request_id]
        steps = zip(truth["step_drafted"], truth["step_accepted"], strict=True)
        assert record.error_class is None
        assert record.output_tokens == record.output_tokens_client == truth["output_tokens"]
        assert record.draft_steps == truth["draft_steps"]
        assert record.drafted_tokens == truth["drafted_tokens"]
        assert record.steps == truth["steps"]
        assert record.accepted_tokens == truth["accepted_tokens"]
        assert record.step_accepted == [accepted for drafted, accepted in steps if drafted]


async def test_times_in_a_record_follow_their_causes(tmp_path: Path) -> None:
    async with simulated(tmp_path, replace(FAST, drafter=DRAFTERS["eagle3"])) as site:
        records = await site.drive(ROWS)
    for record in records:
        assert record.chunk_ns
        assert record.sent_ns is not None
        assert record.first_byte_ns is not None
        assert record.intended_ns <= record.sent_ns <= record.first_byte_ns <= record.chunk_ns[0]
        assert (record.first_token_ns, record.last_token_ns) == (record.chunk_ns[0], record.chunk_ns[-1])
        sent_ns = site.truth[record.request_id]["sent_ns"]
        assert all(seen >= sent for seen, sent in zip(record.chunk_ns, sent_ns, strict=True))


async def test_baseline_emits_one_token_per_step_and_the_same_text(tmp_path: Path) -> None:
    texts = []
    for config in (FAST, replace(FAST, drafter=DRAFTERS["eagle3"])):
        async with simulated(tmp_path, config) as site:
            records = await site.drive(ROWS)
        texts.append({record.request_id: record.output_sha256 for record in records})
        if not config.drafter.speculates:
            assert all(record.steps == (record.output_tokens or 0) - 1 for record in records)
            assert {record.drafted_tokens for record in records} == {None}
    assert texts[0] == texts[1]


async def test_engine_counters_agree_with_the_records(tmp_path: Path) -> None:
    async with simulated(tmp_path, replace(FAST, drafter=DRAFTERS["eagle3"])) as site:
        dialect = site.context.dialect
        await first_completion(site.context, [ChatMessage("user", "hi")])
        before = dialect.counters(await site.control.text(dialect.metrics_path))
        records = await site.drive(ROWS)
        page = await site.control.text(dialect.metrics_path)
        identity = dialect.identity(await site.control.documents(dialect.identity_paths))
    counted = counter_difference(before, dialect.counters(page))
    assert counted.output_tokens == sum(record.output_tokens or 0 for record in records)
    assert counted.prompt_tokens == sum(record.input_tokens or 0 for record in records)
    assert counted.drafted_tokens == sum(record.drafted_tokens or 0 for record in records)
    assert counted.draft_steps == sum(record.draft_steps or 0 for record in records)
    assert not counted.restarted
    assert dialect.speculating(None, page) is True
    assert identity == EngineIdentity("simulated", "simulated-0.1.0")


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
async def test_each_wire_fault_has_its_error_class(fault: str, expected_class: str, tmp_path: Path) -> None:
    patience_s = (
        0.1 if expected_class == "timeout" else 120
    )  # only this fault needs a short timeout; elsewhere a busy machine must not cause one
    async with simulated(tmp_path, FAST, fault, idle_timeout_s=patience_s) as site:
        records = await site.drive([row("talk", "one", "two")], concurrency=1)
        with pytest.raises(EngineFailed):
            await first_completion(site.context, [ChatMessage("user", "hi")], pause=lambda _: asyncio.sleep(0))
    assert [record.error_class for record in records] == [expected_class, "skipped_after_error"]
    assert records[0].error


async def test_false_counts_are_recorded_as_reported(tmp_path: Path) -> None:
    async with simulated(tmp_path, FAST, "miscount=3", "prompt-cache=0.5") as site:
        record = (await site.drive(ROWS[:1]))[0]
    assert record.output_tokens == (record.output_tokens_client or 0) + 3
    assert record.cached_tokens
    assert record.error_class is None


async def test_merged_chunks_keep_all_tokens_and_draft_steps(tmp_path: Path) -> None:
    async with simulated(tmp_path, replace(FAST, drafter=DRAFTERS["eagle3"]), "merge-chunks=4") as site:
        records = await site.drive(ROWS)
    for record in records:
        truth = site.truth[record.request_id]
        assert record.output_tokens_client == truth["output_tokens"]
        assert record.steps == truth["steps"]
        assert record.step_accepted == truth["step_accepted"]
    assert max(max(record.chunk_tokens or [0]) for record in records) > 4
