"""Probes endpoints before a run: for the requests of a repeat (--baseline), and for the loads of a sweep.

A repeat must be long compared with one request, since its beginning and its end are not a steady load, and short
compared with what else changes on the machine, which pairing then removes.

A sweep doubles the concurrency until throughput stops growing, or fewer requests meet the SLO. Its probe keeps each
stream busy for a few requests. The rates are over the time until the first stream has none left, and an answer that
ends later counts with its share, so there is neither ramp nor drain. They are rough and not stored: they only determine
the last load of the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.load import STREAMS_MAX
from specbench_api.spec.slo import Slo
from specbench_client.chat import ChatMessage
from specbench_client.dialects.dialect import EngineIdentity
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.record import Record
from specbench_client.drive.engine_connection import (
    EngineConnection,
    check_first_completion,
    one_off_client,
    served_model,
    take_first_turn,
)
from specbench_client.drive.load_planning import ArrivalPlan
from specbench_client.errors import EngineFailed
from specbench_client.load.conversations import FillerPlan, filler_conversation
from specbench_client.load.steady_state import NS_PER_S
from specbench_client.load.turns import TurnClient, TurnResult
from specbench_client.metrics.goodput import meets_slo
from specbench_client.metrics.rows import Table
from specbench_client.transport.control_client import ControlClient
from specbench_client.transport.error_class import ErrorClass
from specbench_client.workload.prompts import Prompts


def probe_client(plan: Plan, arm: Arm, headers: Mapping[str, str]) -> AbstractAsyncContextManager[TurnClient]:
    """Connect to an endpoint, to send requests with the settings of the run's first workload."""
    assert arm.endpoint is not None
    url, prefix = arm.endpoint.address, f"probe-{time.monotonic_ns():x}"
    model, engine = served_model(plan, arm), plan.engine_of(arm)
    return one_off_client(engine, url, model, prefix, headers, workload=plan.workloads[0])


# What the endpoint accepts, and what its answers report.

_REPETITIVE = ChatMessage("user", "Repeat this ten times: one two three four.")
"""Text that drafters predict, so that an answer has acceptance to report."""


async def probe_completion(plan: Plan, arm: Arm, headers: Mapping[str, str]) -> TurnResult:
    """Take one short completion like the requests of the run. Raises EngineFailed, as FieldRejected if a field is."""
    assert arm.endpoint is not None
    url, model, dialect = arm.endpoint.address, served_model(plan, arm), dialect_of(plan.engine_of(arm))
    async with ControlClient(url, headers=headers) as control:
        engine = EngineConnection(plan, arm, url, model, dialect, control, EngineIdentity(), headers)
        return await check_first_completion(engine, plan.workloads[0].name, [_REPETITIVE], "detect")


# The requests of a repeat.

REPEAT_S = 6.0
"""Duration of a repeat on one server at each load, if its requests are short."""
PER_STREAM = 4
"""Least requests for each stream, or for each request that a rate keeps in flight."""
LEAST = 8
"""Least requests at any load: the prompts of one repeat must not decide about it."""
PER_STREAM_MOST = 192
SIZES: tuple[int, ...] = (
    4,
    6,
    8,
    10,
    12,
    *(size for power in range(4, 12) for size in (2**power, 3 * 2 ** (power - 1))),
)
"""Sizes to choose from: the same command after an interruption should choose the same again."""
PROBES = 2
PROBES_MAX = 8
"""Prompts that are tried until so many are answered."""


def size_of_repeat(arrivals: ArrivalPlan, request_s: float) -> int:
    """Return the requests of each stream in a repeat, or the seconds of an open loop.

    The same for every load: a repeat takes about as long at each. `request_s`: that of a conversation on an idle
    server.
    """
    lightest = arrivals.load.levels[0]
    if lightest.concurrency is not None:
        wanted = min(max(REPEAT_S / request_s, PER_STREAM, LEAST / lightest.concurrency), PER_STREAM_MOST)
    else:
        wanted = max(REPEAT_S, PER_STREAM * request_s, LEAST / (arrivals.mean_rate(lightest) or 1.0))
    return next(size for size in SIZES if size >= min(wanted, SIZES[-1]))


