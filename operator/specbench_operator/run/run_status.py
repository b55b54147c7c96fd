"""The status of a run from its RunView and RunState, its size limit, and the events that its changes cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from specbench_api.outcome.layout import REPORT, SUMMARY
from specbench_api.outcome.status_document import ARM_AT_FAULT, clip, stored_bytes
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase, QueueReason
from specbench_api.spec.status import (
    Condition,
    GroupStatus,
    MeasuredResults,
    PointCounts,
    ResultsStatus,
    RunStatus,
)
from specbench_operator.render.client_jobs import results_uri
from specbench_operator.run.conditions import TERMINAL_PHASES, RunState, conditions_of, problem_of
from specbench_operator.run.launches.group import GroupView
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_operator.run.run_view import RunView
from specbench_operator.state.conditions import find_condition, flip_of, flipped_to, join_sentences
from specbench_operator.state.objects import Pod
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp, truncate_to_second

GPU_SECONDS_PERIOD_S = 60
"""Minimum time between two writes of status that change nothing but the GPU-seconds, in seconds.

Each write triggers every watcher of the run.
"""


def with_gpu_seconds(status: RunStatus, run_view: RunView) -> RunStatus:
    """The status with the GPU-seconds added up to now, if that is worth a write.

    A pod holds its GPUs from being scheduled until its container ends or the pod is deleted. Status contains the sum
    and the time until which it counts. Each reconciliation adds what follows that time, so reconciliations may be
    lost, repeated or late. Times are truncated to whole seconds like those in status, otherwise fractions would count
    twice.

    Error: a pod that disappears between two reconciliations is not counted after the last written time. The sum is then
    too small, by at most GPU_SECONDS_PERIOD_S per launch and usually by a second or two.
    """
    gpus, previous = run_view.run.spec.placement.devices, run_view.previous
    since, until = parse_timestamp(previous.gpu_seconds_until), truncate_to_second(run_view.now)
    unchanged = status.model_copy(
        update={"gpu_seconds_held": previous.gpu_seconds_held, "gpu_seconds_until": previous.gpu_seconds_until}
    )
    pods = [pod for pod in run_view.children.pods if pod.key.role == ROLE_ENGINE]
    added = gpus * sum(_held_seconds(pod, since, until) for pod in pods)
    stale = since is None or (until - since).total_seconds() >= GPU_SECONDS_PERIOD_S
    # The previous status was shortened before it was written, so it is compared with the shortened new one.
    if added <= 0 or (not stale and fit_to_size(unchanged) == previous):
        return unchanged
    held = round(previous.gpu_seconds_held + added, 1)
    return unchanged.model_copy(update={"gpu_seconds_held": held, "gpu_seconds_until": format_timestamp(until)})


def _held_seconds(pod: Pod, since: datetime | None, until: datetime) -> float:
    if pod.scheduled_at is None:
        return 0
    finished = pod.terminated.finished_at if pod.terminated and not pod.restarts else None
    end = finished or (until if pod.alive else pod.scheduled_at)
    begin = pod.scheduled_at if since is None else max(pod.scheduled_at, since)
    return max((min(end, until) - begin).total_seconds(), 0)


def build_run_status(run_view: RunView, state: RunState) -> RunStatus:
    """The complete status of a run."""
    ended = state.phase in TERMINAL_PHASES and not state.retryable and not run_view.holds_gpus
    results = run_view.results if state.phase is Phase.SUCCEEDED else None
    counts = _counts(run_view, results.points_invalid if results else 0)
    conditions = conditions_of(run_view, state)
    status = RunStatus(
        observed_generation=run_view.run.metadata.generation,
        phase=state.phase,
        conditions=conditions,
        start_time=_start_time(run_view),
        completion_time=format_timestamp(run_view.now) if ended else None,
        points=counts,
        progress=f"{counts.measured}/{counts.total}",
        engine_nodes=list(run_view.served_on),
        groups=[_group_row(run_view, view) for view in run_view.groups],
        problem=problem_of(run_view, state, conditions),
        results=_results(run_view, state),
        **{name: getattr(results, name) for name in MeasuredResults.model_fields if results},
    )
    return with_gpu_seconds(status, run_view)


def _counts(run_view: RunView, invalid: int) -> PointCounts:
    failed = sum(len(view.group.points) - view.measured for view in run_view.failed)
    return PointCounts(total=len(run_view.plan.points), measured=run_view.measured, invalid=invalid, failed=failed)


def _group_row(run_view: RunView, view: GroupView) -> GroupStatus:
    row = view.to_status()
    if view.over or view is not run_view.active_group:
        return row if view.over else row.model_copy(update=_waiting_group(view))
    if run_view.suspended:
        update = {"state": GroupState.WAITING, "reason": SUSPENDED, "message": ""}
        return row.model_copy(update=update)
    if run_view.launching is None:
        return row
    queued = run_view.run.spec.placement.queue_name is not None
    return row.model_copy(update={"state": GroupState.QUEUED if queued else GroupState.STARTING})


def _waiting_group(view: GroupView) -> dict[str, Any]:
    """Changes to the row of a group that is not active. An engine that it has is ended and counts as suspended."""
    waiting: dict[str, Any] = {"state": GroupState.WAITING}
    if view.live_launch is None:
        return waiting
    return {**waiting, "attempt": view.attempt + 1, "suspensions": view.suspensions + 1, "engine_pod": ""}


def _start_time(run_view: RunView) -> str | None:
    """When the first launch was created: from status, else from its oldest Job, else now if one is created."""
    if run_view.previous.start_time:
        return run_view.previous.start_time
    oldest = min((job.created_at for job in run_view.children.launch_jobs), default=None)
    if oldest is None:
        return format_timestamp(run_view.now) if run_view.launching is not None else None
    return format_timestamp(oldest)


def _results(run_view: RunView, state: RunState) -> ResultsStatus | None:
    if run_view.awaits_adopted_uid:
        return None
    uri = results_uri(run_view.run)
    done = state.phase is Phase.SUCCEEDED
    return ResultsStatus(uri=uri, summary=f"{uri}/{SUMMARY}" if done else "", report=f"{uri}/{REPORT}" if done else "")


# Kubernetes Events of a run, derived from the difference between its previous and its new status.


def run_events(before: RunStatus, after: RunStatus) -> tuple[KubernetesEvent, ...]:
    """The events that a change of status causes, in the order in which the changes happen."""
    return (*_admission_events(before, after), *_group_events(before, after), *_end_events(before, after))


def _admission_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    invalid = flipped_to(before, after, ConditionType.VALIDATED, ConditionStatus.FALSE)
    if invalid:
        yield KubernetesEvent(WARNING, "Invalid", invalid.message, flip_of(before, invalid))


def _group_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    old = {row.index: row for row in before.groups}
    for row in after.groups:
        known = old.get(row.index)
        if known is None or (known.state, known.attempt) != (row.state, row.attempt):
            yield from _group_event(row, known)


def _group_event(row: GroupStatus, known: GroupStatus | None) -> Iterator[KubernetesEvent]:
    launch = f"group {row.index} (arm {row.arm}, launch {row.attempt})"
    message = join_sentences((launch, row.message))
    if row.state is not GroupState.FAILED and known and _losses(row) > _losses(known):
        yield KubernetesEvent(WARNING, row.reason or "EngineLost", message, launch)
    if row.state is GroupState.QUEUED:
        yield KubernetesEvent(NORMAL, "EngineQueued", message)
    elif row.state is GroupState.FAILED:
        yield KubernetesEvent(WARNING, row.reason or "EngineFailed", message, launch)
    for reason in _steps(row, known):
        yield KubernetesEvent(NORMAL, reason, launch, launch)


_STEPS = {
    GroupState.STARTING: "EngineStarting",
    GroupState.MEASURING: "EngineReady",
    GroupState.DONE: "GroupMeasured",
}
"""The steps of a launch that measures its group, in order, and the reason of each one's event."""


