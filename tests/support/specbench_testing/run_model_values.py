"""The states of the run model, and their conversion to and from the operator's values.

Times are ages in ticks, so that two states that differ only by the clock are equal: the clock stands still, and time
passes by everything growing older, up to the longest deadline. UIDs are derived from names, so that they do not depend
on the order in which objects were created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.names import LABEL_ATTEMPT, LABEL_GROUP, LABEL_ROLE, ROLE_CLIENT, ROLE_ENGINE
from specbench_api.spec.conditions import ConditionType, EngineReason
from specbench_api.spec.status import RunStatus
from specbench_operator.render.engine_job import LABEL_KUEUE_QUEUE
from specbench_operator.render.job_annotations import ANNOTATION_ENGINE_POD, parse_engine_nodes, parse_prior_launches
from specbench_operator.state.objects import (
    ChildKey,
    ChildObject,
    ContainerTerminated,
    ContainerWaiting,
    FailureScope,
    Job,
    JobFailure,
    LaunchVerdict,
    ObjectRef,
    Pod,
    PriorLaunches,
    Relaunch,
)
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp
from specbench_testing.operator_builders import NOON

TICK_S = 60
"""One tick. The settings of the model have deadlines of one tick, and of two ticks for the start of an engine."""
OLDEST = 2
"""Ages grow up to this number of ticks: nothing that is decided depends on a higher age."""
COMPLETE = "Complete"

Verdict = tuple[str, str, str]
"""Scope, reason and message."""


class ModelJob(NamedTuple):
    """A Job. `end` is empty while it may create pods, else Complete or the reason of its failure."""

    name: str
    role: str
    group: int | None
    attempt: int | None
    owner: str
    uid: str = ""
    age: int = 0
    started: int | None = 0
    suspended: bool = False
    queued: bool = False
    has_pod: bool = False
    """Whether its controller has created its pod since it was started."""
    end: str = ""
    ended: int = 0
    verdict: Verdict | None = None
    relaunch: tuple[int, int, str] | None = None
    engine_pod: str = ""
    nodes: tuple[str, ...] = ()
    prior: tuple[int, int] = (0, 0)


class ModelPod(NamedTuple):
    """A pod. `stage`: Pending, ImagePull, Running (an engine is then ready) or Ended; `end`: why it ended."""

    name: str
    job: str
    job_uid: str
    role: str
    group: int | None
    attempt: int | None
    owner: str
    stage: str = "Pending"
    end: str = ""
    disrupted: bool = False
    deleted: int | None = None
    on_lost_node: bool = False
    dropped: bool = False
    """Whether the suspension of its Job deleted it, so that its end does not fail the Job."""
    age: int = 0
    target: str = ""
    """For a client: UID of the engine's pod that it measures."""


class ModelObject(NamedTuple):
    """A Service or a ConfigMap."""

    kind: str
    name: str
    role: str
    group: int | None
    attempt: int | None
    owner: str
    uid: str = ""


class ModelRun(NamedTuple):
    """The SpecBenchRun. `uid` is empty if it was deleted; `status` is JSON with ages as times."""

    uid: str
    suspend: bool = False
    status: str = "{}"


Jobs = tuple[ModelJob, ...]
Pods = tuple[ModelPod, ...]
Objects = tuple[ModelObject, ...]


class Stored(NamedTuple):
    """The results of the run in S3."""

    measured: tuple[bool, ...]
    """By point, in the plan's order: whether its manifest is stored."""
    launches: tuple[int, ...]
    """By group: the last launch that stored a point; -1 if none has."""
    summary: int | None = None
    """Number of points of the stored summary."""


class Views(NamedTuple):
    """What the operator's cache contains of a kind that lags behind; None if it is up to date."""

    run: ModelRun | None = None
    jobs: Jobs | None = None
    pods: Pods | None = None
    objects: Objects | None = None


class Write(NamedTuple):
    """One request of the operator. `fields` depend on `verb`: relaunch, stop, delete, create or status."""

    verb: str
    name: str
    uid: str = ""
    fields: Any = None
    kind: str = ""


class RunWorld(NamedTuple):
    """A state of the run model."""

    run: ModelRun
    jobs: Jobs
    pods: Pods
    objects: Objects
    stored: Stored
    store_up: bool = True
    views: Views = Views()
    writes: tuple[Write, ...] = ()
    """The writes that are left of the operator's last decision."""
    current: bool = True
    """Whether the run is unchanged since that decision's observation, so that its status may be written."""
    permitted: bool = True
    """Whether the operator has its rights in the namespace."""
    downgraded: bool = False
    """Whether the operator is of an earlier version, which does not know a field of the plan in the ConfigMap."""


