"""The state of each engine group: from S3 first, then from the run's children, then from the previous status.

S3 is authoritative: a group is done when all of its points have a manifest, or as many as when the plan's stop rule
ended it, whatever happened to its pods. Status is only a hint for what leaves no other trace, such as the number of
lost launches after their Jobs were deleted.

A launch number is never used twice, because results, pods and progress are identified by it. Numbers are known from
status and from Jobs, so a Job is deleted only after status contains its launch; if status does not (it was lost, or
writing it failed), the Job is stopped and kept instead. If neither is left, the results contain the numbers of all
launches that answered. A launch that never answered has left nothing that could be confused with a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from specbench_api.launch.launcher import LAUNCHES_MAX
from specbench_api.plan.plan import EngineGroup
from specbench_api.spec.conditions import ENGINE_FAULTS, EngineReason, GroupState
from specbench_api.spec.run import RunSpec
from specbench_api.spec.status import TEXT_MAX, GroupStatus
from specbench_operator.run.launches.children import Children
from specbench_operator.run.launches.client import judge_client
from specbench_operator.run.launches.engine import (
    current_pod,
    decided_by_job,
    judge_engine,
    judge_further_nodes,
    preempted_node,
)
from specbench_operator.run.launches.launch_state import (
    SUSPENDED,
    ClientReason,
    LaunchContext,
    LaunchStage,
    LaunchState,
    failed,
    lost,
)
from specbench_operator.state.objects import FailureScope, Job, LaunchVerdict
from specbench_operator.state.run import StopJob, StoredResults
from specbench_operator.state.timestamps import earliest, format_timestamp


@dataclass(frozen=True)
class GroupView:
    """The current state of a group."""

    group: EngineGroup
    state: GroupState
    attempt: int
    measured: int
    reason: str = ""
    message: str = ""
    launch_state: LaunchState | None = None
    """State of the launch `attempt`; None if it has no Job."""
    next_launch: int | None = None
    """Number of the launch to create as soon as no engine holds GPUs."""
    suspensions: int = 0
    """Launches before `attempt` that ended because the run was suspended."""
    preemptions: int = 0
    """Launches before `attempt` that were preempted."""
    previous_pod: str | None = None
    """Set if the last launch's Job continues as `attempt`: UID of the last launch's pod, empty if there was none."""
    engine_pod: str = ""
    """Name of the pod of the launch `attempt`."""
    ends_run: bool = False
    """Its failure ends the whole run."""

    @property
    def over(self) -> bool:
        """Whether the group is done or has failed."""
        return self.state in (GroupState.DONE, GroupState.FAILED)

    @property
    def live_launch(self) -> int | None:
        """Number of the launch whose engine must keep running; None if there is none."""
        in_progress = self.launch_state and self.launch_state.stage in (
            LaunchStage.QUEUED,
            LaunchStage.STARTING,
            LaunchStage.SERVING,
        )
        return self.attempt if in_progress and not self.over and self.next_launch is None else None

    def to_status(self) -> GroupStatus:
        """The group's row in status."""
        idle_since = self.launch_state.idle_since if self.launch_state else None
        return GroupStatus(
            index=self.group.index,
            arm=self.group.arm,
            state=self.state,
            points=len(self.group.points),
            measured=self.measured,
            attempt=self.attempt,
            suspensions=self.suspensions,
            preemptions=self.preemptions,
            engine_pod="" if self.over else self.engine_pod,
            idle_since=format_timestamp(idle_since) if idle_since else None,
            ends_run=self.ends_run,
            reason=self.reason[:128],
            message=self.message[:TEXT_MAX],
        )


def build_group_view(
    group: EngineGroup, children: Children, stored: StoredResults | None, context: LaunchContext
) -> GroupView:
    """Determine the state of a group. `stored` is None while S3 cannot be read."""
    view = _with_unused_number(_build(group, children, stored, context), stored)
    engine = children.engine(group.index, view.attempt)
    pod = None if engine is None or engine.suspended else current_pod(children.pods_of(engine))
    return replace(view, engine_pod=pod.ref.name) if pod else view


