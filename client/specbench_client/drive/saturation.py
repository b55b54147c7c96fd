"""The loads of a sweep: the concurrency is doubled until more of it gains nothing. They are probed, then measured.

A probe keeps each stream busy for a few requests. Its rates are over the time until the first stream has none left, and
an answer that ends later counts with its share, so there is neither ramp nor drain. They are rough and not reported:
they only determine the last load of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from specbench_api.outcome.record import Record
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.slo import Slo
from specbench_client.drive.block_size import probe_client
from specbench_client.drive.engine_connection import take_first_turn
from specbench_client.errors import EngineFailed
from specbench_client.load.arrivals import NS_PER_S
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.metrics.goodput import meets_slo
from specbench_client.metrics.rows import Table
from specbench_client.workload.prompts import Prompts

GROWTH = 1.05
"""A load is worth while if it has at least this factor of the throughput of half the concurrency."""
STREAMS_MAX = 4096
REQUESTS_EACH = 3
"""Requests of each stream in a probe."""
_FIRST_FILLER = 1_000_000
"""The fillers of a run have smaller numbers, so that none of them is in a prompt cache after the probes."""


@dataclass(frozen=True)
class ProbedLoad:
    """Rates of one endpoint at one concurrency. `good_per_s`: requests within the limits; None without limits."""

    streams: int
    tokens_per_s: float
    good_per_s: float | None = None


Probe = Callable[[int], Awaitable[Sequence[ProbedLoad]]]
"""Concurrency → the rates of each endpoint."""


async def find_levels(probe: Probe, most: int, report: Callable[[str], None]) -> list[int]:
    """Return 1, 2, 4, … up to the first concurrency without gain on any endpoint, which is included; at most `most`."""
    levels: list[int] = []
    before: Sequence[ProbedLoad] = []
    streams = 1
    while streams <= min(most, STREAMS_MAX):
        now = await probe(streams)
        levels.append(streams)
        report(f"sweep: concurrency {streams}: " + ", ".join(f"{each.tokens_per_s:,.0f} tok/s" for each in now))
        if before and not any(_gains(*pair) for pair in zip(before, now, strict=True)):
            report(
                f"sweep: concurrency {streams} gains nothing over {streams // 2}: measuring {levels[0]} to {streams}"
            )
            return levels
        before, streams = now, 2 * streams
    report(f"sweep: stopped at concurrency {levels[-1]}, with as many requests as the load has")
    return levels


def _gains(before: ProbedLoad, now: ProbedLoad) -> bool:
    if before.good_per_s is not None and now.good_per_s is not None and now.good_per_s < before.good_per_s:
        return False
    return now.tokens_per_s >= GROWTH * before.tokens_per_s


@dataclass(frozen=True)
class EndpointProbe:
    """Probes the plan's endpoints, one after the other, with fillers of its prompts."""

    plan: Plan
    prompts: Prompts
    headers: Mapping[str, str]
    slo: Slo | None
    _numbers: count[int] = field(default_factory=lambda: count(_FIRST_FILLER))

    async def __call__(self, streams: int) -> list[ProbedLoad]:
        """Return the rates of each endpoint. Raises EngineFailed if a request fails."""
        return [await self._probe_arm(arm, streams) for arm in self.plan.arms]

    async def _probe_arm(self, arm: Arm, streams: int) -> ProbedLoad:
        fill = FillerPlan(self.prompts.rows, 1, 0)
        async with probe_client(self.plan, arm, self.headers) as client:

            async def stream() -> list[Record]:
                fillers = (filler_conversation(fill, 0, next(self._numbers)) for _ in range(REQUESTS_EACH))
                return [(await take_first_turn(client, filler)).record for filler in fillers]

            records = await asyncio.gather(*(stream() for _ in range(streams)))
        failed = next((record for each in records for record in each if record.error_class is not None), None)
        if failed is not None:
            message = f"a request of the sweep failed at concurrency {streams} ({failed.error_class}): {failed.error}"
            raise EngineFailed(message, EngineReason.FIRST_REQUEST_FAILED)
        return probed_load(records, self.slo)


def probed_load(streams: Sequence[Sequence[Record]], slo: Slo | None) -> ProbedLoad:
    """Return the rates from the records of each stream."""
    records = [record for each in streams for record in each]
    tokens = np.array([record.output_tokens or record.output_tokens_client or 1 for record in records])
    begins = np.array([record.intended_ns for record in records])
    ends = np.array([record.last_token_ns or record.intended_ns for record in records])
    begin, end = begins.min(), min(each[-1].last_token_ns or each[-1].intended_ns for each in streams)
    shares = np.clip((end - begins) / np.maximum(ends - begins, 1), 0.0, 1.0)
    lasted_s = max(end - begin, 1) / NS_PER_S
    rate = float((tokens * shares).sum() / lasted_s)
    if slo is None:
        return ProbedLoad(len(streams), rate)
    first = [record.first_token_ns for record in records]
    times = {"intended_ns": begins, "first_token_ns": np.array(first, dtype=np.float64), "last_token_ns": ends}
    rows = Table({"ok": np.ones(tokens.size, dtype=np.bool_), "tokens": tokens, **times})
    return ProbedLoad(len(streams), rate, float(((meets_slo(rows, slo) == 1) * shares).sum() / lasted_s))
