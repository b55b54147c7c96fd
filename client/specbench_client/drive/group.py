"""Drives the points of one engine group against an engine that runs, and stores them: the client Job's whole work.

In order: what is measured already, prompts and trace read and the store claimed (what is wrong with the input shows
before an engine is asked anything; a group that is finished needs neither prompts nor engine), the engine's first real
completion, the comparison with what earlier launches saw, all that it tells of itself, the workers started, then point
by point those that have no manifest yet. Cancelling is how it is interrupted: the open point leaves no manifest, all
others stay. Whatever ends it ends the workers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

import specbench_client
from specbench_api.outcome.facts import FactName
from specbench_api.outcome.layout import launch_key
from specbench_api.outcome.manifest import Observed
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_client.dialects.table import dialect_of
from specbench_client.drive.arrivals import load_arrivals
from specbench_client.drive.fits import refuse_over_long
from specbench_client.drive.launch import Launch, first_act, identify, if_absent, served_model
from specbench_client.drive.loads import Loads
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.point import Measurement
from specbench_client.drive.progress import PROGRESS, ProgressKeeper
from specbench_client.drive.prompted import Prompted, load_prompted
from specbench_client.drive.resume import claim, refuse_changed
from specbench_client.drive.seen import launched
from specbench_client.errors import NotDurable
from specbench_client.load.cores import usable_cores
from specbench_client.load.crew import Crew
from specbench_client.store.patience import Patience, PatientStore
from specbench_client.store.point import PointStore
from specbench_client.store.store import Store
from specbench_client.transport.control import Control

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
        return await _Drive(plan, group, endpoint, store, options, stop).run()
    finally:
        stop.set()  # no thread waits for a store any longer than we do


@dataclass(frozen=True)
class _Drive:
    """One call of `drive_group`. Blocking work is done in threads; `stop` ends their waiting."""

    plan: Plan
    group: EngineGroup
    endpoint: str
    store: Store
    options: DriveOptions
    stop: threading.Event

    async def run(self) -> GroupResult:
        first = self._patient(min(self.options.patience_s, CLAIM_PATIENCE_S))
        wanted = [point.hash for point in self.group.points]
        found = await asyncio.to_thread(PointStore(first, self.options.spool).manifests, wanted)
        todo = [point for point in self.group.points if point.hash not in found]
        inputs = await asyncio.to_thread(self._inputs) if todo else None
        await asyncio.to_thread(claim, self.plan, first)
        points = PointStore(self._patient(self.options.patience_s), self.options.spool, self.options.limits)
        keeper = ProgressKeeper(self.group, len(found), self.options.clock.monotonic_ns, attempt=self.options.attempt)
        if inputs is not None:
            async with _shown(keeper, self.store, self.options) as board, self._launched(inputs) as launch:
                observed = await self._met(launch, points, inputs)
                async with Crew(inputs.crew_size) as crew:
                    measurement = Measurement(launch, points, self.options, keeper, inputs.loads, crew)
                    for point in todo:
                        _log.info("measuring %s", point.model_dump_json())
                        prompted, seen = inputs.prompts[point.workload], observed[point.workload]
                        await measurement.measure(point, prompted.prompts, seen, warm_up=point is todo[0])
                        await board.show(stored=False)
                keeper.phase = "done"
        return GroupResult(tuple(point.hash for point in todo), tuple(sorted(found)))

    async def _met(self, launch: Launch, points: PointStore, inputs: _Inputs) -> dict[str, Observed]:
        """The first completion, and what is seen by workload, compared with what the run saw before."""
        await first_act(launch, self.options.clock.monotonic_ns, f"g{self.group.index}-{self.options.attempt}")
        observed = {name: self._observed(launch, inputs, name) for name in inputs.prompts}
        manifests = await asyncio.to_thread(points.manifests, [point.hash for point in self.plan.points])
        refuse_changed(self.plan, manifests, observed)
        await self._keep_seen(launch, points.store)
        return observed

    async def _keep_seen(self, launch: Launch, store: Store) -> None:
        """What is seen of the launch lies in the store before anything is measured in it."""
        asked = self.options.clock.wall_text()
        seen = await launched(launch, self.group, self._launch_name, self.options.place, asked)
        await asyncio.to_thread(store.put, launch_key(seen.launch), seen.to_json().encode())

    @property
    def _launch_name(self) -> str:
        return f"{self.group.index}-{self.options.attempt}"

    def _patient(self, deadline_s: float) -> PatientStore:
        return PatientStore(self.store, Patience(deadline_s=deadline_s, pause_s=self.stop.wait))

    def _inputs(self) -> _Inputs:
        """Everything that a user gave, read and found usable. Raises BadInput."""
        names = dict.fromkeys(point.workload for point in self.group.points)
        options = self.options
        prompts = load_prompted(self.plan, names, options.base_dir, options.fetch)
        refuse_over_long(self.plan, prompts)
        arrivals = load_arrivals(self.plan, options.base_dir, options.fetch)
        loads = Loads(self.plan, arrivals, usable_cores(), options.workers)
        size = loads.crew_size(self.group.points, {name: len(one.prompts.rows) for name, one in prompts.items()})
        return _Inputs(prompts, loads, size)

    def _observed(self, launch: Launch, inputs: _Inputs, workload: str) -> Observed:
        prompted, digest = inputs.prompts[workload], self.options.place.value(FactName.IMAGE_DIGEST)
        return Observed(
            dataset_fingerprint=prompted.prompts.fingerprint,
            prompts=len(prompted.prompts.rows),
            coverage=prompted.prompts.coverage,
            chat_template_sha256=prompted.template.template_sha256 if prompted.template else None,
            tokenizer_sha256=prompted.template.tokenizer_sha256 if prompted.template else None,
            trace_fingerprint=inputs.loads.arrivals.trace_fingerprint,
            engine_version=launch.identity.version,
            engine_model=launch.identity.model,
            image_digest=digest if isinstance(digest, str) else None,
            client_version=specbench_client.__version__,
            launch=self._launch_name,
        )

    @asynccontextmanager
    async def _launched(self, inputs: _Inputs) -> AsyncIterator[Launch]:
        arm, dialect = self.plan.arm(self.group.arm), dialect_of(self.plan.engine)
        templates = {name: one.template for name, one in inputs.prompts.items()}
        async with Control(self.endpoint, headers=self.options.headers) as control:
            await control.wait_healthy(dialect.health_path, self.options.healthy_within_s, if_absent(self.plan.engine))
            identity, model = await identify(control, dialect), served_model(self.plan, arm)
            endpoint, headers = self.endpoint.rstrip("/"), self.options.headers
            yield Launch(self.plan, arm, endpoint, model, dialect, control, identity, headers, templates)


@dataclass(frozen=True)
class _Inputs:
    """The prompts by workload, how every point is driven, and how many workers that takes."""

    prompts: Mapping[str, Prompted]
    loads: Loads
    crew_size: int


@asynccontextmanager
async def _shown(keeper: ProgressKeeper, store: Store, options: DriveOptions) -> AsyncIterator[_Board]:
    """Show progress meanwhile, and once more at a good end."""
    writer = ThreadPoolExecutor(1, "progress")  # one thread: an older look never replaces a newer one
    board = _Board(keeper, store, options, writer)
    showing = asyncio.create_task(board.show_on())
    try:
        yield board
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
