"""The reconcile function: one run, all that was observed of it, and the time → what is to be done and said."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from specbench_api.errors import InvalidSpec, Problem
from specbench_api.spec.conditions import Phase
from specbench_api.spec.reading import parse_run
from specbench_api.spec.run import SpecBenchRun
from specbench_api.spec.status import RunStatus
from specbench_operator.reconcile.actions import applications, deletions, relaunches, stops
from specbench_operator.reconcile.adopted import refuse_other_results
from specbench_operator.reconcile.course import TERMINAL, Course, course_of
from specbench_operator.reconcile.finished import finished
from specbench_operator.reconcile.gate import with_gate
from specbench_operator.reconcile.launches.children import children_of
from specbench_operator.reconcile.launches.judgement import soonest
from specbench_operator.reconcile.refused import invalid, is_finished
from specbench_operator.reconcile.scene import Scene, scene_of, status_of
from specbench_operator.reconcile.telling.size import fitted
from specbench_operator.reconcile.telling.status import status_now
from specbench_operator.reconcile.telling.transitions import events_between
from specbench_operator.settings import Settings
from specbench_operator.state.decision import Decision
from specbench_operator.state.observed import Observed

S3_AGAIN_S = 15.0
NO_LEADER_WORKER_SETS = Problem(
    "spec.placement.nodes",
    "an engine on several nodes needs LeaderWorkerSet, and this operator is not told that it is there",
    "install it (leaderworkerset.x-k8s.io), then set leaderWorkerSets=true in specbench's chart; or set nodes to 1",
)
RELEASE_AGAIN_S = 5.0


def decide(observed: Observed, settings: Settings, now: datetime) -> Decision:
    """Decide. Never raises for anything that was observed."""
    decision = _decided(observed, settings, now)
    return replace(decision, status=fitted(decision.status))


def _decided(observed: Observed, settings: Settings, now: datetime) -> Decision:
    resource = observed.resource
    previous = status_of(resource)
    if resource["metadata"].get("deletionTimestamp"):
        return Decision(previous, at_rest=True)  # the garbage collector takes the children
    children = children_of(observed, resource["metadata"]["uid"], settings, now)
    if is_finished(previous):
        return with_gate(finished(resource, previous, children, now), observed, children, settings, now)
    try:
        return _decide(parse_run(resource), observed, previous, settings, now)
    except InvalidSpec as error:
        return invalid(resource, error, children, previous, now)


def _decide(run: SpecBenchRun, observed: Observed, previous: RunStatus, settings: Settings, now: datetime) -> Decision:
    if run.spec.placement.nodes > 1 and not settings.leader_worker_sets:
        raise InvalidSpec([NO_LEADER_WORKER_SETS])
    scene = scene_of(run, observed, previous, settings, now)
    refuse_other_results(scene)
    course = course_of(scene)
    apply = applications(scene, course)  # raises InvalidSpec for a plan that no ConfigMap holds
    status = status_now(scene, course)
    return Decision(
        status=status,
        relaunch=relaunches(scene),
        stop=stops(scene),
        delete=deletions(scene),
        apply=apply,
        events=events_between(previous, status),
        look_again_s=_look_again_s(scene, course),
    )


def _look_again_s(scene: Scene, course: Course) -> float | None:
    view = scene.open
    by_judgement = view.judgement.look_again_s if view and view.judgement else None
    by_trouble = S3_AGAIN_S if scene.trouble and course.phase not in TERMINAL else None
    blocked = scene.children.strangers or (scene.holding and (view is None or view.launch is not None))
    by_release = RELEASE_AGAIN_S if blocked and course.phase is not Phase.SUSPENDED else None
    return soonest(by_judgement, by_trouble, by_release)
