"""Kubernetes Events of a run, derived from the difference between its previous and its new status."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.outcome.status_document import ARM_AT_FAULT
from specbench_api.spec.conditions import (
    ConditionStatus,
    ConditionType,
    EngineReason,
    GroupState,
    Phase,
    QueueReason,
)
from specbench_api.spec.status import Condition, GroupStatus, RunStatus
from specbench_operator.state.conditions import find_condition, flip_event, join_sentences, reason_of, suspension_event
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent


def run_events(before: RunStatus, after: RunStatus) -> tuple[KubernetesEvent, ...]:
    """The events that a change of status causes, in the order in which the changes happen."""
    invalid = flip_event("Invalid", before, after, ConditionType.VALIDATED, ConditionStatus.FALSE)
    return (*invalid, *_group_events(before, after), *_end_events(before, after))


def _group_events(before: RunStatus, after: RunStatus) -> Iterator[KubernetesEvent]:
    old = {row.index: row for row in before.groups}
    for row in after.groups:
        known = old.get(row.index)
        if known is None or (known.state, known.attempt) != (row.state, row.attempt):
            yield from _group_event(row, known)


_OF_A_LIVE_LAUNCH = (
    EngineReason.STARTING,
    EngineReason.SERVING,
    EngineReason.UNSCHEDULABLE,
    EngineReason.IMAGE_PULL_FAILED,
    EngineReason.CONFIG_ERROR,
    QueueReason.WAITING,
    QueueReason.INADMISSIBLE,
)
"""Reasons of a row whose launch has not ended; as the end of one, a wrong image or configuration fails its group."""


def _group_event(row: GroupStatus, known: GroupStatus | None) -> Iterator[KubernetesEvent]:
    launch = f"group {row.index} (arm {row.arm}, launch {row.attempt})"
    message = join_sentences((launch, row.message))
    if row.state is not GroupState.FAILED and known and _losses(row) > _losses(known):
        # Once the next launch goes on, the row has its reason and not that of the loss.
        reason, why = ("", launch) if row.reason in _OF_A_LIVE_LAUNCH else (row.reason, message)
        yield KubernetesEvent(WARNING, reason or "EngineLost", why, launch)
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
    yield from suspension_event(before, after)
    queued = find_condition(after, ConditionType.QUEUED)
    if queued and queued.reason == QueueReason.INADMISSIBLE and not _is_unchanged(before, queued):
        yield KubernetesEvent(WARNING, queued.reason, queued.message)
    yield from flip_event("", before, after, ConditionType.RESULTS_STORED, ConditionStatus.FALSE)
    finished = (ConditionType.MEASUREMENT_COMPLETE, ConditionStatus.TRUE)
    yield from flip_event("MeasurementComplete", before, after, *finished, event_type=NORMAL)
    ready = (ConditionType.READY, ConditionStatus.TRUE)
    yield from flip_event("ResultsReady", before, after, *ready, event_type=NORMAL, prefix=after.best)
    trust = reason_of(after, ConditionType.TRUSTWORTHY)
    untrustworthy = (ConditionType.TRUSTWORTHY, ConditionStatus.FALSE)
    yield from flip_event("Untrustworthy", before, after, *untrustworthy, prefix=trust)
    if trust == ARM_AT_FAULT:
        yield from flip_event("", before, after, ConditionType.TRUSTWORTHY, ConditionStatus.TRUE)
    if after.phase is Phase.FAILED:
        yield from flip_event("", before, after, ConditionType.STALLED, ConditionStatus.TRUE)


def _is_unchanged(before: RunStatus, row: Condition) -> bool:
    known = find_condition(before, row.type)
    return known is not None and (known.status, known.reason) == (row.status, row.reason)


def gate_events(before: RunStatus, after: RunStatus) -> tuple[KubernetesEvent, ...]:
    """The event that the gate passed or did not pass."""
    kind, reason = ConditionType.GATE_PASSED, reason_of(after, ConditionType.GATE_PASSED)
    return (
        *flip_event("GatePassed", before, after, kind, ConditionStatus.TRUE, event_type=NORMAL),
        *flip_event("GateNotPassed", before, after, kind, ConditionStatus.FALSE, prefix=reason),
    )
