"""Judges a launch by its engine's Job and pods: queued, starting, serving, or failed and with which scope.

An engine that fails (out of memory, a crash, a missing image) would fail again, so its group fails with that
reason. An engine that was lost (deleted, or evicted for its own usage) is launched again, and so is one that was
preempted by its queue, the scheduler or its node. Preemptions have a separate, larger limit, because they are not
the engine's fault.

A queue may suspend and resume an engine's Job, so one Job can have several pods in turn. Each pod is a separate launch,
because a new pod starts with cold caches and perhaps on another node. The Job is kept, because a new one would lose its
position in the queue, its back-off and its eviction count.

Preemptions are detected from the current state alone, so one that happened while the operator was down is found too:
the client is annotated with the pod that it was made for, and Kubernetes resets a Job's start time when it is resumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from specbench_api.spec.conditions import EngineReason, QueueReason
from specbench_operator.run.launches.launch_state import (
    NEVER_STARTED_REASONS,
    LaunchContext,
    LaunchStage,
    LaunchState,
    failed,
    lost,
    preempted,
)
from specbench_operator.state.conditions import join_sentences
from specbench_operator.state.objects import ContainerTerminated, FailureScope, Job, Pod


def queued_state(engine: Job) -> LaunchState:
    """The state of a launch whose Job is suspended. It has no deadline, because it holds no GPUs."""
    preempted_before = engine.relaunch or engine.prior_launches.preemptions
    reason = QueueReason.PREEMPTED if preempted_before else QueueReason.WAITING
    if engine.waits and engine.waits.inadmissible:
        reason = QueueReason.INADMISSIBLE
    return LaunchState(LaunchStage.QUEUED, reason, _wait_message(engine))


def preempted_by_queue(engine: Job, pods: Sequence[Pod], client: Job | None, *, known_pod: str) -> LaunchState | None:
    """The state of a launch whose queue removed its pod while its Job continues; None if that did not happen.

    `known_pod`: name of the launch's pod, from status. A Job that has ended is judged by how it ended instead.

    An existing pod of a suspended Job proves nothing, because Jobs are listed before pods and the Job may have been
    resumed in between. The launch's own pod is identified by the client's annotation or by status, which were written
    earlier, so that a new pod is never mistaken for it.
    """
    if engine.ended:
        return None
    if engine.suspended:
        message = join_sentences(("its Job was suspended after it had started", _wait_message(engine)))
        return preempted(message, _previous_pod_uid(pods, client, known_pod)) if client or known_pod else None
    if client is None or not client.engine_pod:
        return None
    return _replaced_pod(engine, [pod for pod in pods if pod.alive and pod.deleted_at is None], client)


def _previous_pod_uid(pods: Sequence[Pod], client: Job | None, known_pod: str) -> str:
    """UID of the launch's own pod; empty if that pod no longer exists."""
    if client and client.engine_pod:
        return client.engine_pod
    return next((pod.ref.uid for pod in pods if pod.ref.name == known_pod), "")


def _replaced_pod(engine: Job, alive: Sequence[Pod], client: Job) -> LaunchState | None:
    """Preempted if the Job has only other pods, or has no pod and was started after its client was created.

    The two times are written by different clocks. They are compared only if there is no pod, and an engine takes longer
    to become ready than clocks differ.
    """
    others = [pod.ref.name for pod in alive if pod.ref.uid != client.engine_pod]
    if others and len(others) == len(alive):
        return preempted(f"its pod was replaced by {others[0]}", client.engine_pod)
    if not alive and engine.started_at and engine.started_at > client.created_at:
        return preempted("its Job was suspended and resumed, and will get another pod", client.engine_pod)
    return None


def _wait_message(engine: Job) -> str:
    if engine.waits:
        return engine.waits.message
    if engine.queue:
        return f"its Job is suspended until queue {engine.queue} admits it"
    return "its Job is suspended although it names no queue: whoever suspended it has to resume it (spec.suspend)"


