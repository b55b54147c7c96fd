"""The number of requests of a block, when running servers are compared in turns: from the duration of a request.

A block must be long compared with one request, since its beginning and its end are not a steady load, and short
compared with what else changes on the machine, which pairing then removes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.drive.engine_connection import one_off_client, served_model, take_first_turn
from specbench_client.errors import EngineFailed
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.load.turn_client import HttpTurnClient
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


def block_size(plan: Plan, request_s: float) -> int:
    """Return the requests of a block, for conversations that take `request_s` on an idle server."""
    levels = plan.load.levels
    if plan.load.concurrency is not None:
        lightest, most = levels[0].concurrency or 1, levels[-1].concurrency or 1
        wanted = max(BLOCK_S / request_s * lightest, PER_STREAM * most, LEAST)
    else:
        rate = max((level.rate or 1.0) for level in levels)
        wanted = max(max(BLOCK_S, PER_STREAM * request_s) * rate, LEAST)
    return int(next(size for size in SIZES if size >= min(wanted, SIZES[-1])))


async def probe_request_s(plan: Plan, prompts: Prompts, headers: Mapping[str, str]) -> float:
    """Return the mean duration of a request on the slowest endpoint in seconds, one at a time. Raises EngineFailed."""
    return max([await _probe(plan, arm, prompts, headers) for arm in plan.arms])


async def _probe(plan: Plan, arm: Arm, prompts: Prompts, headers: Mapping[str, str]) -> float:
    """Send fillers, whose texts no later request contains, so that no prompt cache is filled with the prompts."""
    fill = FillerPlan(prompts.rows, PROBES, 0)
    async with probe_client(plan, arm, headers) as client:
        begun = time.monotonic()
        for number in range(PROBES):
            record = (await take_first_turn(client, filler_conversation(fill, number, 0))).record
            if record.error_class is not None:
                url = arm.endpoint.url if arm.endpoint else ""
                message = f"{url} failed a first request ({record.error_class}): {record.error}"
                raise EngineFailed(message, EngineReason.FIRST_REQUEST_FAILED)
        return (time.monotonic() - begun) / PROBES


def probe_client(plan: Plan, arm: Arm, headers: Mapping[str, str]) -> AbstractAsyncContextManager[HttpTurnClient]:
    """Connect to an endpoint, to send requests with the settings of the run's first workload."""
    assert arm.endpoint is not None
    url, prefix = arm.endpoint.url.rstrip("/"), f"probe-{time.monotonic_ns():x}"
    model, engine = served_model(plan, arm), plan.engine_of(arm)
    return one_off_client(engine, url, model, prefix, headers, workload=plan.workloads[0])
