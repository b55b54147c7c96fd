"""The conditions, each told by one function from where everything stands.

`lastTransitionTime` moves only when status flips; reason and message may change in between. Nothing here may depend
on how much time passed, or every look would write a new status and wake the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.spec.conditions import (
    ConditionStatus,
    ConditionType,
    EngineReason,
    GateWait,
    GroupState,
    Phase,
    QueueReason,
)
from specbench_api.spec.status import Condition, RunStatus
from specbench_operator.reconcile.course import AT_WORK, STALLED, Course
from specbench_operator.reconcile.launches.client_side import not_durable
from specbench_operator.reconcile.launches.group import GroupView
from specbench_operator.reconcile.launches.judgement import joined
from specbench_operator.reconcile.moments import to_text
from specbench_operator.reconcile.scene import Scene, condition_of

MESSAGE_MAX = 4096
REASON_MAX = 128
UNFINISHED = "NotFinished"


@dataclass(frozen=True)
class Said:
    """A condition before it has a time."""

    status: ConditionStatus
    reason: str
    message: str = ""


def yes(reason: str, message: str = "") -> Said:
    """True."""
    return Said(ConditionStatus.TRUE, reason, message)


def no(reason: str, message: str = "") -> Said:
    """False."""
    return Said(ConditionStatus.FALSE, reason, message)


def unknown(reason: str, message: str = "") -> Said:
    """Unknown."""
    return Said(ConditionStatus.UNKNOWN, reason, message)


def conditions_of(scene: Scene, course: Course) -> list[Condition]:
    """All of them, in the order of the vocabulary."""
    said = {kind: tell(scene, course) for kind, tell in _TOLD_BY.items()} | for_tools(course)
    if scene.run.spec.gate:
        said[ConditionType.GATE_PASSED] = unknown(GateWait.NOT_YET, "it is evaluated when the run is finished")
    return dated(said, scene.previous, scene.run.metadata.generation, scene.now)


def dated(said: dict[ConditionType, Said], previous: RunStatus, generation: int, now: datetime) -> list[Condition]:
    """With their times: the old one where status did not flip."""
    return [
        Condition(
            type=kind,
            status=said[kind].status,
            reason=camel(said[kind].reason),
            message=said[kind].message[:MESSAGE_MAX],
            last_transition_time=_since(previous, kind, said[kind].status, now),
            observed_generation=generation,
        )
        for kind in ConditionType
        if kind in said
    ]


def camel(reason: str) -> str:
    """A reason that the API server takes, of whatever a client or a kubelet called it."""
    word = re.sub(r"[^A-Za-z0-9_]", "", reason).rstrip("_")[:REASON_MAX]
    return word if word[:1].isalpha() else f"Reason{word}"


def for_tools(course: Course) -> dict[ConditionType, Said]:
    """Ready, Reconciling and Stalled, as kstatus reads them. The last two are never True together."""
    phase, reason, message = course.phase, course.reason, course.message
    ready = phase is Phase.SUCCEEDED
    return {
        ConditionType.READY: yes(reason, message) if ready else no(reason, message),
        ConditionType.RECONCILING: yes(reason, message) if phase in AT_WORK else no(str(phase)),
        ConditionType.STALLED: yes(reason, message) if phase in STALLED else no(str(phase)),
    }


def _since(previous: RunStatus, kind: ConditionType, status: ConditionStatus, now: datetime) -> str:
    before = condition_of(previous, kind)
    return before.last_transition_time if before and before.status is status else to_text(now)


def _validated(_scene: Scene, _course: Course) -> Said:
    return yes("Valid")


def _queued(scene: Scene, course: Course) -> Said:
    """Not Stalled, also where a queue admits nobody: it may have been applied a moment after the run."""
    view, queue = scene.open, scene.run.spec.placement.queue_name
    if course.phase is Phase.SUSPENDED or view is None:
        return no(QueueReason.NONE)
    if view.state is GroupState.QUEUED:
        return yes(view.reason, joined((f"arm {view.group.arm}", *_preempted(view), view.message)))
    if scene.launching is not None:
        return yes(QueueReason.WAITING, f"arm {view.group.arm}") if queue else no(QueueReason.NONE)
    engine = scene.children.engine(view.group.index, view.attempt) if view.wanted is not None else None
    if engine is None or not engine.queue:
        return no(QueueReason.NONE)
    return no(QueueReason.ADMITTED, joined((f"queue {engine.queue}: arm {view.group.arm}", *_preempted(view))))


def _preempted(view: GroupView) -> tuple[str, ...]:
    return (f"preempted {view.preemptions} times",) if view.preemptions else ()


def _engine_ready(scene: Scene, course: Course) -> Said:
    view = scene.open
    if course.phase is Phase.SUSPENDED:
        return unknown("Suspended")
    if view is None:
        broken = [row for row in scene.failed if row.reason in tuple(EngineReason)]
        return no(broken[0].reason, _told(broken[0])) if broken else yes(EngineReason.DONE)
    if scene.launching is not None:
        return unknown(EngineReason.STARTING, f"arm {view.group.arm}")
    if view.state is GroupState.WAITING:
        return no(view.reason, _told(view)) if view.reason else unknown(EngineReason.STARTING)
    if view.judgement and view.judgement.hurts:
        return no(view.reason, _told(view))
    return _not_hurt(scene, view)


def _not_hurt(scene: Scene, view: GroupView) -> Said:
    if view.state in (GroupState.QUEUED, GroupState.STARTING):
        queued = view.state is GroupState.QUEUED
        return unknown(view.reason if queued else EngineReason.STARTING, _told(view))
    if _has_answered(scene, view) or _was_serving(scene, view):
        return yes(EngineReason.SERVING, f"arm {view.group.arm}")
    return unknown(EngineReason.STARTING, f"arm {view.group.arm}: healthy; its first completion is awaited")


def _has_answered(scene: Scene, view: GroupView) -> bool:
    """By this launch's own client: launches are numbered anew for a run that carries on an earlier one's results.

    Two clocks are compared. Where S3's is behind, this is told as much later, with a progress.json that comes then.
    """
    stored, client = scene.stored, scene.children.client(view.group.index, view.attempt)
    if stored is None or stored.answering != (view.group.index, view.attempt):
        return False
    return client is not None and stored.answered_at is not None and stored.answered_at >= client.created_at


def _was_serving(scene: Scene, view: GroupView) -> bool:
    """S3 is away, and with it the sign of the completion: what was known stays known."""
    before = condition_of(scene.previous, ConditionType.ENGINE_READY)
    row = next((row for row in scene.previous.groups if row.index == view.group.index), None)
    same = row is not None and (row.state, row.attempt) == (view.state, view.attempt)
    return scene.stored is None and same and before is not None and before.status is ConditionStatus.TRUE


def _load_finished(scene: Scene, course: Course) -> Said:
    total = len(scene.plan.points)
    so_far = f"{scene.measured} of {total} points measured"
    if scene.open is None and scene.failed:
        first = scene.ended_by or scene.failed[0]
        return no(first.reason, f"{so_far}; {_told(first)}")
    return yes("Finished", so_far) if scene.open is None else no(course.phase, so_far)


def _results_durable(scene: Scene, course: Course) -> Said:
    if scene.trouble:
        say = no if scene.trouble.refused else unknown
        return say(scene.trouble.reason, scene.trouble.message)
    clients = (scene.children.client(view.group.index, view.attempt) for view in scene.groups if not _whole(view))
    for job in (*clients, scene.children.report):
        words = not_durable(job, scene.children.pods_of(job))
        if words:
            return no(words.reason, words.message)
    return yes("Durable") if course.phase is Phase.SUCCEEDED else unknown(UNFINISHED)


def _whole(view: GroupView) -> bool:
    return view.measured == len(view.group.points)


def _trustworthy(scene: Scene, course: Course) -> Said:
    summary = scene.stored.summary if scene.stored else None
    if course.phase is not Phase.SUCCEEDED or summary is None:
        return unknown(UNFINISHED)
    if summary.trustworthy:
        return yes("Trustworthy", summary.verdict)
    worst = worst_of(summary.findings)
    reason = worst.check if worst else "Untrustworthy"
    return no(reason, joined((summary.verdict, worst.message if worst else "")))


def worst_of(findings: list[Finding]) -> Finding | None:
    """The finding that weighs most; the first of its kind."""
    order = list(Severity)
    serious = [finding for finding in findings if finding.severity is not Severity.NOTE]
    return min(serious, key=lambda finding: order.index(finding.severity), default=None)


def _told(view: GroupView) -> str:
    return joined((f"arm {view.group.arm}", view.reason, view.message))


_TOLD_BY: dict[ConditionType, Callable[[Scene, Course], Said]] = {
    ConditionType.VALIDATED: _validated,
    ConditionType.QUEUED: _queued,
    ConditionType.ENGINE_READY: _engine_ready,
    ConditionType.LOAD_FINISHED: _load_finished,
    ConditionType.RESULTS_DURABLE: _results_durable,
    ConditionType.TRUSTWORTHY: _trustworthy,
}