IMAGE_PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
INVALID_IMAGE_REASONS = frozenset({"InvalidImageName"})
_PULL_NEVER_SUCCEEDS = re.compile(
    "not found|NotFound|no such host|denied|[Uu]nauthorized|Forbidden|manifest unknown|no match for|pull policy"
)
"""How container runtimes report that a registry has no such image, or not for these credentials."""
CONFIG_ERROR_REASONS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    }
)
STATUS_UNKNOWN = "ContainerStatusUnknown"
"""Reason of a terminated container whose end was not observed by the kubelet."""
POD_FAILURE_POLICY = "PodFailurePolicy"
"""Reason of a Job that failed by the rule for disrupted pods. It remains after the pod is deleted."""
EVICTED = "Evicted"
"""Reason of a pod that its node evicted under resource pressure, perhaps because of the engine's own usage."""
EXIT_SIGKILL = 137


def judge_engine(engine: Job, pods: tuple[Pod, ...], context: LaunchContext, *, client: Job | None) -> LaunchState:
    """Judge a launch by its engine alone. If it has a client, the engine was ready before."""
    pod, served = current_pod(pods), client is not None
    decided = decided_by_job(engine, context)
    # Pods of an engine on several nodes belong to a LeaderWorkerSet and are replaced one by one.
    if decided is None and context.spec.placement.nodes == 1:
        decided = preempted_by_queue(engine, pods, client, known_pod=context.known.engine_pod if context.known else "")
    if decided or (engine.suspended and not engine.ended):
        return decided or queued_state(engine)
    if pod is None:
        return _pod_gone(engine) if engine.ended or engine.unlisted_pods or served else _starting(engine, None, context)
    if pod.terminated or not pod.alive:
        return _terminated_pod(pod, context, served=served)
    if pod.deleted_at:
        return _pod_being_deleted(engine, pod, pod.deleted_at, context, served=served)
    if pod.ready or served:
        return LaunchState(LaunchStage.SERVING, EngineReason.SERVING)
    return _starting(engine, pod, context)


def decided_by_job(job: Job, context: LaunchContext) -> LaunchState | None:
    """The state that the Job alone determines, whatever the state of its pod."""
    if job.verdict:
        state = failed(job.verdict.scope, job.verdict.reason, job.verdict.message)
        return replace(state, recorded=True)
    if job.deleting:
        return lost("its Job is being deleted")
    if job.failure and job.failure.reason == EngineReason.DEADLINE_EXCEEDED:
        message = (
            f"it ran longer than spec.activeDeadlineSeconds ({context.spec.active_deadline_seconds} s):"
            " raise it, or measure less per launch"
        )
        return failed(FailureScope.GROUP, EngineReason.DEADLINE_EXCEEDED, message)
    return None


def current_pod(pods: tuple[Pod, ...]) -> Pod | None:
    """The pod that is alive, else the newest one; for an engine on several nodes, the leader's pod."""
    leading = [pod for pod in pods if not pod.worker]
    return max(leading, key=lambda pod: (pod.alive and not pod.deleted_at, pod.created_at, pod.ref.name), default=None)


def _pod_gone(engine: Job) -> LaunchState:
    if engine.failure and engine.failure.reason == POD_FAILURE_POLICY:
        return preempted(join_sentences(("its pod is gone", engine.failure.message)))
    return lost("its pod has lost the labels that specbench gave it" if engine.unlisted_pods else "its pod is gone")


def _terminated_pod(pod: Pod, context: LaunchContext, *, served: bool) -> LaunchState:
    ended = pod.terminated
    if pod.probe and pod.probe.reason in NEVER_STARTED_REASONS:
        message = (
            "the probe needs /bin/sh in the engine's image: use an image that has it,"
            " or set probeEngines=false in specbench's chart"
        )
        return failed(FailureScope.GROUP, EngineReason.CONFIG_ERROR, join_sentences((message, pod.probe.message)))
    if pod.disrupted or pod.deleted_at or ended is None or ended.reason == STATUS_UNKNOWN:
        return _disrupted_pod(pod)
    if ended.reason == EngineReason.OOM_KILLED:
        memory = "spec.placement.template.spec.containers[0].resources.limits.memory"
        message = f"out of memory (exit code {ended.exit_code}): raise {memory}"
        return failed(FailureScope.GROUP, EngineReason.OOM_KILLED, join_sentences((message, ended.message)))
    if ended.reason in NEVER_STARTED_REASONS:
        return failed(FailureScope.GROUP, EngineReason.CONFIG_ERROR, join_sentences((ended.reason, ended.message)))
    if ended.exit_code == EXIT_SIGKILL and not served and _runtime_s(ended) >= context.spec.startup_deadline_seconds:
        return failed(FailureScope.GROUP, EngineReason.NEVER_READY, _never_ready_message(context))
    return failed(
        FailureScope.GROUP, EngineReason.CRASHED, join_sentences((_exit_message(ended.exit_code), ended.message))
    )


