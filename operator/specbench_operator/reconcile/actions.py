"""What is to be stopped, deleted and applied, given where everything stands.

Two rules hold whatever was observed: at most one launch of the run is asked for at any time, and only once nothing of
another launch can hold GPUs; and nothing is touched that does not carry the run's own UID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specbench_api.spec.conditions import GroupState
from specbench_operator.reconcile.course import Course
from specbench_operator.reconcile.launches.children import Children
from specbench_operator.reconcile.launches.engine_side import current
from specbench_operator.reconcile.launches.group import GroupView
from specbench_operator.reconcile.launches.judgement import Stage
from specbench_operator.reconcile.launches.numbers import given_back, is_told
from specbench_operator.reconcile.launches.whereabouts import whereabouts
from specbench_operator.reconcile.scene import Scene
from specbench_operator.render.client_job import client_job
from specbench_operator.render.engine_group import engine_group, group_deadline
from specbench_operator.render.engine_job import engine_job
from specbench_operator.render.plan_config import plan_config
from specbench_operator.render.report_job import report_job
from specbench_operator.render.service import engine_service
from specbench_operator.render.told import served_by, told_of
from specbench_operator.state.child import Ref
from specbench_operator.state.decision import RelaunchJob, StopJob
from specbench_operator.state.jobs import Before, Job, Relaunch, Thing, Verdict

Manifests = tuple[Mapping[str, Any], ...]


def relaunches(scene: Scene) -> tuple[RelaunchJob, ...]:
    """The engine's Job that goes on as another launch, because its queue took its pod away and will give it another."""
    view = scene.open
    engine = _last_engine(scene.children, view) if view else None
    if view is None or engine is None or view.past_pod is None:
        return ()
    before = engine.relaunch.preemptions if engine.relaunch else 0
    return (RelaunchJob(engine.ref, Relaunch(view.attempt, before + 1, view.past_pod)),)


def stops(scene: Scene) -> tuple[StopJob, ...]:
    """Failed launches whose Job does not say so yet, and those that would be forgotten if their Job were deleted.

    The reason is written before anything else is launched. Not of a Job that is suspended: no deadline ends it, and
    what has not started leaves nothing to tell. It is deleted.
    """
    failed = _failed(scene)
    said = {stop.ref for stop in failed}
    forgotten = (
        given_back(job, scene.now)
        for job in scene.children.engines
        if not (_engine_stays(scene, job) or _is_forgettable(scene, job) or job.suspended or job.deleting)
    )
    return (*failed, *(stop for stop in forgotten if stop.ref not in said))


def _failed(scene: Scene) -> tuple[StopJob, ...]:
    return tuple(
        StopJob(engine.ref, Verdict(judged.scope, judged.reason, judged.message, scene.now), engine.ended)
        for view in scene.groups
        if (judged := view.judgement) and judged.stage is Stage.FAILED and judged.scope
        if view.past_pod is None or view is not scene.open
        if (engine := _last_engine(scene.children, view)) and not engine.verdict and not engine.deleting
        if engine.ended or not engine.suspended
    )


def deletions(scene: Scene) -> tuple[Ref, ...]:
    """Children that have no further part: what ended stays as a record, what could still run goes."""
    stopped = {stop.ref for stop in stops(scene)}
    found: list[Job | Thing] = [
        *(job for job in scene.children.engines if job.ref not in stopped and _engine_goes(scene, job)),
        *(job for job in scene.children.clients if not _client_stays(scene, job)),
        *(thing for thing in scene.children.services if not _is_wanted(scene, thing)),
    ]
    report = scene.children.report
    if report and scene.open:
        found.append(report)
    return tuple(child.ref for child in found if not child.deleting)


def applications(scene: Scene, course: Course) -> Manifests:
    """Children that should be there and are not."""
    if scene.children.strangers or scene.ended_by or scene.suspended or scene.placeless:
        return ()
    return tuple(
        manifest
        for manifest in (*_plan(scene), *_launch(scene), *_at_work(scene), *_report(scene, course))
        if not _is_there(scene.children, manifest)
    )