def _steps(row: GroupStatus, known: GroupStatus | None) -> list[str]:
    """The reasons of the steps that a launch has made since the last status, which may have missed some of them.

    An engine that is not ready any more makes no step: each launch starts once.
    """
    if row.state not in _STEPS:
        return []
    states = list(_STEPS)
    last = states.index(row.state)
    first = 0
    if known is not None and known.attempt == row.attempt and known.state in _STEPS:
        first = states.index(known.state) + 1
    elif row.state is GroupState.DONE:
        # Without a launch in the last status, the points may have been found in the store.
        launched = known is not None and known.state is not GroupState.WAITING
        first = last if launched else last + 1
    return [_STEPS[state] for state in states[first : last + 1]]


def _losses(row: GroupStatus) -> int:
    return row.attempt - row.suspensions


def _end_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    if before.phase is not after.phase and Phase.SUSPENDED in (before.phase, after.phase):
        yield KubernetesEvent(NORMAL, "Suspended" if after.phase is Phase.SUSPENDED else "Resumed", after.progress)
    queued = find_condition(after, ConditionType.QUEUED)
    if queued and queued.reason == QueueReason.INADMISSIBLE and not _is_unchanged(before, queued):
        yield KubernetesEvent(WARNING, queued.reason, queued.message)
    not_stored = flipped_to(before, after, ConditionType.RESULTS_STORED, ConditionStatus.FALSE)
    if not_stored:
        yield KubernetesEvent(WARNING, not_stored.reason, not_stored.message, flip_of(before, not_stored))
    finished = flipped_to(before, after, ConditionType.MEASUREMENT_COMPLETE, ConditionStatus.TRUE)
    if finished:
        yield KubernetesEvent(NORMAL, "MeasurementComplete", finished.message, flip_of(before, finished))
    ready = flipped_to(before, after, ConditionType.READY, ConditionStatus.TRUE)
    if ready:
        message = join_sentences((after.best, ready.message))
        yield KubernetesEvent(NORMAL, "ResultsReady", message, flip_of(before, ready))
    untrustworthy = flipped_to(before, after, ConditionType.TRUSTWORTHY, ConditionStatus.FALSE)
    if untrustworthy:
        message = join_sentences((untrustworthy.reason, untrustworthy.message))
        yield KubernetesEvent(WARNING, "Untrustworthy", message, flip_of(before, untrustworthy))
    trustworthy = flipped_to(before, after, ConditionType.TRUSTWORTHY, ConditionStatus.TRUE)
    if trustworthy and trustworthy.reason == ARM_AT_FAULT:
        yield KubernetesEvent(WARNING, ARM_AT_FAULT, trustworthy.message, flip_of(before, trustworthy))
    stalled = flipped_to(before, after, ConditionType.STALLED, ConditionStatus.TRUE)
    if stalled and after.phase is Phase.FAILED:
        yield KubernetesEvent(WARNING, stalled.reason, stalled.message, flip_of(before, stalled))


