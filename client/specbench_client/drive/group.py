"""Measures the points of one engine group against a running engine and stores them: the work of a client Job.

The steps, in order: find the points that are measured already; read prompts and trace, and claim the store, so that
invalid input is reported before any request (a finished group needs neither prompts nor engine); take a first
completion; compare the engine with what earlier launches observed; record the facts of the launch; start the workers;
then measure each point without a manifest. Cancelling interrupts it: the current point leaves no manifest, all others
are kept. The workers always end with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import specbench_client
from specbench_api.outcome.layout import LAUNCHES, ended_key, launch_key
from specbench_api.outcome.provenance import FactName
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.analysis.summary.trends import acceptance_trend, has_decayed, reduced_to_acceptance
from specbench_client.dialects.registry import dialect_of
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.documents.summary import PointSummary
from specbench_client.drive.engine_connection import (
    EngineConnection,
    check_first_completion,
    first_messages,
    identify_engine,
    observe_launch,
    served_model,
)
from specbench_client.drive.load_planning import LoadPlanner, load_arrival_plan
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.point import PointMeasurement
from specbench_client.drive.progress import PROGRESS, ProgressTracker
from specbench_client.drive.prompts import WorkloadPrompts, load_workload_prompts
from specbench_client.drive.resume import claim_store, reject_changed_inputs
from specbench_client.errors import NotDurable
from specbench_client.load.machine_limits import usable_cores
from specbench_client.load.worker_pool import WorkerPool
from specbench_client.store.points import PointStore
from specbench_client.store.retrying import RetryingStore, RetryPolicy
from specbench_client.store.store import Store
from specbench_client.transport.control_client import ControlClient

STORE_PROGRESS_EVERY = 3
"""Progress is stored at every third update; each is a small upload during the measurement."""
CLAIM_PATIENCE_S = 60.0
"""A wrong S3 endpoint looks like one that is unavailable; before the first request, giving up sooner costs nothing."""
_VERSION = specbench_client.__version__
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupResult:
    """Points of the group by hash: measured now, and found measured already."""

    measured: tuple[str, ...]
    found: tuple[str, ...]


async def drive_group(
    plan: Plan, group: EngineGroup, endpoint: str, store: Store, options: DriveOptions
) -> GroupResult:
    """Measure every point of the group that has no manifest. `store`: the run's root.

    Raises BadInput, EngineFailed, NotDurable. Points that were committed before stay.
    """
    stop = threading.Event()
    try:
        return await _GroupDriver(plan, group, endpoint, store, options, stop).run()
    finally:
        stop.set()  # Ends all threads that are waiting for an unavailable store.


@dataclass(frozen=True)
class _GroupDriver:
    """One call of `drive_group`. Blocking work runs in threads; `stop` ends their waiting for the store."""

    plan: Plan
    group: EngineGroup
    endpoint: str
    store: Store
    options: DriveOptions
    stop: threading.Event

    async def run(self) -> GroupResult:
        first = self._retrying_store(min(self.options.patience_s, CLAIM_PATIENCE_S))
        hashes = [point.hash for point in self.group.points]
        found = await asyncio.to_thread(PointStore(first).manifests, hashes)
        todo = [point for point in self.group.points if point.hash not in found]
        measured: list[str] = []
        inputs = await asyncio.to_thread(self._inputs) if todo else None
        await asyncio.to_thread(claim_store, self.plan, first)
        points = PointStore(self._retrying_store(self.options.patience_s))
        progress = ProgressTracker(
            self.group, len(found), self.options.clock.monotonic_ns, attempt=self.options.attempt
        )
        if inputs is not None:
            async with (
                _publish_progress(progress, self.store, self.options) as publisher,
                self._connected(inputs) as engine,
            ):
                # An engine that specbench launches or restarts is new after an interruption, and has no prompts.
                may_know_prompts = self.plan.keeps_running and bool(
                    await asyncio.to_thread(points.store.keys, f"{LAUNCHES}/{self.group.index}-")
                )
                observed = await self._check_engine(engine, points, inputs)
                async with WorkerPool(inputs.pool_size) as pool:
                    measurement = PointMeasurement(engine, points, self.options, progress, inputs.loads, pool)
                    windows = await asyncio.to_thread(self._windows, points, found.values())
                    progress.trend = acceptance_trend(windows)
                    for point in todo:
                        if self.plan.stop == "WhenDecayed" and has_decayed(windows):
                            key = ended_key(self.group.index, len(windows))
                            await asyncio.to_thread(points.store.replace, key, b"{}")
                            break
                        rest = point.model_dump_json(exclude={"hash"})
                        _log.info("measuring points/%s: %s", point.hash, rest)  # redaction keeps a hash in a path
                        summary = await measurement.measure(
                            point,
                            inputs.prompts[point.workload].prompts,
                            observed[point.workload],
                            warm_up=self.options.warm_up and point is todo[0],
                            interrupted_before=may_know_prompts and point is todo[0],
                        )
                        measured.append(point.hash)
                        if self.plan.soaks:
                            windows.append(reduced_to_acceptance(summary))
                            progress.trend = acceptance_trend(windows)
                        await publisher.show(stored=False)
                progress.phase = "done"
        return GroupResult(tuple(measured), tuple(sorted(found)))

    def _windows(self, points: PointStore, found: Iterable[Manifest]) -> list[PointSummary]:
        """Return the stored windows of a soak test, reduced. Blocks."""
        return [reduced_to_acceptance(points.read_summary(manifest)) for manifest in found] if self.plan.soaks else []

    async def _check_engine(
        self, engine: EngineConnection, points: PointStore, inputs: _GroupInputs
    ) -> dict[str, PointProvenance]:
        """Take a first completion and return the provenance by workload, compared with that of earlier points."""
        for number, (name, prompted) in enumerate(inputs.prompts.items()):
            prefix = f"g{self.group.index}-{self.options.attempt}{f'-{number}' if number else ''}"
            first = await check_first_completion(engine, name, first_messages(prompted.prompts), prefix)
        observed = {name: self._observed(engine, inputs, name) for name in inputs.prompts}
        manifests = await asyncio.to_thread(points.manifests, [point.hash for point in self.plan.points])
        reject_changed_inputs(self.plan, manifests, observed, self.group.arm)
        await self._store_launch_facts(engine, points.store, first.served_by)
        return observed

    async def _store_launch_facts(self, engine: EngineConnection, store: Store, served_by: str | None) -> None:
        """Store the facts of the launch before anything is measured in it."""
        queried_at = self.options.clock.wall_text()
        record = await observe_launch(
            engine, self.group, self._launch_name, self.options.place, queried_at, served_by=served_by
        )
        await asyncio.to_thread(store.put, launch_key(record.launch), record.to_json().encode())

    @property
    def _launch_name(self) -> str:
        return f"{self.group.index}-{self.options.attempt}"

    def _retrying_store(self, deadline_s: float) -> RetryingStore:
        return RetryingStore(self.store, RetryPolicy(deadline_s=deadline_s, pause_s=self.stop.wait))

    def _inputs(self) -> _GroupInputs:
        """Read and validate everything that the user gave. Raises BadInput."""
        names = dict.fromkeys(point.workload for point in self.group.points)
        options = self.options
        prompts = load_workload_prompts(self.plan, names, options.base_dir)
        arrivals = load_arrival_plan(self.plan, options.base_dir, prompts)
        loads = LoadPlanner(self.plan, arrivals, usable_cores(), options.client.workers)
        size = loads.pool_size(self.group.points, {name: len(one.prompts.rows) for name, one in prompts.items()})
        return _GroupInputs(prompts, loads, size)

    def _observed(self, engine: EngineConnection, inputs: _GroupInputs, workload: str) -> PointProvenance:
        prompted, digest = inputs.prompts[workload], self.options.place.value(FactName.IMAGE_DIGEST)
        return PointProvenance(
            dataset_fingerprint=prompted.prompts.fingerprint,
            prompts=len(prompted.prompts.rows),
            coverage=prompted.prompts.coverage,
            chat_template_sha256=prompted.template.template_sha256 if prompted.template else None,
            tokenizer_sha256=prompted.template.tokenizer_sha256 if prompted.template else None,
            trace_fingerprint=inputs.loads.arrivals.trace_fingerprint,
            engine_version=engine.identity.version,
            engine_model=engine.identity.model,
            image_digest=digest if isinstance(digest, str) else None,
            client_version=_VERSION,
            launch=self._launch_name,
        )

    @asynccontextmanager
    async def _connected(self, inputs: _GroupInputs) -> AsyncIterator[EngineConnection]:
        arm = self.plan.arm(self.group.arm)
        engine = self.plan.engine_of(arm)
        dialect = dialect_of(engine)
        templates = {name: one.template for name, one in inputs.prompts.items()}
        async with ControlClient(self.endpoint, headers=self.options.client.headers) as control:
            await control.wait_healthy(dialect.health_path, self.options.healthy_within_s, may_lack=engine.is_external)
            identity, model = await identify_engine(control, dialect), served_model(self.plan, arm)
            headers = self.options.client.headers
            yield EngineConnection(self.plan, arm, self.endpoint, model, dialect, control, identity, headers, templates)


@dataclass(frozen=True)
class _GroupInputs:
    """The prompts by workload, the loads of all points, and the number of workers that they need."""

    prompts: Mapping[str, WorkloadPrompts]
    loads: LoadPlanner
    pool_size: int


@asynccontextmanager
async def _publish_progress(
    progress: ProgressTracker, store: Store, options: DriveOptions
) -> AsyncIterator[_ProgressPublisher]:
    """Publish progress regularly, and once more at a successful end."""
    writer = ThreadPoolExecutor(1, "progress")  # One thread, so that older progress never replaces newer progress.
    publisher = _ProgressPublisher(progress, store, options, writer)
    showing = asyncio.create_task(publisher.show_on())
    try:
        yield publisher
        showing.cancel()  # Otherwise it could start an upload that ends after the last one.
        await publisher.show(stored=True)
    finally:
        showing.cancel()
        writer.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _ProgressPublisher:
    progress: ProgressTracker
    store: Store
    options: DriveOptions
    writer: ThreadPoolExecutor

    async def show_on(self) -> None:
        for number in itertools.count():
            await self.show(stored=number % STORE_PROGRESS_EVERY == 0)
            await asyncio.sleep(self.options.show_every_s)

    async def show(self, *, stored: bool) -> None:
        progress = self.progress.current()
        if self.options.on_progress is not None:
            self.options.on_progress(progress)
        if stored:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.writer, self._store, progress.to_json().encode())

    def _store(self, data: bytes) -> None:
        try:
            self.store.replace(PROGRESS, data)
        except NotDurable as error:
            # Progress is informational. A store that stays unavailable ends the group when a result must be stored.
            _log.warning("progress could not be stored: %s", error)
