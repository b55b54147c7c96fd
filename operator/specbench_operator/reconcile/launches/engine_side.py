"""What an engine's Job and its pod say about a launch: starting, serving, or failed, and whose fault it is.

An engine that fails by itself (out of memory, a crash, an image that is not there) would fail again, so the group is
given up with that reason. One that was lost (deleted, evicted for what it used) is launched again, and one that was
taken away by whoever shares out the cluster as well: of that there may be more, since nothing is wrong with the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.run import RunSpec
from specbench_operator.reconcile.launches.judgement import Judgement, Stage, failed, joined, lost, preempted
from specbench_operator.reconcile.launches.queue_side import held_back, taken_away
from specbench_operator.settings import Settings
from specbench_operator.state.jobs import Job, Scope
from specbench_operator.state.pods import Pod, Terminated

PULLING = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
NEVER_PULLED = frozenset({"InvalidImageName"})
CONFIGURING = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    }
)
NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a terminated container whose program never ran."""
VANISHED = "ContainerStatusUnknown"
"""Reason of a terminated container whose end nobody saw."""
DISRUPTED_JOB = "PodFailurePolicy"
"""Reason of a failed Job: our rule for disrupted pods took effect. It is there also when the pod is gone."""
EVICTED = "Evicted"
"""Reason of a pod that a node in need put out: perhaps for what the engine itself used."""
KILLED = 137


@dataclass(frozen=True)
class Idle:
    """A ready engine without a client at work: since when, and what was said of it."""

    since: datetime
    why: str


@dataclass(frozen=True)
class Patience:
    """How long is waited, and since when. `troubled_since` and `idle`: from status; without it waits begin anew."""

    deadline_s: int
    lifetime_s: int
    grace_s: float
    troubled_since: datetime | None
    now: datetime
    idle: Idle | None = None
    known_pod: str = ""
    """From status: the name of the pod that this launch had."""
    nodes: int = 1

    @classmethod
    def of(cls, spec: RunSpec, settings: Settings, troubled_since: datetime | None, now: datetime) -> Patience:
        """From the run's deadlines and the operator's grace."""
        return cls(
            spec.startup_deadline_seconds,
            spec.active_deadline_seconds,
            settings.image_pull_grace_s,
            troubled_since,
            now,
            nodes=spec.placement.nodes,
        )


def judge_engine(engine: Job, pods: tuple[Pod, ...], patience: Patience, *, client: Job | None) -> Judgement:
    """Judge a launch by its engine alone. Where it has a client, it was ready before."""
    pod, served = current(pods), client is not None
    decided = _told_by_job(engine, patience)
    if decided is None and patience.nodes == 1:  # pods of several nodes are not the Job's own, and come and go singly
        decided = taken_away(engine, pods, client, known_pod=patience.known_pod)
    if decided or (engine.suspended and not engine.ended):
        return decided or held_back(engine)
    if pod is None:
        return _vanished(engine) if engine.ended or served else _starting(engine, None, patience)
    if pod.terminated or not pod.alive:
        return _over(pod, patience, served=served)
    if pod.deleted_at:
        return _leaving(engine, pod, pod.deleted_at, patience, served=served)
    if pod.ready or served:
        return Judgement(Stage.SERVING, EngineReason.SERVING)
    return _starting(engine, pod, patience)


def _told_by_job(engine: Job, patience: Patience) -> Judgement | None:
    """What is already decided, whatever the pod looks like by now."""
    if engine.verdict:
        told = failed(engine.verdict.scope, engine.verdict.reason, engine.verdict.message)
        return replace(told, recorded=True)
    if engine.deleting:
        return lost("its Job is being deleted")
    if engine.failure and engine.failure.reason == EngineReason.DEADLINE_EXCEEDED:
        message = f"it lived longer than activeDeadlineSeconds ({patience.lifetime_s} s)"
        return failed(Scope.GROUP, EngineReason.DEADLINE_EXCEEDED, message)
    return None


def current(pods: tuple[Pod, ...]) -> Pod | None:
    """The living pod, else the youngest; of an engine on several nodes, the one that leads."""
    leading = [pod for pod in pods if not pod.worker]
    return max(leading, key=lambda pod: (pod.alive and not pod.deleted_at, pod.created_at, pod.ref.name), default=None)


def _vanished(engine: Job) -> Judgement:
    if engine.failure and engine.failure.reason == DISRUPTED_JOB:
        return preempted(joined(("its pod is gone", engine.failure.message)))
    return lost("its pod is gone")


