"""Which children to stop, delete and create, given the RunView.

Two invariants: at most one launch of a run exists at any time, and it is created only when no other launch can hold
GPUs; and only objects with the run's own UID are changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specbench_api.outcome.provenance import ENDPOINT_WHEREABOUTS
from specbench_api.plan.names import ROLE_CLIENT
from specbench_api.spec.conditions import GroupState
from specbench_operator.render.client_jobs import client_job, plan_config_map, report_job
from specbench_operator.render.engine_job import engine_job, engine_service, leader_worker_set, leader_worker_set_job
from specbench_operator.render.job_annotations import with_engine_nodes, with_prior_launches
from specbench_operator.render.network_policies import network_policies
from specbench_operator.run.launches.children import Children, is_lost, live_pods
from specbench_operator.run.launches.engine import admitted_leader, current_pod
from specbench_operator.run.launches.group import GroupView, is_recorded_in_status, stop_and_keep_job
from specbench_operator.run.launches.host_facts import collect_host_facts
from specbench_operator.run.launches.launch_state import LaunchStage
from specbench_operator.run.status import RunState
from specbench_operator.run.view import RunView
from specbench_operator.state.objects import (
    ChildKey,
    ChildObject,
    Job,
    LaunchVerdict,
    ObjectRef,
    PriorLaunches,
    Relaunch,
    fulfils,
)
from specbench_operator.state.run import RelaunchJob, ResumeJob, StopJob

Manifests = tuple[Mapping[str, Any], ...]


def relaunches(run_view: RunView) -> tuple[RelaunchJob, ...]:
    """The engine's Job that continues as another launch, because its queue removed its pod and will give it another."""
    view = run_view.active_group
    engine = _last_launch_job(run_view.children, view) if view else None
    if view is None or engine is None or view.previous_pod is None:
        return ()
    preemptions = engine.relaunch.preemptions if engine.relaunch else 0
    return (RelaunchJob(engine.ref, Relaunch(view.attempt, preemptions + 1, view.previous_pod)),)


def resumes(run_view: RunView) -> tuple[ResumeJob, ...]:
    """The Jobs of engines on several nodes whose queue has admitted their pods. Deadlines count from then on."""
    engines = [job for job in run_view.children.engines if _belongs_to_live_launch(run_view, job)]
    leaders = [(job, admitted_leader(job, run_view.children.pods_of(job))) for job in engines]
    return tuple(ResumeJob(job.ref, leader.ref.uid) for job, leader in leaders if leader)


def stops(run_view: RunView) -> tuple[StopJob, ...]:
    """Jobs of failed launches that have no verdict yet, and Jobs whose launch number would be lost by deleting them.

    The verdict is written before anything else is launched. Suspended Jobs are not stopped but deleted: a deadline does
    not end them, and they have not started.
    """
    failed = _failed(run_view)
    failed_refs = {stop.ref for stop in failed}
    unrecorded = (
        stop_and_keep_job(job, run_view.now)
        for job in run_view.children.launch_jobs
        if not (_keeps_launch(run_view, job) or _may_delete(run_view, job) or job.suspended or job.deleting)
    )
    return (*failed, *(stop for stop in unrecorded if stop.ref not in failed_refs))


def _failed(run_view: RunView) -> tuple[StopJob, ...]:
    return tuple(
        StopJob(job.ref, LaunchVerdict(state.scope, state.reason, state.message, run_view.now), job.ended)
        for view in run_view.groups
        if (state := view.launch_state) and state.stage is LaunchStage.FAILED and state.scope
        if view.previous_pod is None or view is not run_view.active_group
        if (job := _last_launch_job(run_view.children, view)) and not job.verdict and not job.deleting
        if job.ended or not job.suspended
    )


def deletions(run_view: RunView) -> tuple[ObjectRef, ...]:
    """Children that are not needed any more. Jobs that have ended are kept as records; Jobs that could run are not."""
    stopped = {stop.ref for stop in stops(run_view)}
    clients = () if run_view.children.running_already else run_view.children.clients
    # A Job whose launch is not in status yet is deleted by a later reconciliation, after status has been written.
    launches = [job for job in run_view.children.launch_jobs if job.ref not in stopped and _may_delete(run_view, job)]
    obsolete: list[Job | ChildObject] = [
        *(job for job in launches if not _keeps_launch(run_view, job)),
        *(job for job in clients if not _keeps_client(run_view, job)),
        *(child for child in run_view.children.services if not _belongs_to_live_launch(run_view, child)),
    ]
    # A report that was made before a point was measured again is out of date.
    report = run_view.children.report
    if report and (run_view.active_group or is_lost(report, run_view.children, run_view.settings, run_view.now)):
        obsolete.append(report)
    return tuple(child.ref for child in obsolete if not child.deleting)


def creations(run_view: RunView, state: RunState) -> Manifests:
    """Manifests of children that should exist and do not, or that somebody edited."""
    waits = run_view.suspended or run_view.awaits_adopted_uid or run_view.namespace_wait is not None
    if run_view.children.leftovers or run_view.fatal_group or waits:
        return ()
    begun = (state.adds_round and run_view.grown_plan) or run_view.begun
    policies = run_view.settings.network_policies
    return tuple(
        manifest
        for manifest in (
            *(network_policies(run_view.run, policies) if policies else ()),  # before the pods that they select
            plan_config_map(run_view.run, begun.plan, run_view.settings.client_image, begun.sha256),
            *_launch_objects(run_view),
            *_serving_objects(run_view),
            *(
                (report_job(run_view.run, run_view.plan, run_view.settings, run_view.begun.digest),)
                if state.report_due
                else ()
            ),
        )
        if not _exists_as_wanted(run_view.children, manifest)
    )