def _pod_being_deleted(
    engine: Job, pod: Pod, gone_at: datetime, context: LaunchContext, *, served: bool
) -> LaunchState:
    """The state of a launch whose pod is being deleted.

    A queue suspends a Job before its pod is deleted. But Jobs are listed before pods, so the suspension may not be
    observed yet, and the next reconciliation decides. On pods of a LeaderWorkerSet, Kueue sets a condition first.
    """
    message = join_sentences(("its pod is being deleted", _node_of(pod), pod.disrupted or ""))
    remaining_s = (gone_at - context.now).total_seconds()
    if engine.queue and pod.worker is None and not engine.ended and not pod.disrupted and remaining_s > 0:
        stage = LaunchStage.SERVING if served else LaunchStage.STARTING
        return LaunchState(stage, EngineReason.LOST, message, degraded=True, requeue_after_s=remaining_s)
    return preempted(message) if pod.disrupted else lost(message)


def _disrupted_pod(pod: Pod) -> LaunchState:
    """Preempted if the pod was disrupted; lost if its node evicted it, because the engine's usage may be the cause."""
    cause = pod.disrupted or ("its pod was deleted" if pod.deleted_at else "")
    message = join_sentences((cause, pod.reason, pod.message)) or "its pod ended, and Kubernetes reports no reason"
    message = join_sentences((_node_of(pod), message))
    return preempted(message) if pod.disrupted and pod.reason != EVICTED else lost(message)


def _node_of(pod: Pod) -> str:
    return f"node {pod.node}" if pod.node else ""


def _starting(engine: Job, pod: Pod | None, context: LaunchContext) -> LaunchState:
    waiting = pod.waiting if pod else None
    if pod and waiting and waiting.reason in INVALID_IMAGE_REASONS:
        return failed(
            FailureScope.GROUP, EngineReason.IMAGE_PULL_FAILED, join_sentences((waiting.reason, waiting.message))
        )
    if pod and waiting and waiting.reason in IMAGE_PULL_REASONS | CONFIG_ERROR_REASONS:
        reason = EngineReason.IMAGE_PULL_FAILED if waiting.reason in IMAGE_PULL_REASONS else EngineReason.CONFIG_ERROR
        return _within_grace(engine, pod, reason, join_sentences((waiting.reason, waiting.message)), context)
    reason, message = EngineReason.STARTING, "the pod is starting" if pod else "its pod is not created yet"
    # A quota, Pod Security or a webhook may refuse the pod.
    if blocked := pod.unschedulable if pod else engine.warning:
        reason, message = EngineReason.UNSCHEDULABLE, blocked
    remaining_s = _remaining_s(engine, context)
    if remaining_s > 0:
        return LaunchState(LaunchStage.STARTING, reason, message, degraded=bool(blocked), requeue_after_s=remaining_s)
    if pod is None or (pod.scheduled_at is None and not pod.node):
        # A busy or missing scheduler sets no condition. The engine never ran, so it has no log and is not at fault.
        return failed(FailureScope.GROUP, EngineReason.UNSCHEDULABLE, blocked or _unscheduled(context))
    return failed(FailureScope.GROUP, EngineReason.NEVER_READY, _never_ready_message(context))


def _within_grace(engine: Job, pod: Pod, reason: EngineReason, message: str, context: LaunchContext) -> LaunchState:
    """Starting while the image pull or the configuration has failed for less than the grace period, then failed.

    A pull that may still succeed, as from a registry that does not answer, has until the startup deadline.
    """
    times = [since for since in (context.degraded_since, pod.scheduled_at) if since]
    since = max(times) if context.degraded_since else context.now
    remaining_s = context.settings.image_pull_grace_s - (context.now - since).total_seconds()
    if reason is EngineReason.IMAGE_PULL_FAILED and not _PULL_NEVER_SUCCEEDS.search(message):
        message += f"; it is tried for spec.startupDeadlineSeconds ({context.spec.startup_deadline_seconds} s)"
        remaining_s = _remaining_s(engine, context)
    if remaining_s > 0:
        return LaunchState(LaunchStage.STARTING, reason, message, degraded=True, requeue_after_s=remaining_s)
    return failed(FailureScope.GROUP, reason, message)