def restarted(world: RunWorld) -> RunWorld:
    """Another operator process begins: it has neither writes left nor caches."""
    return world._replace(writes=(), views=Views(), current=True)


def _time(age: int) -> datetime:
    return NOON - timedelta(seconds=age * TICK_S)


def _key(value: ModelJob | ModelPod | ModelObject) -> ChildKey:
    return ChildKey(value.role, value.group, value.attempt)


@lru_cache(maxsize=100_000)
def to_job(job: ModelJob) -> Job:
    """The Job as the operator observes it."""
    failure = None if job.end in ("", COMPLETE) else JobFailure(job.end, "Job has failed", _time(job.ended))
    verdict = LaunchVerdict(FailureScope(job.verdict[0]), *job.verdict[1:], NOON) if job.verdict else None
    return Job(
        ObjectRef("Job", job.name, job.uid),
        job.owner,
        _key(job),
        _time(job.age),
        None if job.started is None else _time(job.started),
        suspended=job.suspended,
        complete=job.end == COMPLETE,
        failure=failure,
        verdict=verdict,
        queue="bench" if job.queued else "",
        relaunch=Relaunch(*job.relaunch) if job.relaunch else None,
        engine_pod=job.engine_pod,
        engine_nodes=job.nodes,
        prior_launches=PriorLaunches(*job.prior),
    )


def from_job_manifest(manifest: Mapping[str, Any]) -> ModelJob:
    """The Job that the API server creates from a manifest."""
    meta, labels = manifest["metadata"], manifest["metadata"]["labels"]
    suspended, prior = bool(manifest["spec"].get("suspend")), parse_prior_launches(meta)
    return ModelJob(
        meta["name"],
        labels[LABEL_ROLE],
        _number(labels, LABEL_GROUP),
        _number(labels, LABEL_ATTEMPT),
        meta["ownerReferences"][0]["uid"],
        started=None if suspended else 0,
        suspended=suspended,
        queued=LABEL_KUEUE_QUEUE in labels,
        engine_pod=meta.get("annotations", {}).get(ANNOTATION_ENGINE_POD, ""),
        nodes=parse_engine_nodes(meta),
        prior=(prior.suspensions, prior.preemptions),
    )


def from_object_manifest(manifest: Mapping[str, Any]) -> ModelObject:
    """The Service or ConfigMap that the API server creates from a manifest."""
    meta, labels = manifest["metadata"], manifest["metadata"]["labels"]
    return ModelObject(
        manifest["kind"],
        meta["name"],
        labels[LABEL_ROLE],
        _number(labels, LABEL_GROUP),
        _number(labels, LABEL_ATTEMPT),
        meta["ownerReferences"][0]["uid"],
    )


def _number(labels: Mapping[str, str], key: str) -> int | None:
    return int(labels[key]) if key in labels else None


ENDS: Mapping[str, tuple[int, str, str]] = {
    "Done": (0, "Completed", ""),
    "Crashed": (1, "Error", ""),
    "Killed": (137, "Error", ""),
    "EngineLost": (int(Exit.ENGINE_FAILED), "Error", "EngineLost"),
    "BadInput": (int(Exit.BAD_INPUT), "Error", "BadInput"),
    "NotStored": (int(Exit.RESULTS_NOT_STORED), "Error", "S3Away"),
}
"""End of a pod → exit code, reason of the container, and reason in its termination message."""


@lru_cache(maxsize=100_000)
def to_pod(pod: ModelPod) -> Pod:
    """The pod as the operator observes it."""
    ended, terminated = pod.stage == "Ended", None
    if ended:
        code, reason, cause = ENDS[pod.end]
        message = Termination(code=code, reason=cause, message="what happened").to_message() if cause else ""
        terminated = ContainerTerminated(code, reason, message, _time(pod.age), _time(0))
    phase = ("Succeeded" if pod.end == "Done" else "Failed") if ended else "Running"
    return Pod(
        ObjectRef("Pod", pod.name, pod.name),
        pod.owner,
        _key(pod),
        pod.job,
        pod.job_uid,
        phase if ended or pod.stage == "Running" else "Pending",
        _time(pod.age),
        ready=pod.stage == "Running",
        disrupted="preempted" if pod.disrupted else None,
        scheduled_at=_time(pod.age),
        deleted_at=None if pod.deleted is None else _time(pod.deleted),
        waiting=ContainerWaiting("ErrImagePull") if pod.stage == "ImagePull" else None,
        terminated=terminated,
        node="node",
    )