def _build(group: EngineGroup, children: Children, stored: StoredResults | None, context: LaunchContext) -> GroupView:
    attempts = children.attempts(group.index)
    known = context.known or GroupStatus(index=group.index, arm=group.arm, state=GroupState.WAITING)
    measured = known.measured if stored is None else sum(point.hash in stored.measured for point in group.points)
    last = attempts[-1] if attempts else known.attempt
    done = known.state is GroupState.DONE if stored is None else measured >= _points_to_measure(group, stored)
    prior = children.prior_launches(group.index, max(last, known.attempt))
    # The larger count is right: status or an annotation may be missing, but neither is ever too large.
    view = GroupView(
        group,
        known.state,
        last,
        measured,
        suspensions=max(known.suspensions, prior.suspensions),
        preemptions=max(known.preemptions, prior.preemptions),
    )
    if done:
        return replace(view, state=GroupState.DONE)
    if not attempts or last < known.attempt:
        return _from_previous_status(replace(view, attempt=known.attempt), known, context.spec)
    # The row in status counts only if it is about the same launch.
    launch = judge_launch(
        children, group.index, last, context if last == known.attempt else replace(context, known=None)
    )
    return _from_launch_state(view, launch, context.spec, known_stored=stored is not None)


def _points_to_measure(group: EngineGroup, stored: StoredResults) -> int:
    """Number of points after which the group is done. At least one, so that a stray file ends no group."""
    return max(1, min(len(group.points), stored.ended.get(group.index, len(group.points))))


def skip_broken_arms(groups: Sequence[GroupView]) -> tuple[GroupView, ...]:
    """Fail the waiting groups of arms whose engine failed by its own fault, because it would fail again."""
    broken: dict[str, GroupView] = {}
    views = []
    for view in groups:
        earlier = broken.get(view.group.arm)
        untouched = view.state is GroupState.WAITING and view.launch_state is None and not view.reason
        if earlier and untouched:
            message = f"not launched, because group {earlier.group.index + 1} of this arm failed: {earlier.message}"
            views.append(
                replace(view, state=GroupState.FAILED, reason=earlier.reason, message=message, next_launch=None)
            )
            continue
        if view.state is GroupState.FAILED and view.reason in ENGINE_FAULTS:
            broken.setdefault(view.group.arm, view)
        views.append(view)
    return tuple(views)


def _from_previous_status(view: GroupView, known: GroupStatus, spec: RunSpec) -> GroupView:
    """The state of a group that has no Jobs, or only Jobs of launches before the one in status."""
    if known.state is GroupState.FAILED:
        return replace(view, reason=known.reason, message=known.message, ends_run=known.ends_run)
    if known.state in (GroupState.QUEUED, GroupState.STARTING, GroupState.MEASURING):
        return _relaunch_or_fail(view, lost("its Jobs were deleted"), None, spec)
    reason, message = ("", "") if known.reason == SUSPENDED else (known.reason, known.message)
    return replace(view, state=GroupState.WAITING, reason=reason, message=message, next_launch=known.attempt)


def _from_launch_state(view: GroupView, launch_state: LaunchState, spec: RunSpec, *, known_stored: bool) -> GroupView:
    if launch_state.stage is LaunchStage.FINISHED:
        if not known_stored:
            return replace(view, state=GroupState.MEASURING, launch_state=launch_state)
        message = "its client succeeded, but manifests of its points are missing in S3"
        missing = failed(FailureScope.LAUNCH, ClientReason.RESULTS_MISSING, message)
        return _relaunch_or_fail(view, missing, launch_state, spec)
    if launch_state.stage is LaunchStage.FAILED and launch_state.scope is FailureScope.LAUNCH:
        return _relaunch_or_fail(view, launch_state, launch_state, spec)
    if launch_state.stage is not LaunchStage.FAILED and spec.suspend:
        return _relaunch_or_fail(view, LaunchState(launch_state.stage, SUSPENDED), None, spec)
    state = {
        LaunchStage.QUEUED: GroupState.QUEUED,
        LaunchStage.STARTING: GroupState.STARTING,
        LaunchStage.SERVING: GroupState.MEASURING,
        LaunchStage.FAILED: GroupState.FAILED,
    }[launch_state.stage]
    ends_run = launch_state.scope is FailureScope.RUN
    reason, message = launch_state.reason, launch_state.message
    return replace(view, state=state, reason=reason, message=message, launch_state=launch_state, ends_run=ends_run)