def releases(children: Children) -> tuple[Ref, ...]:
    """Everything that runs or could run: engines first, then clients and their Services."""
    jobs = [job for job in (*children.engines, *children.clients) if not (job.harmless or job.deleting)]
    things = [thing for thing in children.services if not thing.deleting]
    return (*(job.ref for job in jobs), *(thing.ref for thing in things))


def _plan(scene: Scene) -> Iterator[Mapping[str, Any]]:
    """Where results are carried on, not before S3 has told by which plan."""
    if scene.run.spec.results.adopt is None or scene.stored is not None:
        yield plan_config(scene.run, scene.plan)


def _launch(scene: Scene) -> Iterator[Mapping[str, Any]]:
    attempt = scene.launching
    if scene.open and attempt is not None:
        group = scene.open.group
        yield engine_service(scene.run, scene.plan, group, attempt)
        if scene.run.spec.placement.nodes > 1:
            made = group_deadline(scene.run, group, attempt, scene.settings)  # the nodes follow, owned by it
        else:
            made = engine_job(scene.run, scene.plan, group, attempt, scene.settings, scene.served_on)
        yield told_of(made, Before(scene.open.given_back, scene.open.preemptions))


def _at_work(scene: Scene) -> Iterator[Mapping[str, Any]]:
    view, attempt = scene.open, scene.wanted(scene.open)
    if view is None or attempt is None or view.judgement is None:
        return
    engine = scene.children.engine(view.group.index, attempt)
    yield engine_service(scene.run, scene.plan, view.group, attempt, engine.place.attempt if engine else None)
    if scene.run.spec.placement.nodes > 1 and engine and view.judgement.stage is Stage.STARTING:
        yield engine_group(scene.run, scene.plan, view.group, engine, scene.settings, scene.served_on)
    if view.judgement.stage is Stage.SERVING:
        pod = current(scene.children.pods_of(engine))
        place, uid = whereabouts(scene.run, pod, scene.nodes), pod.ref.uid if pod else ""
        made = client_job(scene.run, scene.plan, view.group, attempt, scene.settings, engine=place, engine_pod=uid)
        yield served_by(made, scene.served_on if pod else ())


def _report(scene: Scene, course: Course) -> Iterator[Mapping[str, Any]]:
    if course.report_due:
        yield report_job(scene.run, scene.settings)


def _is_there(children: Children, manifest: Mapping[str, Any]) -> bool:
    present: Iterable[Job | Thing] = (*children.jobs, *children.things)
    return (manifest["kind"], manifest["metadata"]["name"]) in {(child.ref.kind, child.ref.name) for child in present}


def _last_engine(children: Children, view: GroupView) -> Job | None:
    attempts = children.attempts(view.group.index)
    return children.engine(view.group.index, attempts[-1]) if attempts else None


def _is_wanted(scene: Scene, child: Job | Thing) -> bool:
    view = _view(scene, child)
    wanted = scene.wanted(view)
    launch = child.launch if isinstance(child, Job) else child.place.attempt
    return wanted is not None and launch == wanted


def _engine_stays(scene: Scene, job: Job) -> bool:
    return job.harmless or _is_wanted(scene, job) or job.ref in {row.ref for row in relaunches(scene)}


def _engine_goes(scene: Scene, job: Job) -> bool:
    """One whose launch status does not know yet waits for the next look, which finds it told."""
    return not _engine_stays(scene, job) and _is_forgettable(scene, job)


def _is_forgettable(scene: Scene, job: Job) -> bool:
    """Whether no number of a launch is lost with it."""
    view = _view(scene, job)
    return view is None or view.state is GroupState.DONE or is_told(scene.previous.groups, job)


def _client_stays(scene: Scene, job: Job) -> bool:
    view = _view(scene, job)
    finishing = view is not None and view.state is GroupState.DONE
    return job.ended or finishing or _is_wanted(scene, job)


def _view(scene: Scene, child: Job | Thing) -> GroupView | None:
    return next((view for view in scene.groups if view.group.index == child.place.group), None)
