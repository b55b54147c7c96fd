"""A whole run of a world: launch by launch, point by point, from the first request to the verdict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pandas as pd

from specbench_api.outcome.launched import Launched, Whereabouts, all_facts
from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.outcome.summary import Counters, PointSummary, RunSummary, SelfWatch
from specbench_api.plan.plan import EngineGroup, Point
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.analysis.summary.run import summarise_run
from specbench_client.dialects.counters import difference
from specbench_client.dialects.dialect import EngineCounters
from specbench_client.dialects.facts.reading import document_of, is_metrics, pages_of, read_facts
from specbench_client.dialects.table import dialect_of
from specbench_client.drive.arrivals import Arrivals
from specbench_client.drive.loads import Loads
from specbench_client.drive.warmup import warmup_prompts
from specbench_client.load.orders import Ended
from specbench_client.load.steadiness import Bounds, Steadiness
from specbench_client.load.talk import Asker
from specbench_client.load.turns import Manner, TurnContext
from specbench_client.load.watch import Tally, WarmUp, self_watch
from specbench_client.metrics.frame import COLUMNS
from specbench_client.simulator import Engine, choose_dialect
from specbench_client.simulator.ask import Ask, Kind, Prompt
from specbench_client.store.columns import to_frame, to_parquet
from virtual_time.answer import Between
from virtual_time.clock import VirtualClock, in_virtual_time
from virtual_time.hand import Hand
from virtual_time.noise import Network
from virtual_time.transport import VirtualTransport
from virtual_time.world import WORKLOAD, World

CREATED = "2026-01-01T00:00:00Z"
LOOP_LAG_MS, CPU_SHARE = 0.3, 0.2
"""What an idle client sees of itself: there is no event loop here that could be late."""


@dataclass(frozen=True)
class Meddling:
    """What happens to an honest run's traces before they are judged; a lie of client or counters is told here."""

    watch: Callable[[Point, SelfWatch], SelfWatch] = lambda _, watch: watch
    counters: Callable[[Point, Counters | None], Counters | None] = lambda _, counters: counters
    records: Callable[[Point, list[Record]], list[Record]] = lambda _, records: records


def run_of(world: World, meddling: Meddling | None = None) -> RunSummary:
    """Measure and summarise the whole plan."""
    parts: dict[str, bytes] = {}
    summaries: list[PointSummary] = []
    seen: list[Launched] = []
    for group in world.plan.groups:
        launch = _Launch(world, group, meddling or Meddling())
        for point, summary, part in in_virtual_time(launch.serve):
            summaries.append(summary)
            parts[point.hash] = part
        seen.append(launch.seen())
    records = {key: _frames(part) for key, part in parts.items()}
    return summarise_run(world.plan, summaries, records, CREATED, seen)


def _frames(part: bytes) -> list[pd.DataFrame]:
    return [to_frame(part, COLUMNS)]


async def _somebody_else(engine: Engine) -> None:
    """Asks one thing after the other, past our client."""
    for number in count():
        prompt = Prompt(f"foreign-{number}", (), tokens=50)
        ask = Ask(f"foreign-{number}", engine.clock(), Kind.CHAT, "simulated", prompt, max_tokens=64)
        async for _ in engine.submit(ask):
            pass


Measured = tuple[Point, PointSummary, bytes]


