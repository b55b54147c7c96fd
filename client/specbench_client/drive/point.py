"""Measures one point: warm-up (before the launch's first point), load with its records stored meanwhile, commit.

The summary is computed between two points and not during the next one, where it would affect the measurement.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from statistics import mean

from specbench_api.plan.plan import Point
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.point import summarise_point
from specbench_client.dialects.dialect import EngineCounters, counter_difference
from specbench_client.documents.manifest import PointProvenance, StoredFile
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.documents.summary import ClientHealth, CounterDeltas, PointSummary
from specbench_client.drive.engine_connection import EngineConnection
from specbench_client.drive.load_planning import FailureCounter, LoadPlanner
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import STORING, ProgressTracker
from specbench_client.drive.prompts import prompts_of_point
from specbench_client.errors import EngineFailed
from specbench_client.load.client_monitor import RecordTally, WarmupResult, summarize_client_health
from specbench_client.load.warmup import WarmupBounds, WarmupMonitor, warmup_prompts
from specbench_client.load.worker_pool import FinishedLoad, WorkerPool
from specbench_client.load.worker_shares import WorkerLoad
from specbench_client.metrics.tidy_frame import COLUMNS, tidy
from specbench_client.store.points import MeasurementSpan, PointStore
from specbench_client.store.records import RecordWriter
from specbench_client.workload.prompts import Prompts
from specbench_client.workload.row_parsing import Prompt

ABANDON_PATIENCE_S = 5.0
KV_CACHE_READINGS = 30
"""Readings of the KV-cache usage in a window of a soak test, each of the engine's metrics page."""
KV_CACHE_PAUSE_S = 1.0
"""Shortest time between two of them."""
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

    async def measure(
        self, point: Point, prompts: Prompts, observed: PointProvenance, *, warm_up: bool, interrupted_before: bool
    ) -> PointSummary:
        """Measure and commit a point; return its summary. Raises EngineFailed, NotDurable.

        After any error the point has no manifest. `observed`: the conditions. `interrupted_before`: see `ClientHealth`.
        """
        prompts = prompts_of_point(self.engine.plan, point, prompts)
        clock, load = self.options.clock, self.loads.of(point, len(prompts.rows))
        started_ns, started_wall = clock.monotonic_ns(), clock.wall_text()
        self.progress.start_point(point, _request_count(prompts, load))
        writer = self.points.open(point, self.options.attempt)
        attempt = _PointAttempt(self, point, started_ns, writer)
        try:
            warmed = await attempt.warm_up(prompts) if warm_up else None
            if self.engine.plan.empties_cache:
                await self.engine.empty_cache()
            schedule = await asyncio.to_thread(attempt.store_schedule, load)
            observations = await attempt.drive(load, prompts)
            self.progress.phase = STORING
            span = MeasurementSpan(
                started_ns, started_wall, clock.wall_text(), observations.load.timeline.begins_ns - started_ns
            )
            record_file = await asyncio.to_thread(writer.finish)
            load_per_core = None
            with suppress(OSError):  # not every system provides it
                load_per_core = os.getloadavg()[0] / (os.cpu_count() or 1)
            client = summarize_client_health(
                observations.load.ended,
                observations.load.timeline,
                observations.tally,
                is_open=load.is_open,
                has_slots=load.has_slots,
                warm_up=warmed,
                load_per_core=load_per_core,
                interrupted_before=interrupted_before,
            )
            summary = await asyncio.to_thread(
                attempt.commit, [*schedule, record_file], client, observations, span, observed
            )
        except BaseException:
            await asyncio.to_thread(writer.abandon, ABANDON_PATIENCE_S)
            raise
        self.progress.end_point()
        return summary


