"""One point: warm-up if it is the launch's first, the load with its records leaving as they come, then the commit.

The summary is made between points, not beside the next one: what the client computes then would be measured there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench_api.outcome.manifest import Observed, StoredFile
from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.outcome.summary import Counters, SelfWatch
from specbench_api.plan.plan import Point
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.dialects.counters import difference
from specbench_client.drive.launch import Launch
from specbench_client.drive.loads import Loads
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import ProgressKeeper
from specbench_client.drive.warmup import warmup_prompts
from specbench_client.errors import EngineFailed
from specbench_client.load.budget import FailureBudget, FailureCount
from specbench_client.load.crew import Crew, Worked
from specbench_client.load.shares import Load
from specbench_client.load.steadiness import Bounds, Steadiness
from specbench_client.load.watch import Tally, WarmUp, self_watch
from specbench_client.metrics.frame import COLUMNS
from specbench_client.store.parts import PartsWriter
from specbench_client.store.point import PointStore, Span
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.reading import Prompt

ABANDON_PATIENCE_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measurement:
    """Measures points of one launch into a store."""

    launch: Launch
    points: PointStore
    options: DriveOptions
    keeper: ProgressKeeper
    loads: Loads
    crew: Crew

    async def measure(self, point: Point, prompts: Prompts, observed: Observed, *, warm_up: bool) -> None:
        """Measure and commit. Raises EngineFailed, NotDurable; whatever ends it, nothing half done becomes a result."""
        clock, load = self.options.clock, self.loads.of(point, len(prompts.rows))
        started_ns, started_wall = clock.monotonic_ns(), clock.wall_text()
        self.keeper.start_point(point, _requests(prompts, load))
        writer = self.points.open(point.hash, self.options.attempt)
        attempt = _Attempt(self, point, started_ns, writer)
        try:
            warmed = await attempt.warm_up(prompts) if warm_up else None
            schedule = await asyncio.to_thread(attempt.store_schedule, load)
            seen = await attempt.drive(load, prompts, warmed)
            self.keeper.phase = "storing"
            span = Span(started_ns, started_wall, clock.wall_text(), seen.load_started_ns)
            await asyncio.to_thread(attempt.commit, schedule, seen, span, observed)
        except BaseException:
            await asyncio.to_thread(writer.abandon, ABANDON_PATIENCE_S)
            raise
        writer.discard_spool()
        self.keeper.end_point()


@dataclass(frozen=True)
class _Seen:
    """What was seen of a load beside its records. `load_started_ns` counts from the point's start."""

    watch: SelfWatch
    counters: Counters | None
    load_started_ns: int


@dataclass(frozen=True)
class _Attempt:
    """One attempt at one point."""

    site: Measurement
    point: Point
    started_ns: int
    writer: PartsWriter

    async def warm_up(self, prompts: Prompts) -> WarmUp | None:
        """Send the warm-up until steps are steady; None where none is wanted."""
        loads, least = self.site.loads, self.site.launch.plan.load.warmup_requests
        if not least:
            return None
        bounds = Bounds.of(least, loads.warmup_streams(self.point))
        self.site.keeper.start_warmup(bounds.most)
        steadiness = Steadiness(bounds)

        def follow(record: Record) -> None:
            steadiness.add(record)
            if steadiness.reached:
                self.site.crew.no_more_conversations()

        load = loads.warm_up(self.point, bounds.most)
        await self._work(load, warmup_prompts(prompts.rows, bounds.most), RecordPhase.WARMUP, follow)
        steady = "steady" if steadiness.reached else "not steady"
        _log.info("warmed up: %s requests of %s at most, step times %s", steadiness.requests, bounds.most, steady)
        return WarmUp(steadiness.requests, steadiness.reached)

    def store_schedule(self, load: Load) -> list[StoredFile]:
        """What an open loop is going to do lies in the store before it does it. Blocks."""
        if load.times is None:
            return []
        times = load.times.tolist()
        return [self.site.points.put_schedule(self.point.hash, self.site.options.attempt, times, load.workers)]

    async def drive(self, load: Load, prompts: Prompts, warmed: WarmUp | None) -> _Seen:
        """The load itself, between two looks at the engine's counters."""
        launch, tally = self.site.launch, Tally()
        before = await launch.counters()
        self.site.keeper.start_load()
        worked = await self._work(load.filled(prompts.rows), prompts.rows, None, tally.add)
        await self._still_there()
        after = await launch.counters()
        counted = difference(before, after) if before is not None and after is not None else None
        watch = self_watch(worked.ended, worked.flown, tally, is_open=load.is_open, warm_up=warmed)
        return _Seen(watch, counted, worked.flown.begins_ns - self.started_ns)

    def commit(self, schedule: list[StoredFile], seen: _Seen, span: Span, observed: Observed) -> None:
        """Make it a result. Blocks."""
        parts, launch = self.writer.flush(), self.site.launch
        summary = summarise_point(
            launch.plan, self.point, self.writer.frames(COLUMNS), seen.watch, seen.counters, simulated=launch.simulated
        )
        self.site.points.commit(summary, self.site.options.attempt, [*schedule, *parts], span, observed)

    async def _work(
        self, load: Load, prompts: Sequence[Prompt], phase: RecordPhase | None, follow: Callable[[Record], None]
    ) -> Worked:
        """Have the crew do it; records are stored, shown, followed, and counted against the failure budget."""
        site, failures = self.site, FailureCount(FailureBudget(), self.site.launch.alive)

        async def take(records: Sequence[Record]) -> None:
            for record in records:
                self.writer.add(record)
                site.keeper.add(record)
                follow(record)
                await failures.add(record)

        prefix = f"{self.point.hash[:12]}-{site.options.attempt}{'-w' if phase else ''}"
        manner = site.launch.manner(self.point, self.started_ns, prefix, keep_text=site.options.keep_text)
        await site.crew.ready(load, manner, prompts, phase)
        return await site.crew.work(load, take)

    async def _still_there(self) -> None:
        """A few failed requests are the point's; an engine that died on the last ones would make it a result."""
        failed = self.site.keeper.look().requests_failed
        if failed and not await self.site.launch.alive():
            message = f"the engine stopped answering during the point: {failed} requests failed and it is not healthy"
            raise EngineFailed(message, EngineReason.LOST)


def _requests(prompts: Prompts, load: Load) -> int | None:
    """Turns of a point: whole laps over the prompts, and the rest of one; None where only time ends it."""
    if load.size is None:
        return None
    laps, rest = divmod(load.size, len(prompts.rows))
    return laps * prompts.turns + sum(len(prompt.turns) for prompt in prompts.rows[:rest])
