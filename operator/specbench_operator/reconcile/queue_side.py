"""What a queue makes of a launch: it holds an engine's Job back, takes its pods away, and gives it others later.

A queue suspends a Job and resumes it, so one Job has several pods, one after the other. Each is a launch of its own:
what another pod has answered was answered with other caches, and perhaps elsewhere. The Job stays, though, and with it
its age in the queue, its backoff and the count of its evictions, all of which a new Job would evade.

Nothing here needs to have been watched. A client is marked with the pod that it was made for, and Kubernetes writes
anew since when a Job runs, so an operator that was away finds out all the same.
"""

from __future__ import annotations

from specbench_api.spec.conditions import QueueReason
from specbench_operator.reconcile.judgement import Judgement, Stage, joined, preempted
from specbench_operator.state import Job, Pod


def held_back(engine: Job) -> Judgement:
    """Judge a launch whose Job is suspended. No time is set for it: it holds nothing."""
    reason = QueueReason.PREEMPTED if engine.relaunch else QueueReason.WAITING
    if engine.waits and engine.waits.inadmissible:
        reason = QueueReason.INADMISSIBLE
    return Judgement(Stage.QUEUED, reason, _words(engine))


def taken_away(engine: Job, pod: Pod | None, client: Job | None, *, had_pod: bool) -> Judgement | None:
    """That the pod which this launch had is past while its Job goes on, or None.

    `pod`: its current one. `had_pod`: status knows of one. A Job that has ended is judged by how it ended.
    """
    if engine.ended:
        return None
    alive = pod if pod and pod.alive and pod.deleted_at is None else None
    if engine.suspended:
        ran = client is not None or had_pod or alive is not None
        message = joined(("its Job was suspended after it had started", _words(engine)))
        return preempted(message, _past(pod, client)) if ran else None
    return _replaced(engine, alive, client) if client and client.engine_pod else None


def _past(pod: Pod | None, client: Job | None) -> str:
    if client and client.engine_pod:
        return client.engine_pod
    return pod.ref.uid if pod else ""


def _replaced(engine: Job, alive: Pod | None, client: Job) -> Judgement | None:
    """Two clocks write those times; they are asked only where no pod tells, and an engine takes longer to get ready."""
    if alive and alive.ref.uid != client.engine_pod:
        return preempted(f"its pod was replaced by {alive.ref.name}", client.engine_pod)
    if alive is None and engine.started_at and engine.started_at > client.created_at:
        return preempted("its Job was suspended and resumed: another pod is to come", client.engine_pod)
    return None


def _words(engine: Job) -> str:
    if engine.waits:
        return engine.waits.message
    if engine.queue:
        return f"its Job is suspended until queue {engine.queue} admits it"
    return "its Job is suspended, and no queue is named: whoever has suspended it has to resume it"