def _is_unchanged(before: RunStatus, row: Condition) -> bool:
    known = find_condition(before, row.type)
    return known is not None and (known.status, known.reason) == (row.status, row.reason)


def gate_events(before: RunStatus, after: RunStatus) -> tuple[KubernetesEvent, ...]:
    """The event that the gate passed or did not pass."""
    passed = flipped_to(before, after, ConditionType.GATE_PASSED, ConditionStatus.TRUE)
    if passed:
        return (KubernetesEvent(NORMAL, "GatePassed", passed.message, flip_of(before, passed)),)
    failed = flipped_to(before, after, ConditionType.GATE_PASSED, ConditionStatus.FALSE)
    if failed:
        message = join_sentences((failed.reason, failed.message))
        return (KubernetesEvent(WARNING, "GateNotPassed", message, flip_of(before, failed)),)
    return ()


# The size of a status is limited to less than 100 kB, even with 1,000 points or 512 launches.
#
# etcd rejects objects of more than 1.5 MB, and long before that every write is expensive for every watcher of runs.
# What is also stored elsewhere is shortened: messages are cut at the end, and rows of finished groups repeat the
# counts. Rows of results are limited by status.json. Nothing that a decision needs is removed: while a run is in
# progress, every group keeps its row with its state, launch number and reason.

STATUS_BYTES_MAX = 96_000
"""Maximum size of the status; the rest of the object and its managed fields are not included."""
SHORT_MESSAGE = 128
SHORT_REASON = 20
"""At least as long as any reason that decides whether an arm is launched again (`group.ENGINE_FAULTS`)."""


def fit_to_size(status: RunStatus) -> RunStatus:
    """The status, shortened only as far as necessary. A status that fits is returned unchanged."""
    for shorten in _SHORTENINGS:
        if json_size(status) <= STATUS_BYTES_MAX:
            break
        status = shorten(status)
    return status


def json_size(status: RunStatus) -> int:
    """An upper bound of the bytes that the API server stores."""
    return stored_bytes(status.to_dict())


def _short_group_messages(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": clip(row.message, SHORT_MESSAGE)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _without_done_groups(status: RunStatus) -> RunStatus:
    """Only for a run that has ended: before that, a row is all that is known of a group while S3 cannot be read."""
    if status.completion_time is None:
        return status
    rows = [row for row in status.groups if row.state is not GroupState.DONE]
    omitted = status.groups_omitted + len(status.groups) - len(rows)
    return status.model_copy(update={"groups": rows, "groups_omitted": omitted})


def _reasons_of_groups_alone(status: RunStatus) -> RunStatus:
    rows = [row.model_copy(update={"message": "", "reason": clip(row.reason, SHORT_REASON)}) for row in status.groups]
    return status.model_copy(update={"groups": rows})


def _conditions_within(most: int) -> Callable[[RunStatus], RunStatus]:
    def shorten(status: RunStatus) -> RunStatus:
        rows = [row.model_copy(update={"message": clip(row.message, most)}) for row in status.conditions]
        return status.model_copy(update={"conditions": rows})

    return shorten


def _without_groups(status: RunStatus) -> RunStatus:
    """Only for a run that has ended. Its problem and conditions have the reasons of failed groups."""
    if status.completion_time is None:
        return status
    return status.model_copy(update={"groups": [], "groups_omitted": status.groups_omitted + len(status.groups)})


def _without_arms(status: RunStatus) -> RunStatus:
    return status.model_copy(update={"arms": [], "arms_omitted": status.arms_omitted + len(status.arms)})


_SHORTENINGS: tuple[Callable[[RunStatus], RunStatus], ...] = (
    _short_group_messages,
    _without_done_groups,
    _conditions_within(2048),
    _reasons_of_groups_alone,
    _conditions_within(256),
    _without_groups,
    _without_arms,
)
"""How a status is shortened, in this order, each step only if those before it were not enough."""
