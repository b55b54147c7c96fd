"""Measures one point: warm-up (before the launch's first point), load with its records stored meanwhile, commit.

The summary is computed between two points and not during the next one, where it would affect the measurement.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specbench_api.outcome.manifest import PointProvenance, StoredFile
from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.outcome.summary import ClientHealth, CounterDeltas
from specbench_api.plan.plan import Point
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.point import summarise_rows
from specbench_client.dialects.dialect import counter_difference
from specbench_client.drive.engine_connection import EngineConnection
from specbench_client.drive.failure_budget import FailureCounter
from specbench_client.drive.load_planning import LoadPlanner
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import ProgressTracker
from specbench_client.errors import EngineFailed
from specbench_client.load.client_monitor import RecordTally, WarmupResult, summarize_client_health
from specbench_client.load.load_shares import WorkerLoad
from specbench_client.load.warmup import WarmupBounds, WarmupMonitor, warmup_prompts
from specbench_client.load.worker_pool import LoadResult, WorkerPool
from specbench_client.metrics.tidy_frame import COLUMNS, stored_columns, tidy
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.records import RecordWriter
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt

ABANDON_PATIENCE_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PointMeasurement:
    """Measures points of one launch into a store."""

    engine: EngineConnection
    points: PointStore
    options: DriveOptions
    progress: ProgressTracker
    loads: LoadPlanner
    pool: WorkerPool

    async def measure(self, point: Point, prompts: Prompts, observed: PointProvenance, *, warm_up: bool) -> None:
        """Measure and commit a point. After any error the point has no manifest. Raises EngineFailed, NotDurable."""
        clock, load = self.options.clock, self.loads.of(point, len(prompts.rows))
        started_ns, started_wall = clock.monotonic_ns(), clock.wall_text()
        self.progress.start_point(point, _request_count(prompts, load))
        writer = self.points.open(point.hash, self.options.attempt)
        attempt = _PointAttempt(self, point, started_ns, writer)
        try:
            warmed = await attempt.warm_up(prompts) if warm_up else None
            schedule = await asyncio.to_thread(attempt.store_schedule, load)
            observations = await attempt.drive(load, prompts, warmed)
            self.progress.phase = "storing"
            span = MeasurementSpan(started_ns, started_wall, clock.wall_text(), observations.load_started_ns)
            await asyncio.to_thread(attempt.commit, schedule, observations, span, observed)
        except BaseException:
            await asyncio.to_thread(writer.abandon, ABANDON_PATIENCE_S)
            raise
        writer.discard_spool()
        self.progress.end_point()


@dataclass(frozen=True)
class _LoadObservations:
    """Observations of a load besides its records. `load_started_ns` counts from the point's start."""

    client: ClientHealth
    counters: CounterDeltas | None
    load_started_ns: int


@dataclass(frozen=True)
class _PointAttempt:
    """One attempt at one point."""

    measurement: PointMeasurement
    point: Point
    started_ns: int
    writer: RecordWriter

    async def warm_up(self, prompts: Prompts) -> WarmupResult | None:
        """Run the warm-up until step times are steady; None if the plan has no warm-up."""
        loads, least = self.measurement.loads, self.measurement.engine.plan.load.warmup_requests
        if not least:
            return None
        bounds = WarmupBounds.of(least, loads.warmup_streams(self.point))
        self.measurement.progress.start_warmup(bounds.most)
        monitor = WarmupMonitor(bounds)

        def follow(record: Record) -> None:
            monitor.add(record)
            if monitor.reached:
                self.measurement.pool.no_more_conversations()

        load = loads.warm_up(self.point, bounds.most)
        await self._work(load, warmup_prompts(prompts.rows, bounds.most), RecordPhase.WARMUP, follow)
        steady = "steady" if monitor.reached else "not steady"
        _log.info("warmed up: %s requests of %s at most, step times %s", monitor.requests, bounds.most, steady)
        return WarmupResult(monitor.requests, monitor.reached)

    def store_schedule(self, load: WorkerLoad) -> list[StoredFile]:
        """Store the schedule of an open loop before it runs. Blocks."""
        if load.times is None:
            return []
        times = load.times.tolist()
        return [
            self.measurement.points.put_schedule(self.point.hash, self.measurement.options.attempt, times, load.workers)
        ]

    async def drive(self, load: WorkerLoad, prompts: Prompts, warmed: WarmupResult | None) -> _LoadObservations:
        """Run the load, with the engine's counters read before and after it."""
        engine, tally = self.measurement.engine, RecordTally()
        before = await engine.counters()
        self.measurement.progress.start_load()
        result = await self._work(load.filled(prompts.rows), prompts.rows, None, tally.add)
        await self._check_engine_alive()
        after = await engine.counters()
        counters = counter_difference(before, after) if before is not None and after is not None else None
        client = summarize_client_health(result.ended, result.timeline, tally, is_open=load.is_open, warm_up=warmed)
        return _LoadObservations(client, counters, result.timeline.begins_ns - self.started_ns)

    def commit(
        self,
        schedule: list[StoredFile],
        observations: _LoadObservations,
        span: MeasurementSpan,
        observed: PointProvenance,
    ) -> None:
        """Store tidy rows, summary and manifest. Blocks."""
        parts, engine = self.writer.flush(), self.measurement.engine
        points, attempt = self.measurement.points, self.measurement.options.attempt
        rows = tidy(self.writer.frames(COLUMNS), self.point.hash)
        row_files = points.put_rows(self.point.hash, attempt, stored_columns(rows))
        summary = summarise_rows(
            engine.plan, self.point, rows, observations.client, observations.counters, simulated=engine.simulated
        )
        points.commit(summary, attempt, [*schedule, *parts, *row_files], span, observed)

    async def _work(
        self, load: WorkerLoad, prompts: Sequence[Prompt], phase: RecordPhase | None, follow: Callable[[Record], None]
    ) -> LoadResult:
        """Run a load on the pool; each record is stored, shown in the progress, passed to `follow` and counted."""
        measurement = self.measurement
        failures = FailureCounter(measurement.loads.failure_budget, measurement.engine.alive)

        async def take(records: Sequence[Record]) -> None:
            for record in records:
                self.writer.add(record)
                measurement.progress.add(record)
                follow(record)
                await failures.add(record)

        prefix = f"{self.point.hash[:12]}-{measurement.options.attempt}{'-w' if phase else ''}"
        request_config = measurement.engine.request_config(
            self.point, self.started_ns, prefix, keep_text=measurement.options.client.keep_text
        )
        await measurement.pool.prepare(load, request_config, prompts, phase)
        return await measurement.pool.run(load, take)

    async def _check_engine_alive(self) -> None:
        """Raise EngineFailed(LOST) if requests failed and the engine is not healthy.

        A point may contain a few failed requests, but must not become a result if the engine died on the last ones.
        """
        failed = self.measurement.progress.current().requests_failed
        if failed and not await self.measurement.engine.alive():
            message = f"the engine stopped answering during the point: {failed} requests failed and it is not healthy"
            raise EngineFailed(message, EngineReason.LOST)


def _request_count(prompts: Prompts, load: WorkerLoad) -> int | None:
    """Return the number of turns of a point: whole laps over the prompts and a part of one; None without a limit."""
    if load.size is None:
        return None
    laps, rest = divmod(load.size, len(prompts.rows))
    return laps * prompts.turns + sum(len(prompt.turns) for prompt in prompts.rows[:rest])
