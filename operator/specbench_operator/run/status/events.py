"""Kubernetes Events of a run, derived from the difference between its previous and its new status."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase, QueueReason
from specbench_api.spec.status import Condition, GroupStatus, RunStatus
from specbench_operator.run.status.conditions import ARM_AT_FAULT
from specbench_operator.state.conditions import find_condition, flip_of, flipped_to, join_sentences
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent


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