@dataclass(frozen=True)
class _LoadObservations:
    """What the client observed of a load and of the engine besides the records."""

    load: FinishedLoad
    tally: RecordTally
    counters: CounterDeltas | None
    kv_cache_usage: float | None


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
        streams = loads.warmup_streams(self.point)
        bounds = WarmupBounds.of(least, streams)
        self.measurement.progress.start_warmup(bounds.most)
        monitor = WarmupMonitor(bounds)

        def follow(record: Record) -> None:
            monitor.add(record)
            if monitor.reached:
                self.measurement.pool.no_more_conversations()

        load = loads.warm_up(self.point, bounds.most)
        await self._work(load, warmup_prompts(prompts.rows, bounds.most), RecordPhase.WARMUP, follow)
        _log.info(
            "warmed up: %s requests of %s at most, step times %s",
            monitor.requests,
            bounds.most,
            "steady" if monitor.reached else "not steady",
        )
        return WarmupResult(monitor.requests, monitor.reached)

    def store_schedule(self, load: WorkerLoad) -> list[StoredFile]:
        """Store the schedule of an open loop before it runs. Blocks."""
        if load.times is None:
            return []
        times = load.times.tolist()
        return [
            self.measurement.points.put_schedule(self.point.hash, self.measurement.options.attempt, times, load.workers)
        ]

    async def drive(self, load: WorkerLoad, prompts: Prompts) -> _LoadObservations:
        """Run the load, with the engine's counters read before and after it."""
        tally, before = RecordTally(), await self.measurement.engine.counters()
        self.measurement.progress.start_load()
        async with self._kv_cache_readings(before) as readings:
            result = await self._work(load.filled(prompts.rows), prompts.rows, None, tally.add)
        await self._check_engine_alive()
        after = await self.measurement.engine.counters(before.started_s if before is not None else None)
        counters = counter_difference(before, after) if before is not None and after is not None else None
        usage = mean(readings) if readings else None
        return _LoadObservations(result, tally, counters, usage)

    @asynccontextmanager
    async def _kv_cache_readings(self, before: EngineCounters | None) -> AsyncIterator[list[float]]:
        """Yield a list to which the engine's KV-cache usage is added regularly; only in a soak test.

        `before`: the counters before the load; nothing is read without them, or if they lack the usage.
        """
        readings: list[float] = []
        if not self.measurement.engine.plan.soaks or before is None or before.kv_cache_usage is None:
            yield readings
            return
        window_s = self.measurement.engine.plan.load.duration_seconds or 0
        pause_s = max(window_s / KV_CACHE_READINGS, KV_CACHE_PAUSE_S)

        async def read() -> None:
            while True:
                await asyncio.sleep(pause_s)
                counters = await self.measurement.engine.counters()
                if counters is not None and counters.kv_cache_usage is not None:
                    readings.append(counters.kv_cache_usage)

        reading = asyncio.create_task(read())
        try:
            yield readings
        finally:
            reading.cancel()

    def commit(
        self,
        files: list[StoredFile],
        client: ClientHealth,
        observations: _LoadObservations,
        span: MeasurementSpan,
        observed: PointProvenance,
    ) -> PointSummary:
        """Store summary and manifest; return the summary. Blocks.

        `files`: the schedule and the records.
        """
        engine, points = self.measurement.engine, self.measurement.points
        rows = tidy(points.read_files(self.point.hash, files, COLUMNS), self.point.hash)
        summary = summarise_point(
            engine.plan, self.point, rows, client, observations.counters, simulated=engine.simulated
        ).model_copy(update={"engine_launch": self._engine_launch, "kv_cache_usage": observations.kv_cache_usage})
        points.commit(summary, self.measurement.options.attempt, files, span, observed)
        return summary

    @property
    def _engine_launch(self) -> str | None:
        """The launch of the engine, which a client that was started again continues; None for a running server."""
        attempt = self.measurement.options.attempt
        return None if self.measurement.engine.plan.keeps_running else attempt.rpartition("-")[0] or attempt

    async def _work(
        self, load: WorkerLoad, prompts: Sequence[Prompt], phase: RecordPhase | None, follow: Callable[[Record], None]
    ) -> FinishedLoad:
        """Run a load on the pool; each record is stored, shown in the progress, passed to `follow` and counted."""
        measurement = self.measurement
        failures = FailureCounter(measurement.engine.alive)

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