async def probe_requests_s(
    plan: Plan, prompts: Prompts, headers: Mapping[str, str], report: Callable[[str], None]
) -> list[list[float]]:
    """Return the durations of requests to each endpoint in seconds, one at a time. Raises EngineFailed.

    `report`: gets a line for each request that takes longer than a repeat should.
    """
    return [await _probe(plan, arm, prompts, headers, report) for arm in plan.arms]


async def _probe(
    plan: Plan, arm: Arm, prompts: Prompts, headers: Mapping[str, str], report: Callable[[str], None]
) -> list[float]:
    """Send fillers, whose texts no later request contains, so that no prompt cache is filled with the prompts."""
    fill, records, took_s = FillerPlan(prompts.rows, PROBES_MAX, 0), list[Record](), list[float]()
    async with probe_client(plan, arm, headers) as client:
        while len(took_s) < PROBES and len(records) < PROBES_MAX:
            begun = time.monotonic()
            records.append((await take_first_turn(client, filler_conversation(fill, len(records), 0))).record)
            if records[-1].error_class is None:
                took_s.append(time.monotonic() - begun)
                if took_s[-1] > REPEAT_S:
                    report(f"{arm.name}: request {len(took_s)} of {PROBES} took {took_s[-1]:.0f} s")
            elif records[-1].error_class != ErrorClass.HTTP_4XX:
                break
    _answered(records, f"{arm.endpoint.address if arm.endpoint else ''} failed a first request")
    return took_s


def _answered(records: Sequence[Record], failure: str) -> list[Record]:
    """Return the records of answers. Raises EngineFailed for another one, except rejections of single prompts (4xx)."""
    answered = [record for record in records if record.error_class is None]
    excused = ErrorClass.HTTP_4XX if answered else None
    for record in records:
        if record.error_class not in (None, excused):
            message = f"{failure} ({record.error_class}): {record.error}"
            raise EngineFailed(message, EngineReason.FIRST_REQUEST_FAILED)
    return answered


# The loads of a sweep.

GROWTH = 1.05
"""A load is worth while if it has at least this factor of the throughput of half the concurrency."""
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
    arm: str = ""


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
        report(f"sweep: concurrency {streams}: " + _of_each(now, [f"{each.tokens_per_s:,.0f} tok/s" for each in now]))
        losses = [_why_no_gain(*pair) for pair in zip(before, now, strict=False)]
        if losses and all(losses):
            end = f"sweep: concurrency {streams} is no gain over {streams // 2} ({_of_each(now, losses)})"
            report(f"{end}: measuring {levels[0]} to {streams}")
            return levels
        before, streams = now, 2 * streams
    reason = f"a load of {most:,} requests keeps no more streams busy" if most < STREAMS_MAX else "the largest"
    report(f"sweep: stopped at concurrency {levels[-1]}, not saturated: {reason}")
    return levels


def _of_each(loads: Sequence[ProbedLoad], texts: Sequence[str]) -> str:
    """Join a text for each endpoint, with the arm's name if there are several."""
    return "; ".join(f"{load.arm}: {text}" if len(loads) > 1 else text for load, text in zip(loads, texts, strict=True))


def _why_no_gain(before: ProbedLoad, now: ProbedLoad) -> str:
    """Return why twice the concurrency is no gain on an endpoint; empty if it is one."""
    if before.good_per_s is not None and now.good_per_s is not None and now.good_per_s < before.good_per_s:
        growth = now.tokens_per_s / before.tokens_per_s - 1
        return f"{growth:+.0%} throughput, but fewer requests a second within the SLO"
    return "" if now.tokens_per_s >= GROWTH * before.tokens_per_s else f"less than {GROWTH - 1:.0%} more throughput"


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
        failure = f"a request of the sweep failed at concurrency {streams}"
        answered = [_answered(each, failure) for each in records]
        return replace(probed_load(answered, self.slo), arm=arm.name)


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
    all_ok = np.ones(tokens.size, dtype=np.bool_)
    rows = Table({"ok": all_ok, "timing_fault": np.zeros(tokens.size, dtype=np.int8), "tokens": tokens, **times})
    return ProbedLoad(len(streams), rate, float(((meets_slo(rows, slo) == 1) * shares).sum() / lasted_s))
