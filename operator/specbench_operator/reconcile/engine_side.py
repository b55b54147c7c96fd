"""What an engine's Job and its pod say about a launch: starting, serving, or failed, and whose fault it is.

An engine that fails by itself (out of memory, a crash, an image that is not there) would fail again, so the group is
given up with that reason. One that was taken away (deleted, evicted, its node lost) is launched again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.run import RunSpec
from specbench_operator.reconcile.judgement import Judgement, Stage, failed, joined, lost
from specbench_operator.settings import Settings
from specbench_operator.state import Job, Pod, Scope, Terminated

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


def judge_engine(engine: Job, pods: tuple[Pod, ...], patience: Patience, *, served: bool) -> Judgement:
    """Judge a launch by its engine alone. `served`: it was ready before, so the client was started."""
    by_job = _told_by_job(engine, patience)
    if by_job:
        return by_job
    pod = current(pods)
    if pod is None:
        return lost("its pod is gone") if engine.ended or served else _starting(engine, None, patience)
    if pod.terminated or not pod.alive:
        return _over(pod, patience, served=served)
    if pod.deleted_at:
        return lost(joined(("its pod is being deleted", pod.disrupted or "")))
    if pod.ready or served:
        return Judgement(Stage.SERVING, EngineReason.SERVING)
    return _starting(engine, pod, patience)


def _told_by_job(engine: Job, patience: Patience) -> Judgement | None:
    """What is already decided, whatever the pod looks like by now."""
    if engine.verdict:
        return failed(engine.verdict.scope, engine.verdict.reason, engine.verdict.message)
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


def _over(pod: Pod, patience: Patience, *, served: bool) -> Judgement:
    ended = pod.terminated
    if pod.probe and pod.probe.reason in NOT_STARTED:
        message = "the probe needs /bin/sh in the engine's image: use one that has it, or set probeEngines to false"
        return failed(Scope.GROUP, EngineReason.CONFIG_ERROR, joined((message, pod.probe.message)))
    if pod.disrupted or pod.deleted_at or ended is None or ended.reason == VANISHED:
        why = pod.disrupted or ("its pod was deleted" if pod.deleted_at else "")
        return lost(joined((why, pod.reason, pod.message)) or "its pod ended without a word")
    if ended.reason == EngineReason.OOM_KILLED:
        message = f"out of memory (exit code {ended.exit_code}): give spec.placement.engineResources.memory more"
        return failed(Scope.GROUP, EngineReason.OOM_KILLED, joined((message, ended.message)))
    if ended.reason in NOT_STARTED:
        return failed(Scope.GROUP, EngineReason.CONFIG_ERROR, joined((ended.reason, ended.message)))
    if ended.exit_code == KILLED and not served and _ran_s(ended) >= patience.deadline_s:
        return failed(Scope.GROUP, EngineReason.NEVER_READY, _never_ready(patience))
    return failed(Scope.GROUP, EngineReason.CRASHED, joined((_exit(ended.exit_code), ended.message)))


def _starting(engine: Job, pod: Pod | None, patience: Patience) -> Judgement:
    waiting = pod.waiting if pod else None
    if pod and waiting and waiting.reason in NEVER_PULLED:
        return failed(Scope.GROUP, EngineReason.IMAGE_PULL_FAILED, joined((waiting.reason, waiting.message)))
    if pod and waiting and waiting.reason in PULLING | CONFIGURING:
        reason = EngineReason.IMAGE_PULL_FAILED if waiting.reason in PULLING else EngineReason.CONFIG_ERROR
        return _troubled(pod, reason, joined((waiting.reason, waiting.message)), patience)
    if engine.suspended:
        return Judgement(Stage.STARTING, EngineReason.STARTING, "its Job is suspended: it waits for its queue")
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
    limit = (engine.started_at or engine.created_at) + timedelta(seconds=patience.deadline_s)
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
