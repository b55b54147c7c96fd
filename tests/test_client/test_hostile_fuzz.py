"""Hostile HTTP answers from a seeded generator over real sockets: each ends in a typed error or a usable value."""

from __future__ import annotations

import asyncio
import resource
import ssl
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.outcome.provenance import HostFacts
from specbench_api.plan.expansion import lay_out
from specbench_api.plan.plan import Point
from specbench_api.spec.engine import EngineKind
from specbench_api.spec.load import Level
from specbench_api.spec.workload import Output
from specbench_client.dialects.dialect import Dialect, EngineIdentity
from specbench_client.dialects.registry import DIALECTS
from specbench_client.drive.engine_connection import EngineConnection, identify_engine, observe_launch
from specbench_client.errors import EngineFailed
from specbench_client.store.records import records_table
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.exchange import ErrorClass, Transport
from specbench_client.transport.kernel_transport import KernelTransport
from specbench_testing.conversation_turns import context, turn
from specbench_testing.fuzzing import shifted
from specbench_testing.hostile_answers import hostile_answer
from specbench_testing.long_cases import long_after
from specbench_testing.resources import run_of
from specbench_testing.scripted_server import serve_scripts

ONE_POINT = Point(hash="a" * 64, arm="none", workload="chat", level=Level(concurrency=1), repeat=0)
ANSWERS_PER_BLOCK = 100
IDLE_TIMEOUT_S = 0.2
ANSWER_DEADLINE_S = 120.0
"""An answer that takes longer fails the test: the client must give up long before."""
MEMORY_GROWTH_MAX_KIB = 400 * 1024
STREAMED_BLOCKS, CONTROL_BLOCKS = shifted(range(12)), shifted(range(100, 108))
"""Each block is a seed: together 2,000 answers."""

KINDS = tuple(DIALECTS)


class EscapedErrors(list[str]):
    """Collects the errors that reach the event loop."""

    def handle(self, _loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
        self.append(f"{found.get('message')}: {found.get('exception')!r}")


@pytest.mark.draws
@pytest.mark.parametrize("block", long_after(1, STREAMED_BLOCKS))
async def test_hostile_completion_becomes_a_record(block: int, server_tls: ssl.SSLContext | None) -> None:
    count = ANSWERS_PER_BLOCK // 2
    first = block * ANSWERS_PER_BLOCK + (count if server_tls else 0)
    seeds = range(first, first + count)
    escaped, before_kib = EscapedErrors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.get_running_loop().set_exception_handler(escaped.handle)
    scripts = [hostile_answer(seed, streamed=True) for seed in seeds]
    async with (
        serve_scripts(*scripts, tls=server_tls) as (url, _),
        KernelTransport(idle_timeout_s=IDLE_TIMEOUT_S) as transport,
    ):
        for seed in seeds:
            await complete(transport, url, seed)
            assert not escaped, f"seed {seed}: {escaped}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MEMORY_GROWTH_MAX_KIB


async def complete(transport: Transport, url: str, seed: int) -> None:
    """Take one turn; fail with the seed unless its record can be stored."""
    client = context(transport, url, KINDS[seed % len(KINDS)], keep_text=True)
    if seed % 5 == 0:
        client = replace(client, request_config=replace(client.request_config, output=Output(stream=False)))
    try:
        record = (await asyncio.wait_for(client.take_turn(turn()), ANSWER_DEADLINE_S)).record
        records_table(ONE_POINT, [record])
    except Exception as error:
        raise AssertionError(f"seed {seed}: an exception escaped: {error!r}") from error
    assert record.error_class is None or record.error_class in set(ErrorClass), f"seed {seed}: {record}"
    assert (record.error is None) == (record.error_class is None), f"seed {seed}: {record}"
    counts = (record.input_tokens, record.output_tokens, record.steps, record.draft_steps, record.accepted_tokens)
    assert all(one is None or one >= 0 for one in counts), f"seed {seed}: {record}"


@pytest.mark.draws
@pytest.mark.parametrize("block", long_after(1, CONTROL_BLOCKS))
async def test_hostile_control_answer_becomes_a_value_or_an_engine_failure(block: int) -> None:
    seeds = range(block * ANSWERS_PER_BLOCK, (block + 1) * ANSWERS_PER_BLOCK)
    escaped, before_kib = EscapedErrors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.get_running_loop().set_exception_handler(escaped.handle)
    for seed in seeds:
        async with (
            serve_scripts(hostile_answer(seed, streamed=False)) as (url, _),
            ControlClient(url, timeout_s=IDLE_TIMEOUT_S) as control,
        ):
            await query_all_pages(control, DIALECTS[KINDS[seed % len(KINDS)]], url, seed)
        assert not escaped, f"seed {seed}: {escaped}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MEMORY_GROWTH_MAX_KIB


async def query_all_pages(control: ControlClient, dialect: Dialect, url: str, seed: int) -> None:
    """Make every control request of a launch, each of which gets the same answer."""
    plan = lay_out(run_of({"spec.engine": {"kind": EngineKind.SIMULATOR}}))
    engine = EngineConnection(plan, plan.arms[0], url, "m", dialect, control, EngineIdentity())

    async def query() -> None:
        with suppress(EngineFailed):
            await control.wait_healthy(dialect.health_path, 0)
        await identify_engine(control, dialect)
        await engine.counters()
        launch = await observe_launch(engine, plan.groups[0], "0-a", HostFacts(), "2030-01-02T03:04:05Z")
        assert type(launch).from_json(launch.to_json()) == launch

    try:
        await asyncio.wait_for(query(), ANSWER_DEADLINE_S)
    except Exception as error:
        raise AssertionError(f"seed {seed}: an exception escaped: {error!r}") from error
