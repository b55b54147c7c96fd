"""Runs a simulated world: launch by launch and point by point, from the first request to the summary."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pyarrow as pa

from specbench_api.outcome.provenance import HostFacts, LaunchRecord, merge_facts
from specbench_api.plan.plan import EngineGroup, Plan, Point
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.analysis.summary.run import summarise_run
from specbench_client.dialects.dialect import EngineCounters, counter_difference
from specbench_client.dialects.engine_facts import info_labels, is_metrics_page, pages_of, read_facts
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.documents.summary import ClientHealth, CounterDeltas, PointSummary, RunSummary
from specbench_client.drive.load_planning import ArrivalPlan, LoadPlanner
from specbench_client.drive.prompts import prompts_of_point
from specbench_client.load.client_monitor import RecordTally, WarmupResult, WorkerDone, summarize_client_health
from specbench_client.load.turns import RequestConfig, TurnClient
from specbench_client.load.warmup import WarmupBounds, WarmupMonitor, warmup_prompts
from specbench_client.metrics.tidy_frame import tidy
from specbench_client.simulator import SimulatedEngine, choose_dialect
from specbench_client.simulator.engine import TokenStream
from specbench_client.simulator.requests import SimulatedPrompt, SimulatedRequest
from specbench_client.store.records import records_table
from specbench_client.workload.prompts import Prompts
from virtual_time.clock import BEGINNING_NS, NS_PER_S, VirtualClock, in_virtual_time
from virtual_time.noise import Network
from virtual_time.response import TransportFaults
from virtual_time.transport import VirtualTransport
from virtual_time.worker import VirtualWorker
from virtual_time.world import WORKLOAD, World

CREATED = "2026-01-01T00:00:00Z"
LOOP_LAG_MS, CPU_SHARE = 0.3, 0.2
"""Health of an idle client, because the virtual event loop is never late."""


@dataclass(frozen=True)
class Interference:
    """Changes to the data of a run before it is summarised, to simulate incorrect clients, counters or records."""

    watch: Callable[[Point, ClientHealth], ClientHealth] = lambda _, watch: watch
    counters: Callable[[Point, CounterDeltas | None], CounterDeltas | None] = lambda _, counters: counters
    records: Callable[[Point, list[Record]], list[Record]] = lambda _, records: records


def run_of(world: World, meddling: Interference | None = None) -> RunSummary:
    """Measure and summarise the complete plan."""
    return summary_of(world, list(launches_of(world, meddling)))


def summary_of(world: World, launches: Sequence[Launch]) -> RunSummary:
    """Summarise the launches of the complete plan."""
    measured = [each for launch in launches for each in launch.measured]
    summaries = [each.summary(world.plan) for each in measured]
    records = {each.point.hash: [each.table] for each in measured}
    return summarise_run(world.plan, summaries, records, CREATED, [launch.seen() for launch in launches])


def launches_of(world: World, meddling: Interference | None = None) -> Iterator[Launch]:
    """Measure one group of the plan after the other, without waiting between them."""
    since_s, warm = 0.0, set[str]()
    for group in world.plan.groups:
        launch = Launch(world, group, meddling or Interference(), since_s, warm_up=group.arm not in warm)
        in_virtual_time(launch.serve)
        since_s += launch.duration_s
        if launch.arm.endpoint is not None:
            warm.add(group.arm)
        yield launch


async def _somebody_else(engine: SimulatedEngine) -> None:
    """Send sequential requests to the engine from another client."""
    for number in count():
        prompt = SimulatedPrompt(f"foreign-{number}", (), ("foreign",) * 50)
        ask = SimulatedRequest(f"foreign-{number}", engine.clock(), True, "simulated", prompt, max_tokens=64)
        async for _ in engine.submit(ask):
            pass


@dataclass(frozen=True)
class MeasuredPoint:
    """What a client has of a point at its end."""

    point: Point
    table: pa.Table
    """Its records as they are stored."""
    watch: ClientHealth
    counters: CounterDeltas | None
    served: Mapping[str, TokenStream]
    """What the engine really did for each request, by its id."""

    def summary(self, plan: Plan) -> PointSummary:
        """Return its summary, which the client stores."""
        return summarise_point(
            plan, self.point, tidy([self.table], self.point.hash), self.watch, self.counters, simulated=True
        )


@dataclass
class Launch:
    """One launch of an engine, or one repeat on a running one, with the client that measures it."""

    world: World
    group: EngineGroup
    meddling: Interference
    since_s: float
    """Time since the beginning of the run."""
    warm_up: bool
    measured: list[MeasuredPoint] = field(default_factory=list)
    duration_s: float = 0.0

    def __post_init__(self) -> None:
        plan = self.world.plan
        self.arm = plan.arm(self.group.arm)
        self.reads = dialect_of(plan.engine_of(self.arm))
        self.config = self.world.config(self.arm, self.group.index, self.since_s)
        self.writes = choose_dialect(self.world.dialect, self.config)
        self.loads = LoadPlanner(plan, ArrivalPlan(plan.load, None), cores=1, workers=1)
        self.engine: SimulatedEngine | None = None

    async def serve(self, clock: VirtualClock) -> None:
        """Measure the group's points in order."""
        self.engine = SimulatedEngine(self.config, self.world.known, clock)
        rng = self.world.rng("network", self.arm.name, self.group.index)
        between = self.world.between.get(self.arm.name, TransportFaults())
        transport = VirtualTransport(self.engine, self.writes, clock, Network(self.world.noise, rng), between)
        hand = VirtualWorker(clock)
        running = [asyncio.create_task(self.engine.run())]
        if self.world.foreign:
            running.append(asyncio.create_task(_somebody_else(self.engine)))
        try:
            for point in self.group.points:
                self.measured.append(await self._point(point, transport, hand))
        finally:
            self.duration_s = (clock() - BEGINNING_NS) / NS_PER_S
            for task in running:
                task.cancel()

    def seen(self) -> LaunchRecord:
        """Return the facts that the engine reports about itself."""
        pages = {page: self._page(page) for page in pages_of(self.reads.readings)}
        observed = read_facts(self.reads.readings, {page: self._document(page, text) for page, text in pages.items()})
        facts = merge_facts(observed, HostFacts(), "the simulator does not report it")
        name = f"{self.group.index}"
        return LaunchRecord(
            launch=name, group=self.group.index, arm=self.arm.name, simulated=True, queried_at=CREATED, facts=facts
        )

    async def _point(self, point: Point, transport: VirtualTransport, hand: VirtualWorker) -> MeasuredPoint:
        started_ns, records = hand.clock(), list[Record]()
        request_config = self._manner(point, started_ns)
        asker = TurnClient(transport, self.reads, request_config)
        warming = self.warm_up and point is self.group.points[0]
        warmed = await self._warm_up(point, asker, hand, records) if warming else None
        if self.world.plan.empties_cache and self.engine is not None:
            self.engine.prefix_cache.empty()
        rows = prompts_of_point(self.world.plan, point, Prompts(self.world.rows, "virtual")).rows
        load, tally = self.loads.of(point, len(rows)).filled(rows), RecordTally()
        before = self._counters()

        def keep(record: Record) -> None:
            tally.add(record)
            records.append(record)

        timeline = await hand.work(load, asker, rows, None, keep)
        after = self._counters()
        ended = WorkerDone(timeline.logs[0], LOOP_LAG_MS, LOOP_LAG_MS, CPU_SHARE)
        watch = summarize_client_health(
            [ended],
            timeline,
            tally,
            is_open=load.is_open,
            has_slots=load.has_slots,
            warm_up=warmed,
            load_per_core=None,
            interrupted_before=False,
        )
        counted = counter_difference(before, after) if before is not None and after is not None else None
        meddling = self.meddling
        table = records_table(point, meddling.records(point, records))
        served, transport.served = transport.served, {}
        return MeasuredPoint(point, table, meddling.watch(point, watch), meddling.counters(point, counted), served)

    async def _warm_up(
        self, point: Point, asker: TurnClient, hand: VirtualWorker, records: list[Record]
    ) -> WarmupResult | None:
        least = self.world.plan.load.warmup_requests
        if not least:
            return None
        bounds = WarmupBounds.of(least, self.loads.warmup_streams(point))
        steadiness = WarmupMonitor(bounds)

        def follow(record: Record) -> None:
            records.append(record)
            steadiness.add(record)
            if steadiness.reached:
                hand.no_more_conversations()

        prefixed = replace(asker.request_config, request_prefix=f"{asker.request_config.request_prefix}-w")
        warming = replace(asker, request_config=prefixed)
        prompts = warmup_prompts(self.world.rows, bounds.most)
        await hand.work(self.loads.warm_up(point, bounds.most), warming, prompts, RecordPhase.WARMUP, follow)
        return WarmupResult(steadiness.requests, steadiness.reached)

    def _manner(self, point: Point, started_ns: int) -> RequestConfig:
        plan = self.world.plan
        workload = plan.workload(WORKLOAD)
        return RequestConfig(
            endpoint="http://engine",
            engine=plan.engine_of(self.arm),
            model="simulated",
            sampling=workload.sampling,
            output=workload.output,
            repeat=point.repeat,
            started_ns=started_ns,
            drafting=self.arm.drafter is not None or self.arm.endpoint is not None,
            request_prefix=point.hash[:12],
            prompt_cache=plan.prompt_cache,
            think_time=workload.think_time,
            answers=workload.answers,
        )

    def _counters(self) -> EngineCounters | None:
        text = self._page(self.reads.metrics_path)
        return None if text is None else self.reads.counters(text)

    def _page(self, path: str) -> str | None:
        assert self.engine is not None
        view = self.writes.pages.get(path)
        return None if view is None else view(self.engine).text

    @staticmethod
    def _document(page: str, text: str | None) -> Any:
        if text is None:
            return None
        return info_labels(text) if is_metrics_page(page) else json.loads(text)
