"""One point: warm-up if it is the launch's first, the load with its records leaving as they come, then the commit.

The summary is made between points, not beside the next one: what the client computes then would be measured there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from specbench_api.outcome.manifest import Observed
from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.outcome.summary import Counters, SelfWatch
from specbench_api.plan.plan import Point
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.point import summarise_point
from specbench_client.dialects.counters import difference
from specbench_client.drive.launch import Launch
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import ProgressKeeper
from specbench_client.drive.warmup import warmup_conversations
from specbench_client.errors import EngineFailed
from specbench_client.load.closed_loop import ClosedLoop, closed_loop
from specbench_client.load.conversations import conversations
from specbench_client.load.turns import take_turn
from specbench_client.load.watch import SelfWatcher
from specbench_client.store.parts import PartsWriter
from specbench_client.store.point import PointStore, Span
from specbench_client.workload.prompts import Prompts

ABANDON_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Measurement:
    """Measures points of one launch into a store."""

    launch: Launch
    points: PointStore
    options: DriveOptions
    keeper: ProgressKeeper

    async def measure(self, point: Point, prompts: Prompts, observed: Observed, *, warm_up: bool) -> None:
        """Measure and commit. Raises EngineFailed, NotDurable; whatever ends it, nothing half done becomes a result."""
        clock, total = self.options.clock, _requests(prompts, self.launch.plan.load.requests)
        started_ns, started_wall = clock.monotonic_ns(), clock.wall_text()
        self.keeper.start_point(point, total)
        writer = self.points.open(point.hash, self.options.attempt)
        try:
            if warm_up:
                await self._warm_up(point, prompts, started_ns, writer)
            watch, counters = await self._load(point, prompts, started_ns, writer)
            self.keeper.phase = "storing"
            span = Span(started_ns, started_wall, clock.wall_text())
            await asyncio.to_thread(self._commit, point, writer, (watch, counters), (span, observed))
        except BaseException:
            await asyncio.to_thread(writer.abandon, ABANDON_PATIENCE_S)
            raise
        writer.discard_spool()
        self.keeper.end_point()

    async def _warm_up(self, point: Point, prompts: Prompts, started_ns: int, writer: PartsWriter) -> None:
        todo = warmup_conversations(prompts.rows, self.launch.plan.load.warmup_requests)
        loop = self._loop(point, started_ns, writer, RecordPhase.WARMUP)
        await closed_loop(loop, todo)

    async def _load(
        self, point: Point, prompts: Prompts, started_ns: int, writer: PartsWriter
    ) -> tuple[SelfWatch, Counters | None]:
        before = await self.launch.counters()
        self.keeper.start_load()
        async with SelfWatcher() as watcher:
            todo = conversations(prompts.rows, self.launch.plan.load.requests)
            flight = await closed_loop(self._loop(point, started_ns, writer, None), todo)
        await self._still_there()
        after = await self.launch.counters()
        counted = difference(before, after) if before is not None and after is not None else None
        return watcher.report(flight), counted

    async def _still_there(self) -> None:
        """A few failed requests are the point's; an engine that died on the last ones would make it a result."""
        failed = self.keeper.look().requests_failed
        if failed and not await self.launch.alive():
            message = f"the engine stopped answering during the point: {failed} requests failed and it is not healthy"
            raise EngineFailed(message, EngineReason.LOST)

    def _loop(self, point: Point, started_ns: int, writer: PartsWriter, phase: RecordPhase | None) -> ClosedLoop:
        prefix = f"{point.hash[:12]}-{self.options.attempt}{'-w' if phase else ''}"
        context = self.launch.context(point, started_ns, prefix, keep_text=self.options.keep_text)

        def on_record(record: Record) -> None:
            writer.add(record)
            self.keeper.add(record)

        return ClosedLoop(
            concurrency=point.concurrency,
            ask_turn=partial(take_turn, context),
            on_record=on_record,
            alive=self.launch.alive,
            phase=phase,
            clock=self.options.clock.monotonic_ns,
        )

    def _commit(
        self,
        point: Point,
        writer: PartsWriter,
        seen: tuple[SelfWatch, Counters | None],
        told: tuple[Span, Observed],
    ) -> None:
        parts = writer.flush()
        summary = summarise_point(self.launch.plan, point, writer.frame(), *seen, simulated=self.launch.simulated)
        self.points.commit(summary, self.options.attempt, parts, *told)


def _requests(prompts: Prompts, wanted: int | None) -> int:
    """Turns of a point: whole laps over the prompts, and the rest of one."""
    laps, rest = divmod(wanted if wanted is not None else len(prompts.rows), len(prompts.rows))
    return laps * prompts.turns + sum(len(prompt.turns) for prompt in prompts.rows[:rest])
