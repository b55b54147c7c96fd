"""RunStatus, put together from where everything stands."""

from __future__ import annotations

from typing import Any

from specbench_api.outcome.best import best_of
from specbench_api.outcome.layout import REPORT, SUMMARY
from specbench_api.spec.conditions import GroupState, Phase
from specbench_api.spec.status import GroupStatus, PointCounts, ResultsStatus, RunStatus
from specbench_operator.reconcile.course import TERMINAL, Course
from specbench_operator.reconcile.launches.group import GroupView
from specbench_operator.reconcile.launches.judgement import SUSPENDED
from specbench_operator.reconcile.moments import to_text
from specbench_operator.reconcile.scene import Scene
from specbench_operator.reconcile.telling.answer import arms_of, recommendation_of
from specbench_operator.reconcile.telling.conditions import conditions_of
from specbench_operator.reconcile.telling.held import with_gpu_seconds
from specbench_operator.reconcile.telling.problem import problem_of
from specbench_operator.render.client_pod import results_uri


def status_now(scene: Scene, course: Course) -> RunStatus:
    """The status that this look calls for."""
    ended = course.phase in TERMINAL and not course.mendable and not scene.holding
    summary = scene.stored.summary if scene.stored and course.phase is Phase.SUCCEEDED else None
    counts = _counts(scene, summary.points_invalid if summary else 0)
    answer: dict[str, Any] = {}
    if summary:
        answer = {
            "arms": arms_of(summary),
            "best": best_of(summary),
            "recommendation": recommendation_of(summary),
            "verdict": "Trustworthy" if summary.trustworthy else "Untrustworthy",
        }
    conditions = conditions_of(scene, course)
    status = RunStatus(
        observed_generation=scene.run.metadata.generation,
        phase=course.phase,
        conditions=conditions,
        start_time=_start(scene),
        completion_time=to_text(scene.now) if ended else None,
        points=counts,
        progress=f"{counts.measured}/{counts.total}",
        engine_nodes=list(scene.served_on),
        groups=[_row(scene, view) for view in scene.groups],
        problem=problem_of(scene, course, conditions),
        results=_results(scene, course),
        **answer,
    )
    return with_gpu_seconds(status, scene)


def _counts(scene: Scene, invalid: int) -> PointCounts:
    given_up = sum(len(view.group.points) - view.measured for view in scene.failed)
    return PointCounts(total=len(scene.plan.points), measured=scene.measured, invalid=invalid, failed=given_up)


def _row(scene: Scene, view: GroupView) -> GroupStatus:
    row = view.to_status()
    if view.over or view is not scene.open:
        return row if view.over else row.model_copy(update=_closed(view))
    if scene.suspended:
        update = {"state": GroupState.WAITING, "reason": SUSPENDED, "message": ""}
        return row.model_copy(update=update)
    if scene.launching is None:
        return row
    queued = scene.run.spec.placement.queue_name is not None
    return row.model_copy(update={"state": GroupState.QUEUED if queued else GroupState.STARTING})


def _closed(view: GroupView) -> dict[str, Any]:
    """A group whose turn it is not. An engine that is at work for it all the same goes: that launch is given back."""
    waiting: dict[str, Any] = {"state": GroupState.WAITING}
    if view.wanted is None:
        return waiting
    return {**waiting, "attempt": view.attempt + 1, "given_back": view.given_back + 1, "engine_pod": ""}


def _start(scene: Scene) -> str | None:
    """When the first engine was asked for: kept, else read off the oldest engine Job, else now."""
    if scene.previous.start_time:
        return scene.previous.start_time
    asked = min((job.created_at for job in scene.children.engines), default=None)
    if asked is None:
        return to_text(scene.now) if scene.launching is not None else None
    return to_text(asked)


def _results(scene: Scene, course: Course) -> ResultsStatus | None:
    if scene.placeless:
        return None
    uri = results_uri(scene.run)
    done = course.phase is Phase.SUCCEEDED
    return ResultsStatus(uri=uri, summary=f"{uri}/{SUMMARY}" if done else "", report=f"{uri}/{REPORT}" if done else "")
