"""Drives the points of one engine group against an engine that runs, and stores them: the client Job's whole work.

In order: prompts read and the store claimed (what is wrong with the input shows before an engine is asked anything),
the engine's first real completion, the comparison with what earlier launches saw, then point by point those that have
no manifest yet. Cancelling is how it is interrupted: the open point leaves no manifest, all others stay.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import specbench_client
from specbench_api.outcome.manifest import Observed
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.dialects.table import DIALECTS
from specbench_client.drive.launch import Launch, first_act, identify, served_model
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.point import Measurement
from specbench_client.drive.progress import PROGRESS, ProgressKeeper
from specbench_client.drive.resume import claim, refuse_changed
from specbench_client.errors import NotDurable
from specbench_client.store.patience import Patience, PatientStore
from specbench_client.store.point import PointStore
from specbench_client.store.store import Store
from specbench_client.transport.control import Control
from specbench_client.workload.prompts import Prompts, load_prompts

STORE_PROGRESS_EVERY = 3
"""Looks; each is a small upload beside the measurement."""
CLAIM_PATIENCE_S = 60.0
"""A wrong endpoint looks like one that is away; before the first request, nothing is lost by giving up sooner."""
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
        return await _drive(plan, group, endpoint, (store, stop), options)
    finally:
        stop.set()  # no thread waits for a store any longer than we do


async def _drive(
    plan: Plan, group: EngineGroup, endpoint: str, where: tuple[Store, threading.Event], options: DriveOptions
) -> GroupResult:
    store, stop = where
    prompts = await asyncio.to_thread(_prompts, plan, group, options)
    hasty = Patience(deadline_s=min(options.patience_s, CLAIM_PATIENCE_S), pause_s=stop.wait)
    await asyncio.to_thread(claim, plan, PatientStore(store, hasty))
    patient = PatientStore(store, replace(hasty, deadline_s=options.patience_s))
    points = PointStore(patient, options.spool, options.limits)
    found = await asyncio.to_thread(points.measured, [point.hash for point in group.points])
    todo = [point for point in group.points if point.hash not in found]
    keeper = ProgressKeeper(group, len(found), options.clock.monotonic_ns)
    if todo:
        async with _shown(keeper, store, options), _launched(plan, group, endpoint, options) as launch:
            await first_act(launch, options.clock.monotonic_ns, f"g{group.index}-{options.attempt}")
            observed = {name: _observed(launch, group, had, options) for name, had in prompts.items()}
            await asyncio.to_thread(_refuse_changed, plan, points, observed)
            measurement = Measurement(launch, points, options, keeper)
            for point in todo:
                _log.info("measuring %s", point.model_dump_json())
                prompted, seen = prompts[point.workload], observed[point.workload]
                await measurement.measure(point, prompted, seen, warm_up=point is todo[0])
            keeper.phase = "done"
    return GroupResult(tuple(point.hash for point in todo), tuple(sorted(found)))


def _prompts(plan: Plan, group: EngineGroup, options: DriveOptions) -> dict[str, Prompts]:
    names = dict.fromkeys(point.workload for point in group.points)
    return {name: load_prompts(plan.workload(name).dataset, options.base_dir, options.fetch) for name in names}


def _observed(launch: Launch, group: EngineGroup, prompts: Prompts, options: DriveOptions) -> Observed:
    return Observed(
        dataset_fingerprint=prompts.fingerprint,
        prompts=len(prompts.rows),
        engine_version=launch.identity.version,
        engine_model=launch.identity.model,
        client_version=specbench_client.__version__,
        launch=f"{group.index}-{options.attempt}",
    )


def _refuse_changed(plan: Plan, points: PointStore, observed: Mapping[str, Observed]) -> None:
    refuse_changed(plan, points.manifests([point.hash for point in plan.points]), observed)


@asynccontextmanager
async def _launched(plan: Plan, group: EngineGroup, endpoint: str, options: DriveOptions) -> AsyncIterator[Launch]:
    arm = plan.arm(group.arm)
    dialect = options.dialect or DIALECTS[plan.engine.kind]
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(Control(endpoint))
        transport = await stack.enter_async_context(options.transport())
        await control.wait_healthy(dialect.health_path, options.healthy_within_s)
        identity = await identify(control, dialect)
        model = served_model(plan, arm)
        yield Launch(plan, arm, endpoint.rstrip("/"), model, dialect, transport, control, identity)


@asynccontextmanager
async def _shown(keeper: ProgressKeeper, store: Store, options: DriveOptions) -> AsyncIterator[None]:
    """Show progress meanwhile, and once more at a good end."""
    writer = ThreadPoolExecutor(1, "progress")  # one thread: an older look never replaces a newer one
    board = _Board(keeper, store, options, writer)
    showing = asyncio.create_task(board.show_on())
    try:
        yield
        await board.show(stored=True)
    finally:
        showing.cancel()
        writer.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Board:
    keeper: ProgressKeeper
    store: Store
    options: DriveOptions
    writer: ThreadPoolExecutor

    async def show_on(self) -> None:
        for looks in itertools.count():
            await self.show(stored=looks % STORE_PROGRESS_EVERY == 0)
            await asyncio.sleep(self.options.show_every_s)

    async def show(self, *, stored: bool) -> None:
        look = self.keeper.look()
        if self.options.on_progress is not None:
            self.options.on_progress(look)
        if stored:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.writer, self._store, look.to_json().encode())

    def _store(self, data: bytes) -> None:
        try:
            self.store.replace(PROGRESS, data)
        except NotDurable as refused:
            # Progress is for onlookers. A store that stays away ends the group where a result needs it.
            _log.warning("progress could not be stored: %s", refused)
