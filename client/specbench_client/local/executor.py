"""Executes a plan on this machine: one engine group after the other, each with its own engine process.

This is the local counterpart of the operator. A failed engine ends its arm only, without a retry, because it would fail
again. An engine that was lost is launched again, at most twice.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from specbench_api.launch.launcher import LaunchSpec
from specbench_api.launch.registry import LAUNCHERS
from specbench_api.outcome.provenance import ENDPOINT_WHEREABOUTS
from specbench_api.plan.expansion import launch_order, planned_launches
from specbench_api.plan.plan import LAUNCHES_MAX, EngineGroup, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.trends import has_decayed
from specbench_client.drive.group import drive_group
from specbench_client.drive.load_planning import load_arrival_plan
from specbench_client.drive.options import ClientOptions, DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.drive.prompts import load_workload_prompts, reject_too_long_prompts
from specbench_client.drive.resume import reject_changed_prompts
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.local.engine_process import (
    CONNECT_WITHIN_S,
    EngineProcess,
    ExternalEngine,
    local_command,
    missing_prerequisites,
    refused_variables,
)
from specbench_client.local.host_facts import observe_machine
from specbench_client.local.local_runs import LocalRun
from specbench_client.store.locations import read_object
from specbench_client.store.points import PointStore, read_manifests
from specbench_client.workload.dataset_files import reject_missing_prompts
from specbench_client.workload.prompts import load_workload


@dataclass(frozen=True)
class LocalOptions:
    """Local options of a run. `base_dir`: folder of relative paths; `work_dir`: for logs and spooled parts."""

    base_dir: Path
    work_dir: Path
    startup_deadline_s: float
    on_group: Callable[[EngineGroup], None] = lambda _: None
    on_progress: Callable[[Progress], None] | None = None
    client: ClientOptions = field(default_factory=ClientOptions)
    warm_up: bool = True
    is_decided: Callable[[LocalRun], bool] = lambda _: False
    """Whether a run with a stop rule may end; asked after each group. Blocks."""


async def execute_locally(run: LocalRun, local_options: LocalOptions) -> dict[str, EngineFailed]:
    """Measure every point without a manifest. Returns the arms whose engine failed, with the error.

    Call `validate_inputs` before.
    """
    failures: dict[str, EngineFailed] = {}
    warm: set[str] = set()
    # It may have been interrupted between its last repeat and the decision.
    if run.plan.stop == "WhenDecided" and run.measured and await asyncio.to_thread(local_options.is_decided, run):
        return failures
    for group in run.plan.groups:
        done = all(point.hash in run.measured for point in group.points)
        if done or group.arm in failures or await asyncio.to_thread(_has_decayed, run, group):
            continue
        local_options.on_group(group)
        failure = await _launch_with_retries(run, group, replace(local_options, warm_up=group.arm not in warm))
        if failure:
            failures[group.arm] = failure
        if run.plan.engine.is_external:
            warm.add(group.arm)  # the server keeps running between its groups
        if run.plan.stop == "WhenDecided" and (failures or await asyncio.to_thread(local_options.is_decided, run)):
            break
    return failures


def _has_decayed(run: LocalRun, group: EngineGroup) -> bool:
    """Return whether a soak test of this arm ended early, before it was interrupted in another arm."""
    if run.plan.stop != "WhenDecayed":
        return False
    points = PointStore(run.store, Path())
    manifests = points.manifests([point.hash for point in group.points])
    return has_decayed([points.read_summary(manifest) for manifest in manifests.values()])


def validate_inputs(run: LocalRun, base_dir: Path) -> None:
    """Validate the input of a run before any request is sent and any file is written. Blocks. Raises BadInput.

    Checks prompts, trace, the schedule of every point, programs and models; for a finished run, only that the prompts
    are those that were measured.
    """
    if run.finished:
        _reject_changed_prompts(run, base_dir)
    else:
        _validate_unfinished(run.plan, base_dir)


def _reject_changed_prompts(run: LocalRun, base_dir: Path) -> None:
    """Raise BadInput if the prompts differ from those that were measured; missing prompt files are ignored."""
    manifests = read_manifests(run.store, [point.hash for point in run.plan.points])
    for workload in run.plan.workloads:
        try:
            prompts = load_workload(workload, base_dir, read_object)
        except BadInput:
            continue
        reject_changed_prompts(run.plan, manifests, workload.name, prompts)


def _validate_unfinished(plan: Plan, base_dir: Path) -> None:
    if plan.load.clients > 1:
        what = f"load.clients is {plan.load.clients}, and specbench run has one client, on this machine"
        raise BadInput(f"{what}: remove load.clients (--set spec.load.clients=1), or create the run on a cluster")
    reject_missing_prompts(plan, base_dir)
    prompts = load_workload_prompts(plan, [workload.name for workload in plan.workloads], base_dir, read_object)
    reject_too_long_prompts(plan, prompts)
    arrivals = load_arrival_plan(plan, base_dir, read_object)
    for point in plan.points:
        arrivals.times(point, len(prompts[point.workload].prompts.rows))
    launches = planned_launches(plan).values()
    for launch in launches:
        local_command(launch, port=0)
    missing = [line for launch in launches for line in missing_prerequisites(launch, base_dir)]
    missing += refused_variables(plan.engine.kind)
    if missing:
        raise BadInput("\n".join(dict.fromkeys(missing)))


def _launch_of(plan: Plan, arm: str) -> LaunchSpec:
    return LAUNCHERS[plan.engine.kind].launch(launch_order(plan, plan.arm(arm)))


async def _launch_with_retries(run: LocalRun, group: EngineGroup, local_options: LocalOptions) -> EngineFailed | None:
    failure: EngineFailed | None = None
    for _ in range(1 if run.plan.engine.is_external else LAUNCHES_MAX):  # An external engine is not ours to restart.
        try:
            await _launch_and_drive(run, group, local_options)
        except EngineFailed as error:
            failure = error
            if error.reason != EngineReason.LOST:
                return failure
        else:
            return None
    return failure


async def _launch_and_drive(run: LocalRun, group: EngineGroup, local_options: LocalOptions) -> None:
    plan = run.plan
    attempt = uuid.uuid4().hex[:8]
    options = DriveOptions(
        attempt=attempt,
        spool=local_options.work_dir / "spool",
        base_dir=local_options.base_dir,
        on_progress=local_options.on_progress,
        client=local_options.client,
        warm_up=local_options.warm_up,
        healthy_within_s=CONNECT_WITHIN_S if plan.engine.is_external else DriveOptions.healthy_within_s,
    )
    started = options.clock.wall_text()
    async with _engine(plan, group, local_options, attempt) as engine:
        await engine.wait_ready(local_options.startup_deadline_s)
        place = (
            ENDPOINT_WHEREABOUTS
            if plan.engine.is_external
            else await asyncio.to_thread(observe_machine, engine.command, started)
        )
        try:
            await drive_group(plan, group, engine.url, run.store, replace(options, place=place))
        except EngineFailed as error:
            raise (await engine.explain()) or error from error


def _engine(
    plan: Plan, group: EngineGroup, local_options: LocalOptions, attempt: str
) -> EngineProcess | ExternalEngine:
    if (endpoint := plan.arm(group.arm).endpoint) is not None:
        return ExternalEngine(endpoint.url)
    log = local_options.work_dir / "logs" / f"{group.index:03d}-{group.arm}-{attempt}.log"
    return EngineProcess(_launch_of(plan, group.arm), local_options.base_dir, log)
