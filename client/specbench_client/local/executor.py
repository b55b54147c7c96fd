"""The plan, executed here: one engine group after the other, each in an engine process of its own.

The twin of what the operator does with pods. An engine that fails ends its arm and no other: what fails once by its
own fault would fail again. An engine that is merely lost is launched again, twice at most.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from specbench_api.launch.launch import Launch
from specbench_api.launch.table import LAUNCHERS
from specbench_api.plan.expand import launch_order
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.drive.arrivals import load_arrivals
from specbench_client.drive.fits import refuse_over_long
from specbench_client.drive.group import drive_group
from specbench_client.drive.options import DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.drive.prompted import load_prompted
from specbench_client.drive.resume import refuse_other_prompts
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.local.machine import RUNS_ALREADY, this_machine
from specbench_client.local.needs import lacks
from specbench_client.local.place import Place
from specbench_client.local.process import EngineProcess, local_command
from specbench_client.local.running import REACHED_WITHIN_S, RunningEngine
from specbench_client.store.locate import read_object
from specbench_client.store.manifests import read_manifests
from specbench_client.workload.prompts import load_prompts

LAUNCHES_MAX = 3


@dataclass(frozen=True)
class Here:
    """This machine's side of a run: where relative paths begin, where logs and unfinished parts are kept."""

    base_dir: Path
    work_dir: Path
    startup_deadline_s: float
    on_group: Callable[[EngineGroup], None] = lambda _: None
    on_progress: Callable[[Progress], None] | None = None
    keep_text: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request and kept nowhere: keys to an endpoint."""
    workers: int | None = None
    """Processes that drive the load; None: as many as it needs, one a core at most."""


async def execute(place: Place, here: Here) -> dict[str, EngineFailed]:
    """Measure every point that has no manifest. Returns the arms whose engine failed, each with its error.

    What was given is usable: see `refuse_unusable`.
    """
    broken: dict[str, EngineFailed] = {}
    for group in place.plan.groups:
        done = all(point.hash in place.measured for point in group.points)
        if done or group.arm in broken:
            continue
        here.on_group(group)
        failure = await _launch_until_served(place, group, here)
        if failure:
            broken[group.arm] = failure
    return broken


def refuse_unusable(place: Place, base_dir: Path) -> None:
    """Whatever is wrong with the input of a run, before an engine is asked anything and before a file is written.

    Prompts, trace, the schedule of every point, programs and models; of a finished run, whether the prompts are those
    that were measured. Blocks. Raises BadInput.
    """
    if place.finished:
        _refuse_other_prompts(place, base_dir)
    else:
        _refuse_early(place.plan, base_dir)


def _refuse_other_prompts(place: Place, base_dir: Path) -> None:
    """What is shown again was measured over these very prompts; files that are gone by now are not missed."""
    manifests = read_manifests(place.store, [point.hash for point in place.plan.points])
    for workload in place.plan.workloads:
        try:
            by_client = workload.client_template is not None
            prompts = load_prompts(workload.dataset, base_dir, read_object, with_tools=by_client)
        except BadInput:
            continue
        refuse_other_prompts(place.plan, manifests, workload.name, prompts)


def _refuse_early(plan: Plan, base_dir: Path) -> None:
    prompts = load_prompted(plan, [workload.name for workload in plan.workloads], base_dir, read_object)
    refuse_over_long(plan, prompts)
    arrivals = load_arrivals(plan, base_dir, read_object)
    for point in plan.points:
        arrivals.times(point, len(prompts[point.workload].prompts.rows))
    launches = [_launch_of(plan, arm.name) for arm in plan.arms] if plan.engine.endpoint is None else []
    for launch in launches:
        local_command(launch, port=0)
    missing = [line for launch in launches for line in lacks(launch, base_dir)]
    if missing:
        raise BadInput("\n".join(dict.fromkeys(missing)))


def _launch_of(plan: Plan, arm: str) -> Launch:
    return LAUNCHERS[plan.engine.kind].launch(launch_order(plan, plan.arm(arm)))


async def _launch_until_served(place: Place, group: EngineGroup, here: Here) -> EngineFailed | None:
    failure: EngineFailed | None = None
    for _ in range(LAUNCHES_MAX if place.plan.engine.endpoint is None else 1):  # what others started, they start again
        try:
            await _serve(place, group, here)
        except EngineFailed as error:
            failure = error
            if error.reason != EngineReason.LOST:
                return failure
        else:
            return None
    return failure


async def _serve(place: Place, group: EngineGroup, here: Here) -> None:
    plan = place.plan
    attempt = uuid.uuid4().hex[:8]
    runs_already = plan.engine.endpoint is not None
    options = DriveOptions(
        attempt=attempt,
        spool=here.work_dir / "spool",
        base_dir=here.base_dir,
        on_progress=here.on_progress,
        keep_text=here.keep_text,
        headers=here.headers,
        workers=here.workers,
        healthy_within_s=REACHED_WITHIN_S if runs_already else DriveOptions.healthy_within_s,
    )
    started = options.clock.wall_text()
    async with _engine(plan, group, here, attempt) as engine:
        await engine.wait_ready(here.startup_deadline_s)
        seen = RUNS_ALREADY if runs_already else await asyncio.to_thread(this_machine, engine.command, started)
        try:
            await drive_group(plan, group, engine.url, place.store, replace(options, place=seen))
        except EngineFailed as error:
            raise (await engine.explain()) or error from error


def _engine(plan: Plan, group: EngineGroup, here: Here, attempt: str) -> EngineProcess | RunningEngine:
    if plan.engine.endpoint is not None:
        return RunningEngine(plan.engine.endpoint)
    log = here.work_dir / "logs" / f"{group.index:03d}-{group.arm}-{attempt}.log"
    return EngineProcess(_launch_of(plan, group.arm), here.base_dir, log)