def _remaining_s(engine: Job, context: LaunchContext) -> float:
    """Time left until the startup deadline, in seconds.

    It counts from when the Job was last started, because a queue may have suspended the Job for days.
    """
    unstarted = context.now if engine.queue else engine.created_at
    limit = (engine.started_at or unstarted) + timedelta(seconds=context.spec.startup_deadline_seconds)
    return (limit - context.now).total_seconds()


def _exit_message(code: int) -> str:
    by_kernel = (
        " (SIGKILL, but not for its memory limit: sent from within the container, or the node ran out of memory)"
        if code == EXIT_SIGKILL
        else ""
    )
    return f"the engine ended with exit code {code}{by_kernel}"


def _unscheduled(context: LaunchContext) -> str:
    return (
        "the engine's pod was not scheduled within spec.startupDeadlineSeconds"
        f" ({context.spec.startup_deadline_seconds} s): see its events (kubectl describe pod), or raise the deadline"
    )


def _never_ready_message(context: LaunchContext) -> str:
    return (
        f"the engine was not ready within spec.startupDeadlineSeconds ({context.spec.startup_deadline_seconds} s):"
        " see its log (kubectl logs), or raise the deadline"
    )


def _runtime_s(ended: ContainerTerminated) -> float:
    if ended.started_at is None or ended.finished_at is None:
        return 0
    return (ended.finished_at - ended.started_at).total_seconds()


# Engines on several nodes. A LeaderWorkerSet replaces pods that are deleted and restarts containers that end. A new pod
# has cold caches and perhaps another node, so a pod that is newer than the client ends the launch.


def admitted_leader(engine: Job, pods: tuple[Pod, ...]) -> Pod | None:
    """The leader's pod of a queued engine whose Job waits although its queue has admitted the pods; None otherwise.

    It does not count while it is being deleted: a queue may evict its pods before the Job is resumed.
    """
    leader = current_pod(pods) if engine.suspended and not engine.ended and engine.queue else None
    admitted = leader and leader.worker is not None and not leader.gated and leader.alive and not leader.deleted_at
    return leader if admitted else None


def preempted_node(engine: Job, pods: tuple[Pod, ...]) -> LaunchState | None:
    """The state of a launch that lost one of its nodes by preemption; None if that did not happen.

    This is checked first, because a replaced pod and an error of the leader are consequences of it. A Job that waits
    for its queue has not started. Of one that was resumed, another leader shows that its queue evicted the pods, also
    if that happened while the operator was down.
    """
    if engine.suspended or engine.ended or engine.verdict or engine.deleting:
        return None
    grouped = sorted((pod for pod in pods if pod.worker is not None), key=lambda pod: (pod.created_at, pod.ref.name))
    for pod in grouped:
        gone = pod.deleted_at is not None or not pod.alive or pod.terminated is not None
        if pod.disrupted and gone and pod.reason != EVICTED:
            return preempted(join_sentences((f"node {pod.worker} of the group", f"pod {pod.ref.name}", pod.disrupted)))
    if engine.engine_pod and engine.engine_pod not in {pod.ref.uid for pod in grouped}:
        return preempted("the leader's pod that its queue had admitted is gone")
    return None


def judge_further_nodes(
    by_leader: LaunchState, engine: Job, pods: tuple[Pod, ...], context: LaunchContext, client: Job | None
) -> LaunchState:
    """The leader's state, unless another node's state is worse. An engine on one node has no other nodes."""
    grouped = [pod for pod in pods if pod.worker is not None]
    if not grouped:
        return by_leader
    if client and (younger := [pod for pod in grouped if pod.created_at > client.created_at]):
        return lost(f"the engine lost a node: pod {younger[0].ref.name} was created again")
    workers = {pod.worker for pod in grouped if pod.worker}
    if client and len(workers) < context.spec.placement.nodes - 1:
        return lost(f"the engine lost a node: {len(workers)} of {context.spec.placement.nodes - 1} further nodes exist")
    for worker in sorted(workers):
        alone = tuple(replace(pod, worker=0) for pod in grouped if pod.worker == worker)
        found = judge_engine(engine, alone, context, client=client)
        if found.stage is LaunchStage.FAILED or (found.degraded and not by_leader.degraded):
            return replace(found, message=join_sentences((f"node {worker} of the group", found.message)))
    return by_leader