@lru_cache(maxsize=100_000)
def to_object(child: ModelObject) -> ChildObject:
    """The object as the operator observes it."""
    return ChildObject(ObjectRef(child.kind, child.name, child.uid), child.owner, _key(child), run_uid=child.owner)


_AGE = re.compile(r'"@(\d)"')
_GRACE_REASONS = (EngineReason.IMAGE_PULL_FAILED, EngineReason.CONFIG_ERROR)


def status_text(status: RunStatus) -> str:
    """The status as JSON with ages as times, without what no decision depends on: messages of conditions, the times of
    all conditions but a failing EngineReady, GPU-seconds, and results.
    """
    content = status.to_dict()
    for unread in ("gpuSecondsHeld", "gpuSecondsUntil", "arms", "best", "recommendation"):
        content.pop(unread, None)
    for moment in ("startTime", "completionTime"):
        if moment in content:
            content[moment] = f"@{OLDEST}"
    for row in content.get("conditions", []):
        counts = row["type"] == ConditionType.ENGINE_READY and row["reason"] in _GRACE_REASONS
        row |= {"message": "", "lastTransitionTime": _age(row["lastTransitionTime"]) if counts else f"@{OLDEST}"}
    for row in content.get("groups", []):
        if "idleSince" in row:
            row["idleSince"] = _age(row["idleSince"])
    return json.dumps(content, sort_keys=True)


def _age(text: str) -> str:
    moment = parse_timestamp(text)
    assert moment is not None
    return f"@{min(round((NOON - moment).total_seconds() / TICK_S), OLDEST)}"


@lru_cache(maxsize=100_000)
def status_of(text: str) -> RunStatus:
    """The status whose text this is."""
    return RunStatus.model_validate(status_content(text))


@lru_cache(maxsize=100_000)
def status_content(text: str) -> dict[str, Any]:
    """The status as the API server stores it."""
    return dict(json.loads(_AGE.sub(lambda match: f'"{format_timestamp(_time(int(match[1])))}"', text)))


@lru_cache(maxsize=100_000)
def older_text(text: str) -> str:
    """The text of a status a tick later."""
    return _AGE.sub(lambda match: f'"@{min(int(match[1]) + 1, OLDEST)}"', text)


def _older(age: int | None) -> int | None:
    return None if age is None else min(age + 1, OLDEST)


def older_run(run: ModelRun | None) -> ModelRun | None:
    """The run a tick later."""
    return run and run._replace(status=older_text(run.status))


def older_jobs(jobs: Jobs | None) -> Jobs | None:
    """The Jobs a tick later. Only those times grow older that a decision depends on."""
    if jobs is None:
        return None
    compares_times = any(job.queued for job in jobs)  # whether an engine was started after its client was created
    return tuple(
        job._replace(
            age=min(job.age + 1, OLDEST) if job.role == ROLE_CLIENT and compares_times else 0,
            started=_older(job.started) if job.role == ROLE_ENGINE and not (job.end or job.verdict) else job.started,
            ended=min(job.ended + 1, OLDEST) if job.end and job.role == ROLE_CLIENT else 0,
        )
        for job in jobs
    )


def grows_old(pod: ModelPod) -> bool:
    """Whether a decision depends on since when the pod is being deleted: that of a client only on a lost node."""
    return pod.role == ROLE_ENGINE or pod.on_lost_node


def older_pods(pods: Pods | None) -> Pods | None:
    """The pods a tick later. Only those times grow older that a decision depends on."""
    if pods is None:
        return None
    return tuple(
        pod._replace(
            age=min(pod.age + 1, OLDEST) if pod.stage in ("Pending", "ImagePull") else pod.age,
            deleted=_older(pod.deleted) if pod.stage != "Ended" and grows_old(pod) else pod.deleted,
        )
        for pod in pods
    )


def older_world(world: RunWorld) -> RunWorld:
    """The world a tick later."""
    views = world.views
    run, jobs, pods = older_run(world.run), older_jobs(world.jobs), older_pods(world.pods)
    assert run is not None
    assert jobs is not None
    assert pods is not None
    writes = tuple(
        write._replace(fields=older_text(write.fields)) if write.verb == "status" else write for write in world.writes
    )
    return world._replace(
        run=run,
        jobs=jobs,
        pods=pods,
        writes=writes,
        views=Views(older_run(views.run), older_jobs(views.jobs), older_pods(views.pods), views.objects),
    )
