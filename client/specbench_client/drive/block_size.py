"""The number of requests of a block, when running servers are compared in turns: from the duration of a request.

A block must be long compared with one request, since its beginning and its end are not a steady load, and short
compared with what else changes on the machine, which pairing then removes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.dialects.registry import dialect_of
from specbench_client.drive.engine_connection import served_model
from specbench_client.errors import EngineFailed
from specbench_client.load.conversations import Conversation, FillerPlan, filler_conversation
from specbench_client.load.request import RequestConfig, Turn
from specbench_client.load.turn_client import HttpTurnClient
from specbench_client.transport.kernel_transport import open_transport
from specbench_client.workload.prompts import Prompts

BLOCK_S = 6.0
"""Duration of a block at the lightest load, if its requests are short."""
PER_STREAM = 4
"""Least requests of a block for each stream, or for each request that a rate keeps in flight."""
LEAST = 8
"""Least requests of a block: the prompts of one block must not decide about it."""
SIZES = (8, 10, 12, *(size for power in range(4, 15) for size in (2**power, 3 * 2 ** (power - 1))))
"""Sizes to choose from: the same command after an interruption should choose the same again."""
PROBES = 2


@dataclass(frozen=True)
class BlockSize:
    """The requests of a block, and whether some prompts are sent more than once because there are too few."""

    requests: int
    repeats_prompts: bool


def block_size(plan: Plan, request_s: float, prompts: int, blocks: int) -> BlockSize:
    """Return the size for conversations of this duration on an idle server. `blocks`: of one arm at each load."""
    levels = plan.load.levels
    if plan.load.concurrency is not None:
        lightest, most = levels[0].concurrency or 1, levels[-1].concurrency or 1
        wanted = max(BLOCK_S / request_s * lightest, PER_STREAM * most, LEAST)
    else:
        rate = max((level.rate or 1.0) for level in levels)
        wanted = max(max(BLOCK_S, PER_STREAM * request_s) * rate, LEAST)
    size = next(size for size in SIZES if size >= min(wanted, SIZES[-1]))
    sent = size * blocks * len(levels)
    return BlockSize(size, repeats_prompts=sent > prompts)


async def probe_request_s(plan: Plan, prompts: Prompts, headers: Mapping[str, str]) -> float:
    """Return the mean duration of a request on the slowest endpoint in seconds, one at a time. Raises EngineFailed."""
    return max([await _probe(plan, arm, prompts, headers) for arm in plan.arms])


async def _probe(plan: Plan, arm: Arm, prompts: Prompts, headers: Mapping[str, str]) -> float:
    """Send fillers, whose texts no later request contains, so that no prompt cache is filled with the prompts."""
    fill = FillerPlan(prompts.rows, PROBES, 0)
    async with open_probe(plan, arm, headers) as send:
        begun = time.monotonic()
        for number in range(PROBES):
            record = await send(filler_conversation(fill, number, 0))
            if record.error_class is not None:
                url = arm.endpoint.url if arm.endpoint else ""
                message = f"{url} failed a first request ({record.error_class}): {record.error}"
                raise EngineFailed(message, EngineReason.FIRST_REQUEST_FAILED)
        return (time.monotonic() - begun) / PROBES


@asynccontextmanager
async def open_probe(
    plan: Plan, arm: Arm, headers: Mapping[str, str]
) -> AsyncIterator[Callable[[Conversation], Awaitable[Record]]]:
    """Connect to an endpoint and yield a function that sends a conversation's first turn and returns its record."""
    assert arm.endpoint is not None
    workload, url, engine = plan.workloads[0], arm.endpoint.url.rstrip("/"), plan.engine_of(arm)
    config = RequestConfig(
        endpoint=url,
        engine=engine,
        model=served_model(plan, arm),
        sampling=workload.sampling,
        output=workload.output,
        repeat=0,
        started_ns=time.monotonic_ns(),
        drafting=True,
        request_prefix=f"probe-{time.monotonic_ns():x}",
        headers=headers,
        extra_body=workload.extra_body,
    )
    async with open_transport(url) as transport:
        client = HttpTurnClient(transport, dialect_of(engine), config)

        async def send(conversation: Conversation) -> Record:
            turn = Turn(
                conversation_index=conversation.index,
                conversation_id=conversation.id,
                prompt_id=conversation.prompt_id,
                category=None,
                turn=0,
                messages=conversation.turns[0],
                stream_index=0,
                intended_ns=time.monotonic_ns(),
                phase=RecordPhase.WARMUP,
                output_tokens=conversation.output_tokens,
            )
            return (await client.take_turn(turn)).record

        yield send
