"""Events for people: what changed between two statuses, said once."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState, Phase, QueueReason
from specbench_api.spec.status import Condition, GroupStatus, RunStatus
from specbench_operator.reconcile.launches.judgement import joined
from specbench_operator.reconcile.scene import condition_of
from specbench_operator.state.decision import Event

NORMAL, WARNING = "Normal", "Warning"


def events_between(before: RunStatus, after: RunStatus) -> tuple[Event, ...]:
    """In the order in which they would have happened."""
    return (*_of_admission(before, after), *_of_groups(before, after), *_of_run(before, after))


def _of_admission(before: RunStatus, after: RunStatus) -> Iterator[Event]:
    refused = _turned(before, after, ConditionType.VALIDATED, ConditionStatus.FALSE)
    if refused:
        yield Event(WARNING, "Invalid", refused.message)


def _of_groups(before: RunStatus, after: RunStatus) -> Iterator[Event]:
    old = {row.index: row for row in before.groups}
    for row in after.groups:
        known = old.get(row.index)
        if known is None or (known.state, known.attempt) != (row.state, row.attempt):
            yield from _of_group(row, known)


def _of_group(row: GroupStatus, known: GroupStatus | None) -> Iterator[Event]:
    name = f"group {row.index} (arm {row.arm}, launch {row.attempt})"
    told = joined((name, row.message))
    if row.state is not GroupState.FAILED and known and _losses(row) > _losses(known):
        yield Event(WARNING, row.reason or "EngineLost", told)
    if row.state is GroupState.QUEUED:
        yield Event(NORMAL, "EngineQueued", told)
    elif row.state is GroupState.STARTING:
        yield Event(NORMAL, "EngineStarting", name)
    elif row.state is GroupState.MEASURING:
        yield Event(NORMAL, "EngineReady", name)
    elif row.state is GroupState.FAILED:
        yield Event(WARNING, row.reason or "EngineFailed", told)
    elif row.state is GroupState.DONE and known and known.state is not GroupState.WAITING:
        yield Event(NORMAL, "GroupMeasured", name)


def _losses(row: GroupStatus) -> int:
    return row.attempt - row.given_back


def _of_run(before: RunStatus, after: RunStatus) -> Iterator[Event]:
    if before.phase is not after.phase and Phase.SUSPENDED in (before.phase, after.phase):
        yield Event(NORMAL, "Suspended" if after.phase is Phase.SUSPENDED else "Resumed", after.progress)
    queued = condition_of(after, ConditionType.QUEUED)
    if queued and queued.reason == QueueReason.INADMISSIBLE and not _was(before, queued):
        yield Event(WARNING, queued.reason, queued.message)
    durable = _turned(before, after, ConditionType.RESULTS_DURABLE, ConditionStatus.FALSE)
    if durable:
        yield Event(WARNING, durable.reason, durable.message)
    finished = _turned(before, after, ConditionType.LOAD_FINISHED, ConditionStatus.TRUE)
    if finished:
        yield Event(NORMAL, "LoadFinished", finished.message)
    ready = _turned(before, after, ConditionType.READY, ConditionStatus.TRUE)
    if ready:
        yield Event(NORMAL, "ResultsReady", joined((after.best, ready.message)))
    doubt = _turned(before, after, ConditionType.TRUSTWORTHY, ConditionStatus.FALSE)
    if doubt:
        yield Event(WARNING, "Untrustworthy", joined((doubt.reason, doubt.message)))
    stalled = _turned(before, after, ConditionType.STALLED, ConditionStatus.TRUE)
    if stalled and after.phase is Phase.FAILED:
        yield Event(WARNING, stalled.reason, stalled.message)


def _was(before: RunStatus, row: Condition) -> bool:
    known = condition_of(before, row.type)
    return known is not None and (known.status, known.reason) == (row.status, row.reason)


def events_of_gate(before: RunStatus, after: RunStatus) -> tuple[Event, ...]:
    """That a gate was passed, or was not."""
    passed = _turned(before, after, ConditionType.GATE_PASSED, ConditionStatus.TRUE)
    not_passed = _turned(before, after, ConditionType.GATE_PASSED, ConditionStatus.FALSE)
    return (
        *((Event(NORMAL, "GatePassed", passed.message),) if passed else ()),
        *((Event(WARNING, "GateNotPassed", joined((not_passed.reason, not_passed.message))),) if not_passed else ()),
    )


def _turned(before: RunStatus, after: RunStatus, kind: ConditionType, status: ConditionStatus) -> Condition | None:
    old, new = condition_of(before, kind), condition_of(after, kind)
    return new if new and new.status is status and (old is None or old.status is not status) else None