def releases(children: Children) -> tuple[ObjectRef, ...]:
    """Every child that runs or could run, to be deleted: engines first, then clients, Services and LeaderWorkerSets."""
    jobs = [job for job in (*children.engines, *children.clients) if not (job.stopping_or_ended or job.deleting)]
    objects = [child for child in children.services if not child.deleting]
    return (*(job.ref for job in jobs), *(child.ref for child in objects))


def _launch_objects(run_view: RunView) -> Iterator[Mapping[str, Any]]:
    attempt = run_view.launching
    if run_view.active_group and attempt is not None:
        group = run_view.active_group.group
        prior = PriorLaunches(run_view.active_group.suspensions, run_view.active_group.preemptions)
        if run_view.children.running_already:
            facts = ENDPOINT_WHEREABOUTS
            job = client_job(
                run_view.run,
                run_view.plan,
                group,
                attempt,
                run_view.settings,
                engine=facts,
                engine_pod="",
                plan_digest=run_view.begun.digest,
            )
            yield with_prior_launches(job, prior)
            return
        yield engine_service(run_view.run, run_view.plan, group, attempt)
        if run_view.run.spec.placement.nodes > 1:
            # The LeaderWorkerSet is created by the next reconciliation, because its owner is this Job.
            job = leader_worker_set_job(run_view.run, group, attempt, run_view.settings)
        else:
            job = engine_job(run_view.run, run_view.plan, group, attempt, run_view.settings, run_view.served_on)
        yield with_prior_launches(job, prior)


def _serving_objects(run_view: RunView) -> Iterator[Mapping[str, Any]]:
    view, attempt = run_view.active_group, run_view.live_launch(run_view.active_group)
    if view is None or attempt is None or view.launch_state is None or run_view.children.running_already:
        return
    engine = run_view.children.engine(view.group.index, attempt)
    yield engine_service(run_view.run, run_view.plan, view.group, attempt, engine.key.attempt if engine else None)
    # A Job that somebody else has suspended has no deadline, so nothing is started behind it.
    may_start = view.launch_state.stage is LaunchStage.STARTING or (engine and engine.suspended and engine.queue)
    if run_view.run.spec.placement.nodes > 1 and engine and may_start:
        yield leader_worker_set(run_view.run, run_view.plan, view.group, engine, run_view.settings, run_view.served_on)
    if view.launch_state.stage is LaunchStage.SERVING and not _has_client_pod(run_view, view.group.index, attempt):
        pod = current_pod(run_view.children.pods_of(engine))
        facts, uid = collect_host_facts(run_view.run, pod, run_view.nodes), pod.ref.uid if pod else ""
        job = client_job(
            run_view.run,
            run_view.plan,
            view.group,
            attempt,
            run_view.settings,
            engine=facts,
            engine_pod=uid,
            plan_digest=run_view.begun.digest,
        )
        yield with_engine_nodes(job, run_view.served_on if pod else ())


def _has_client_pod(run_view: RunView, group: int, attempt: int) -> bool:
    """Whether a client of this launch still runs, perhaps of a Job that was deleted: two would share one engine."""
    key = ChildKey(ROLE_CLIENT, group, attempt)
    return any(pod.key == key for pod in live_pods(run_view.children.pods, run_view.settings, run_view.now))


def _exists_as_wanted(children: Children, manifest: Mapping[str, Any]) -> bool:
    present: Iterable[Job | ChildObject] = (*children.jobs, *children.objects)
    name = (manifest["kind"], manifest["metadata"]["name"])
    found = [child for child in present if (child.ref.kind, child.ref.name) == name]
    return any(isinstance(child, Job) or child.spec is None or fulfils(child.spec, manifest["spec"]) for child in found)


def _last_launch_job(children: Children, view: GroupView) -> Job | None:
    attempts = children.attempts(view.group.index)
    return children.launch_job(view.group.index, attempts[-1]) if attempts else None


def _belongs_to_live_launch(run_view: RunView, child: Job | ChildObject) -> bool:
    live_launch = run_view.live_launch(_group_view(run_view, child))
    launch = child.launch if isinstance(child, Job) else child.key.attempt
    return live_launch is not None and launch == live_launch


def _keeps_launch(run_view: RunView, job: Job) -> bool:
    relaunched = {row.ref for row in relaunches(run_view)}
    ends_soon = run_view.children.running_already and _ends_soon(run_view, job)
    return ends_soon or job.stopping_or_ended or _belongs_to_live_launch(run_view, job) or job.ref in relaunched


def _ends_soon(run_view: RunView, client: Job) -> bool:
    """Whether a client has measured everything and ends by itself: its pod is not being deleted, nor its node lost."""
    leaving = any(pod.alive and pod.deleted_at for pod in run_view.children.pods_of(client))
    view = _group_view(run_view, client)
    return view is not None and view.state is GroupState.DONE and not leaving


def _may_delete(run_view: RunView, job: Job) -> bool:
    """Whether the Job can be deleted without losing the number of its launch."""
    view = _group_view(run_view, job)
    return view is None or view.state is GroupState.DONE or is_recorded_in_status(run_view.previous.groups, job)


def _keeps_client(run_view: RunView, job: Job) -> bool:
    view = _group_view(run_view, job)
    is_finishing = view is not None and view.state is GroupState.DONE
    return job.ended or is_finishing or _belongs_to_live_launch(run_view, job)


def _group_view(run_view: RunView, child: Job | ChildObject) -> GroupView | None:
    return next((view for view in run_view.groups if view.group.index == child.key.group), None)