def _relaunch_or_fail(
    view: GroupView, ended_by: LaunchState, launch_state: LaunchState | None, spec: RunSpec
) -> GroupView:
    """Launch again after a launch has ended, or fail the group if there were too many launches.

    The new launch has a new number, so that pods and clients of the old one are never used for it.
    """
    suspended = ended_by.reason == SUSPENDED if ended_by.recorded else spec.suspend
    preempted = ended_by.reason == EngineReason.PREEMPTED and not suspended
    suspensions, preemptions = view.suspensions + suspended, view.preemptions + preempted
    if suspended and launch_state:
        launch_state = replace(launch_state, reason=SUSPENDED)
    ended = replace(view, reason=ended_by.reason, message=ended_by.message, launch_state=launch_state)
    if preemptions > spec.placement.preemption_budget and preempted:
        message = (
            f"preempted {preemptions} times, more than spec.placement.preemptionBudget"
            f" ({spec.placement.preemption_budget}) allows: {ended_by.message}"
        )
        return replace(ended, state=GroupState.FAILED, message=message)
    next_launch = view.attempt + 1
    if not preempted and next_launch - suspensions - preemptions >= LAUNCHES_MAX:
        message = f"{LAUNCHES_MAX} launches were lost; the last one: {ended_by.message}"
        return replace(ended, state=GroupState.FAILED, message=message)
    due = replace(ended, attempt=next_launch, suspensions=suspensions, preemptions=preemptions)
    if preempted and ended_by.previous_pod is not None:
        return replace(due, state=GroupState.QUEUED, previous_pod=ended_by.previous_pod)
    return replace(due, state=GroupState.WAITING, next_launch=next_launch)


def is_recorded_in_status(rows: Sequence[GroupStatus], engine: Job) -> bool:
    """Whether these rows of a written status show that this Job's launch had begun."""
    row = next((row for row in rows if row.index == engine.key.group), None)
    if row is None or engine.launch is None:
        return False
    return row.attempt > engine.launch or (row.attempt == engine.launch and row.state is not GroupState.WAITING)


def stop_and_keep_job(engine: Job, now: datetime) -> StopJob:
    """Stop the Job of a launch to free its GPUs, but keep it, because status does not contain its launch."""
    message = "it was stopped; its Job is kept because status did not contain this launch"
    return StopJob(engine.ref, LaunchVerdict(FailureScope.LAUNCH, SUSPENDED, message, now), ended=False)


def _with_unused_number(view: GroupView, stored: StoredResults | None) -> GroupView:
    """The view with a next launch whose number is larger than that of the last launch in the results.

    How the skipped launches ended is unknown, so none of them counts as lost.
    """
    last = stored.launches.get(view.group.index) if stored else None
    if view.next_launch is None or last is None or view.next_launch > last:
        return view
    next_launch = last + 1
    skipped = next_launch - view.next_launch
    return replace(view, attempt=next_launch, next_launch=next_launch, suspensions=view.suspensions + skipped)


def judge_launch(children: Children, group: int, attempt: int, context: LaunchContext) -> LaunchState:
    """The state of a launch that has at least one Job.

    The engine's own failure has precedence, because its client only observes a closed connection. Of a server that is
    already running, only the client is known.
    """
    engine, client = children.engine(group, attempt), children.client(group, attempt)
    by_client = judge_client(client, children.pods_of(client), context)
    if by_client.stage is LaunchStage.FINISHED:
        return by_client
    if children.running_already and client is not None:
        return decided_by_job(client, context) or by_client
    if engine is None:
        return by_client if by_client.stage is LaunchStage.FAILED else lost("its Job was deleted")
    pods = children.pods_of(engine)
    by_engine = preempted_node(engine, pods) or judge_engine(engine, pods, context, client=client)
    if by_engine.stage in (LaunchStage.STARTING, LaunchStage.SERVING):
        by_engine = judge_further_nodes(by_engine, engine, pods, context, client)
    if by_engine.stage is not LaunchStage.SERVING:
        return by_engine
    if by_client.stage is LaunchStage.FAILED or by_client.degraded:
        return by_client
    requeue_after_s = earliest(by_engine.requeue_after_s, by_client.requeue_after_s)
    message = by_client.message or by_engine.message
    return replace(by_engine, message=message, requeue_after_s=requeue_after_s, idle_since=by_client.idle_since)