@dataclass
class _Launch:
    """One launch of one engine, and the client that drives it."""

    world: World
    group: EngineGroup
    meddling: Meddling

    def __post_init__(self) -> None:
        plan = self.world.plan
        self.arm = plan.arm(self.group.arm)
        self.reads = dialect_of(plan.engine)
        self.config = self.world.config(self.arm, self.group.index)
        self.writes = choose_dialect(self.world.dialect, self.config)
        self.loads = Loads(plan, Arrivals(plan.load, None), cores=1, workers=1)
        self.engine: Engine | None = None

    async def serve(self, clock: VirtualClock) -> list[Measured]:
        """Measure the group's points in their order."""
        self.engine = Engine(self.config, self.world.known, clock)
        rng = self.world.rng("network", self.arm.name, self.group.index)
        between = self.world.between.get(self.arm.name, Between())
        transport = VirtualTransport(self.engine, self.writes, clock, Network(self.world.noise, rng), between)
        hand = Hand(clock)
        running = [asyncio.create_task(self.engine.run())]
        if self.world.foreign:
            running.append(asyncio.create_task(_somebody_else(self.engine)))
        try:
            return [await self._point(point, transport, hand) for point in self.group.points]
        finally:
            for task in running:
                task.cancel()

    def seen(self) -> Launched:
        """What the engine tells of itself."""
        pages = {page: self._page(page) for page in pages_of(self.reads.readings)}
        told = read_facts(self.reads.readings, {page: self._document(page, text) for page, text in pages.items()})
        facts = all_facts(told, Whereabouts(), "the simulator does not tell it")
        name = f"{self.group.index}"
        return Launched(
            launch=name, group=self.group.index, arm=self.arm.name, simulated=True, asked=CREATED, facts=facts
        )

    async def _point(self, point: Point, transport: VirtualTransport, hand: Hand) -> Measured:
        started_ns, records = hand.clock(), list[Record]()
        manner = self._manner(point, started_ns)
        asker = Asker(TurnContext(transport, self.reads, manner))
        warmed = await self._warm_up(point, asker, hand, records) if point is self.group.points[0] else None
        load, tally = self.loads.of(point, len(self.world.rows)).filled(self.world.rows), Tally()
        before = self._counters()

        def keep(record: Record) -> None:
            tally.add(record)
            records.append(record)

        flown = await hand.work(load, asker, self.world.rows, None, keep)
        after = self._counters()
        ended = Ended(flown.logs[0], LOOP_LAG_MS, CPU_SHARE)
        watch = self_watch([ended], flown, tally, is_open=load.is_open, warm_up=warmed)
        counted = difference(before, after) if before is not None and after is not None else None
        return self._summarised(point, records, watch, counted)

    def _summarised(self, point: Point, records: list[Record], watch: SelfWatch, counted: Counters | None) -> Measured:
        meddling = self.meddling
        part = to_parquet(meddling.records(point, records))
        watch, counted = meddling.watch(point, watch), meddling.counters(point, counted)
        plan = self.world.plan
        summary = summarise_point(plan, point, _frames(part), watch, counted, simulated=True)
        return point, summary, part

    async def _warm_up(self, point: Point, asker: Asker, hand: Hand, records: list[Record]) -> WarmUp | None:
        least = self.world.plan.load.warmup_requests
        if not least:
            return None
        bounds = Bounds.of(least, self.loads.warmup_streams(point))
        steadiness = Steadiness(bounds)

        def follow(record: Record) -> None:
            records.append(record)
            steadiness.add(record)
            if steadiness.reached:
                hand.no_more_conversations()

        prefixed = replace(asker.context.manner, request_prefix=f"{asker.context.manner.request_prefix}-w")
        warming = Asker(replace(asker.context, manner=prefixed))
        prompts = warmup_prompts(self.world.rows, bounds.most)
        await hand.work(self.loads.warm_up(point, bounds.most), warming, prompts, RecordPhase.WARMUP, follow)
        return WarmUp(steadiness.requests, steadiness.reached)

    def _manner(self, point: Point, started_ns: int) -> Manner:
        plan = self.world.plan
        workload = plan.workload(WORKLOAD)
        return Manner(
            endpoint="http://engine",
            engine=plan.engine,
            model="simulated",
            sampling=workload.sampling,
            output=workload.output,
            repeat=point.repeat,
            started_ns=started_ns,
            drafting=self.arm.drafter is not None,
            request_prefix=point.hash[:12],
        )

    def _counters(self) -> EngineCounters | None:
        text = self._page(self.reads.metrics_path)
        return None if text is None else self.reads.counters(text)

    def _page(self, path: str) -> str | None:
        assert self.engine is not None
        view = self.writes.pages.get(path)
        return None if view is None else view(self.engine).body.decode()

    @staticmethod
    def _document(page: str, text: str | None) -> Any:
        if text is None:
            return None
        return document_of(text) if is_metrics(page) else json.loads(text)
