"""What is wrong, in a few words for a print column: the reasons that a person would otherwise look for one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from specbench_api.spec.conditions import ConditionStatus, ConditionType, Phase
from specbench_api.spec.status import Condition
from specbench_operator.reconcile.course import Course
from specbench_operator.reconcile.scene import Scene

PROBLEM_MAX = 128


def problem_of(scene: Scene, course: Course, conditions: list[Condition]) -> str:
    """Worst first, each once: what ended the run, what hinders it now, arms that were given up, doubts."""
    return told(_found(scene, course, {row.type: row for row in conditions}))


def told(reasons: Iterable[str]) -> str:
    """As many as the column holds."""
    return ", ".join(dict.fromkeys(reason for reason in reasons if reason))[:PROBLEM_MAX]


def _found(scene: Scene, course: Course, rows: dict[ConditionType, Condition]) -> Iterator[str]:
    arms = [f"{view.reason} ({view.group.arm})" for view in scene.failed]
    if course.phase is Phase.FAILED and course.reason not in {view.reason for view in scene.failed}:
        yield course.reason
    if scene.open and rows[ConditionType.ENGINE_READY].status is ConditionStatus.FALSE:
        yield rows[ConditionType.ENGINE_READY].reason
    if scene.trouble:
        yield scene.trouble.reason
    yield from arms
    for kind in (ConditionType.RESULTS_DURABLE, ConditionType.TRUSTWORTHY):
        if rows[kind].status is ConditionStatus.FALSE:
            yield rows[kind].reason