def _over(pod: Pod, patience: Patience, *, served: bool) -> Judgement:
    ended = pod.terminated
    if pod.probe and pod.probe.reason in NOT_STARTED:
        message = "the probe needs /bin/sh in the engine's image: use one that has it, or set probeEngines to false"
        return failed(Scope.GROUP, EngineReason.CONFIG_ERROR, joined((message, pod.probe.message)))
    if pod.disrupted or pod.deleted_at or ended is None or ended.reason == VANISHED:
        return _taken(pod)
    if ended.reason == EngineReason.OOM_KILLED:
        message = f"out of memory (exit code {ended.exit_code}): give spec.placement.engineResources.memory more"
        return failed(Scope.GROUP, EngineReason.OOM_KILLED, joined((message, ended.message)))
    if ended.reason in NOT_STARTED:
        return failed(Scope.GROUP, EngineReason.CONFIG_ERROR, joined((ended.reason, ended.message)))
    if ended.exit_code == KILLED and not served and _ran_s(ended) >= patience.deadline_s:
        return failed(Scope.GROUP, EngineReason.NEVER_READY, _never_ready(patience))
    return failed(Scope.GROUP, EngineReason.CRASHED, joined((_exit(ended.exit_code), ended.message)))


def _leaving(engine: Job, pod: Pod, gone_at: datetime, patience: Patience, *, served: bool) -> Judgement:
    """A queue suspends a Job before its pod goes, but Jobs are listed before pods: so the next look is heard too."""
    message = joined(("its pod is being deleted", pod.disrupted or ""))
    remaining_s = (gone_at - patience.now).total_seconds()
    if engine.queue and not engine.ended and not pod.disrupted and remaining_s > 0:
        stage = Stage.SERVING if served else Stage.STARTING
        return Judgement(stage, EngineReason.LOST, message, hurts=True, look_again_s=remaining_s)
    return preempted(message) if pod.disrupted else lost(message)


def _taken(pod: Pod) -> Judgement:
    """A disrupted pod was in somebody's way. One that its node put out may have been the one in need."""
    why = pod.disrupted or ("its pod was deleted" if pod.deleted_at else "")
    message = joined((why, pod.reason, pod.message)) or "its pod ended without a word"
    return preempted(message) if pod.disrupted and pod.reason != EVICTED else lost(message)


def _starting(engine: Job, pod: Pod | None, patience: Patience) -> Judgement:
    waiting = pod.waiting if pod else None
    if pod and waiting and waiting.reason in NEVER_PULLED:
        return failed(Scope.GROUP, EngineReason.IMAGE_PULL_FAILED, joined((waiting.reason, waiting.message)))
    if pod and waiting and waiting.reason in PULLING | CONFIGURING:
        reason = EngineReason.IMAGE_PULL_FAILED if waiting.reason in PULLING else EngineReason.CONFIG_ERROR
        return _troubled(pod, reason, joined((waiting.reason, waiting.message)), patience)
    reason, message = EngineReason.STARTING, "the pod is starting"
    if pod and pod.unschedulable:
        reason, message = EngineReason.UNSCHEDULABLE, pod.unschedulable
    elif pod is None:
        message = engine.trouble or "its pod is not created yet"
    remaining_s = _remaining_s(engine, patience)
    if remaining_s > 0:
        hurts = reason is EngineReason.UNSCHEDULABLE or bool(engine.trouble)
        return Judgement(Stage.STARTING, reason, message, hurts=hurts, look_again_s=remaining_s)
    if reason is EngineReason.UNSCHEDULABLE:
        return failed(Scope.GROUP, reason, message)
    return failed(Scope.GROUP, EngineReason.NEVER_READY, joined((_never_ready(patience), engine.trouble)))


def _troubled(pod: Pod, reason: EngineReason, message: str, patience: Patience) -> Judgement:
    """A pull or a configuration may heal within the grace; then the group is given up."""
    seen = [since for since in (patience.troubled_since, pod.scheduled_at) if since]
    since = max(seen) if patience.troubled_since else patience.now
    remaining_s = patience.grace_s - (patience.now - since).total_seconds()
    if remaining_s > 0:
        return Judgement(Stage.STARTING, reason, message, hurts=True, look_again_s=remaining_s)
    return failed(Scope.GROUP, reason, message)


def _remaining_s(engine: Job, patience: Patience) -> float:
    """From its admission on: a queue may have held it back for days, and each time it resumes it all begins anew."""
    unstarted = patience.now if engine.queue else engine.created_at
    limit = (engine.started_at or unstarted) + timedelta(seconds=patience.deadline_s)
    return (limit - patience.now).total_seconds()


def _exit(code: int) -> str:
    by_kernel = " (SIGKILL, not by its own memory limit: from within, or the node ran out)" if code == KILLED else ""
    return f"it ended with exit code {code}{by_kernel}"


def _never_ready(patience: Patience) -> str:
    return f"it was not ready within startupDeadlineSeconds ({patience.deadline_s} s)"


def _ran_s(ended: Terminated) -> float:
    if ended.started_at is None or ended.finished_at is None:
        return 0
    return (ended.finished_at - ended.started_at).total_seconds()
