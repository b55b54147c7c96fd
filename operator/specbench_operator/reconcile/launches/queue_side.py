"""What a queue makes of a launch: it holds an engine's Job back, takes its pods away, and gives it others later.

A queue suspends a Job and resumes it, so one Job has several pods, one after the other. Each is a launch of its own:
what another pod has answered was answered with other caches, and perhaps elsewhere. The Job stays, though, and with it
its age in the queue, its backoff and the count of its evictions, all of which a new Job would evade.

Nothing here needs to have been watched. A client is marked with the pod that it was made for, and Kubernetes writes
anew since when a Job runs, so an operator that was away finds out all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.spec.conditions import QueueReason
from specbench_operator.reconcile.launches.judgement import Judgement, Stage, joined, preempted
from specbench_operator.state.jobs import Job
from specbench_operator.state.pods import Pod


def held_back(engine: Job) -> Judgement:
    """Judge a launch whose Job is suspended. No time is set for it: it holds nothing."""
    reason = QueueReason.PREEMPTED if engine.relaunch else QueueReason.WAITING
    if engine.waits and engine.waits.inadmissible:
        reason = QueueReason.INADMISSIBLE
    return Judgement(Stage.QUEUED, reason, _words(engine))


def taken_away(engine: Job, pods: Sequence[Pod], client: Job | None, *, known_pod: str) -> Judgement | None:
    """That the pod which this launch had is past while its Job goes on, or None.

    `known_pod`: the name of the pod that status has of this launch. A Job that has ended is judged by how it ended.

    That there is a pod proves nothing of a suspended Job: Jobs are listed before pods, and it may have been resumed in
    between. What it is known by was there before, so the pod that comes next is never taken for the one that is past.
    """
    if engine.ended:
        return None
    if engine.suspended:
        message = joined(("its Job was suspended after it had started", _words(engine)))
        return preempted(message, _past(pods, client, known_pod)) if client or known_pod else None
    if client is None or not client.engine_pod:
        return None
    return _replaced(engine, [pod for pod in pods if pod.alive and pod.deleted_at is None], client)


def _past(pods: Sequence[Pod], client: Job | None, known_pod: str) -> str:
    """UID of the pod that is past; empty where it is gone, and cannot be taken for another."""
    if client and client.engine_pod:
        return client.engine_pod
    return next((pod.ref.uid for pod in pods if pod.ref.name == known_pod), "")


def _replaced(engine: Job, alive: Sequence[Pod], client: Job) -> Judgement | None:
    """Two clocks write those times; they are asked only where no pod tells, and an engine takes longer to get ready."""
    others = [pod.ref.name for pod in alive if pod.ref.uid != client.engine_pod]
    if others and len(others) == len(alive):
        return preempted(f"its pod was replaced by {others[0]}", client.engine_pod)
    if not alive and engine.started_at and engine.started_at > client.created_at:
        return preempted("its Job was suspended and resumed: another pod is to come", client.engine_pod)
    return None


def _words(engine: Job) -> str:
    if engine.waits:
        return engine.waits.message
    if engine.queue:
        return f"its Job is suspended until queue {engine.queue} admits it"
    return "its Job is suspended, and no queue is named: whoever has suspended it has to resume it"
