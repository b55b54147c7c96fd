"""Executes a plan on this machine: one engine group after the other, each with its own engine process.

This is the local counterpart of the operator. A failed engine ends its arm only, without a retry, because it would fail
again. An engine that was lost is launched again, at most twice.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from specbench_api.launch.launcher import LAUNCHES_MAX
from specbench_api.outcome.provenance import ENDPOINT_WHEREABOUTS
from specbench_api.plan.expansion import most_rounds, planned_launches
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_api.spec.conditions import EngineReason
from specbench_client.analysis.summary.trends import has_decayed
from specbench_client.drive.group import drive_group
from specbench_client.drive.load_planning import load_arrival_plan
from specbench_client.drive.options import ClientOptions, DriveOptions
from specbench_client.drive.progress import Progress
from specbench_client.drive.prompts import load_workload_prompts
from specbench_client.drive.resume import reject_changed_prompts
from specbench_client.errors import BadInput, EngineFailed
from specbench_client.local.engine_process import EngineProcess, missing_for_engines
from specbench_client.local.host_facts import observe_machine
from specbench_client.local.server_restart import restart_server
from specbench_client.stored_runs.run import Run
from specbench_client.stored_runs.write_results import report_speedups_so_far, with_next_round
from specbench_client.workload.locations import missing_prompt_files, reject_missing
from specbench_client.workload.prompts import load_workload

CONNECT_WITHIN_S = 5.0
"""An external engine is not being started: if it cannot be reached within this, it is down or the address is wrong."""


@dataclass(frozen=True)
class LocalOptions:
    """Local options of a run. `base_dir`: folder of relative paths; `work_dir`: for logs."""

    base_dir: Path
    work_dir: Path
    startup_deadline_s: float
    on_group: Callable[[EngineGroup], None] = lambda _: None
    on_progress: Callable[[Progress], None] | None = None
    on_estimate: Callable[[str], None] = lambda _: None
    on_round: Callable[[Plan], None] = lambda _: None
    retries: int = 0
    """How many rounds the run may have in addition, in place of invalid ones."""
    client: ClientOptions = field(default_factory=ClientOptions)
    warm_up: bool = True


async def execute_locally(run: Run, local_options: LocalOptions) -> dict[str, EngineFailed]:
    """Measure every point without a manifest, and the rounds that are needed. Returns the error of each failed arm.

    `run` gets the plan with the rounds. Call `validate_inputs` before.
    """
    failures: dict[str, EngineFailed] = {}
    await _measure_missing(run, local_options, failures)
    most = most_rounds(run.plan, local_options.retries)
    while run.plan.added_rounds < most and (run.plan.search or not failures):
        plan = await asyncio.to_thread(with_next_round, run)
        if plan is None:
            break
        run.plan, run.manifests = plan, run.reopened().manifests
        local_options.on_round(plan)
        await _measure_missing(run, local_options, failures)
    return failures


async def _measure_missing(run: Run, local_options: LocalOptions, failures: dict[str, EngineFailed]) -> None:
    """Measure the points without a manifest of arms whose engine has not failed, and add the failures."""
    warm: set[str] = set()
    stops = run.plan.stop == "WhenDecided"
    decided = partial(asyncio.to_thread, report_speedups_so_far, run, local_options.on_estimate)
    # It may have been interrupted between its last repeat and the decision.
    if stops and run.manifests and await decided():
        return
    for group, following in zip_longest(run.plan.groups, run.plan.groups[1:]):
        done = all(point.hash in run.manifests for point in group.points)
        if done or group.arm in failures or await asyncio.to_thread(_has_decayed, run, group):
            continue
        local_options.on_group(group)
        failure = await _launch_with_retries(run, group, replace(local_options, warm_up=group.arm not in warm))
        if failure:
            failures[group.arm] = failure
        if run.plan.keeps_running:
            warm.add(group.arm)  # the server keeps running between its groups
        ends_repeat = following is not None and following.points[0].repeat > group.points[-1].repeat
        if (stops and failures) or (ends_repeat and await decided()):
            break


def _has_decayed(run: Run, group: EngineGroup) -> bool:
    """Return whether a soak test of this arm ended early, before it was interrupted in another arm."""
    if run.plan.stop != "WhenDecayed":
        return False
    return has_decayed(run.reopened().summaries_of(group.points))


def validate_inputs(run: Run, base_dir: Path) -> None:
    """Validate the input of a run before any request is sent and any file is written. Blocks. Raises BadInput.

    Checks prompts, trace, the schedule of every point, programs and models; for a finished run, only that the prompts
    are those that were measured.
    """
    if run.is_finished:
        _reject_changed_prompts(run, base_dir)
        return
    plan = run.plan
    reject_missing(missing_prompt_files(plan, base_dir))
    prompts = load_workload_prompts(plan, [workload.name for workload in plan.workloads], base_dir)
    load_arrival_plan(plan, base_dir, prompts)
    if missing := missing_for_engines(plan, base_dir):
        raise BadInput("\n".join(missing))


def _reject_changed_prompts(run: Run, base_dir: Path) -> None:
    """Raise BadInput if the prompts differ from those that were measured; missing prompt files are ignored."""
    for workload in run.plan.workloads:
        try:
            prompts = load_workload(workload, base_dir)
        except BadInput:
            continue
        reject_changed_prompts(run.plan, run.manifests, workload.name, prompts)


async def _launch_with_retries(run: Run, group: EngineGroup, local_options: LocalOptions) -> EngineFailed | None:
    failure: EngineFailed | None = None
    for _ in range(1 if run.plan.keeps_running else LAUNCHES_MAX):  # A running server is not ours to restart.
        try:
            await _launch_and_drive(run, group, local_options)
        except EngineFailed as error:
            failure = error
            if error.reason != EngineReason.LOST:
                return failure
        else:
            return None
    return failure


async def _launch_and_drive(run: Run, group: EngineGroup, local_options: LocalOptions) -> None:
    plan, attempt = run.plan, uuid.uuid4().hex[:8]
    options = DriveOptions(
        attempt=attempt,
        base_dir=local_options.base_dir,
        on_progress=local_options.on_progress,
        client=local_options.client,
        warm_up=local_options.warm_up,
    )
    arm, log = plan.arm(group.arm), local_options.work_dir / "logs" / f"{group.index:03d}-{group.arm}-{attempt}.log"
    if arm.endpoint is not None:
        if plan.restarts:
            await restart_server(plan, arm, options.client, log, local_options.startup_deadline_s)
        options = replace(options, place=ENDPOINT_WHEREABOUTS, healthy_within_s=CONNECT_WITHIN_S)
        await drive_group(plan, group, arm.endpoint.address, run.store, options)
        return
    started = options.clock.wall_text()
    async with EngineProcess(planned_launches(plan)[group.arm], local_options.base_dir, log) as engine:
        await engine.wait_ready(local_options.startup_deadline_s)
        place = await asyncio.to_thread(observe_machine, engine.command, started)
        try:
            await drive_group(plan, group, engine.url, run.store, replace(options, place=place))
        except EngineFailed as error:
            raise (await engine.explain()) or error from error
