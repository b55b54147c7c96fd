"""What a client's (or the report's) Job and its pods say: at work, done, or failed, and what fails with it.

Why it failed is in the termination message, which is data. Logs are never parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import ValidationError

from specbench_api.outcome.ending import Exit, Termination
from specbench_api.spec.conditions import EngineReason
from specbench_operator.reconcile.engine_side import CONFIGURING, NEVER_PULLED, PULLING
from specbench_operator.reconcile.judgement import ClientReason, Judgement, Stage, failed, joined
from specbench_operator.settings import Settings
from specbench_operator.state import Failure, Job, Pod, Scope

_WAITS = PULLING | CONFIGURING | NEVER_PULLED


def judge_client(client: Job, pods: tuple[Pod, ...], settings: Settings, now: datetime) -> Judgement:
    """Judge a launch by its client alone."""
    if client.complete:
        return Judgement(Stage.FINISHED, EngineReason.DONE)
    if client.failure is None:
        return _not_failed(client, pods, settings, now)
    ending = last_words(pods)
    if ending is None:
        message = joined((client.failure.reason, client.failure.message))
        return failed(Scope.GROUP, ClientReason.FAILED, message)
    return _failed(ending, client.failure, settings, now)


def last_words(pods: Iterable[Pod]) -> Termination | None:
    """The termination message of the pod that ended last, whatever it holds; None where no pod has ended."""
    endings = [pod for pod in pods if pod.terminated and not pod.disrupted]
    if not endings:
        return None
    last = max(endings, key=lambda pod: (pod.created_at, pod.ref.name)).terminated
    assert last is not None
    try:
        return Termination.from_json(last.message)
    except ValidationError:
        message = joined((f"it ended with exit code {last.exit_code}", last.reason, last.message))
        return Termination(code=last.exit_code, reason=ClientReason.FAILED, message=message)


def not_durable(client: Job | None, pods: Iterable[Pod]) -> Termination | None:
    """What its last pod said if it could not store results, be it that the Job is retried or has given up."""
    words = None if client is None or client.complete else last_words(pods)
    return words if words and words.code == Exit.NOT_DURABLE else None


def _failed(ending: Termination, failure: Failure, settings: Settings, now: datetime) -> Judgement:
    if ending.code == Exit.BAD_INPUT:
        return failed(Scope.RUN, ending.reason, ending.message)
    if ending.code == Exit.ENGINE_FAILED and ending.reason == EngineReason.LOST:
        settled_s = (failure.at + timedelta(seconds=settings.engine_lost_settle_s) - now).total_seconds()
        if settled_s > 0:  # the engine's own end is seen a moment later, and it says more
            return Judgement(Stage.SERVING, EngineReason.LOST, ending.message, hurts=True, look_again_s=settled_s)
        return failed(Scope.LAUNCH, EngineReason.LOST, ending.message)
    return failed(Scope.GROUP, ending.reason, ending.message)


def _not_failed(client: Job, pods: tuple[Pod, ...], settings: Settings, now: datetime) -> Judgement:
    """At work, or unable to begin: an engine holds its GPUs meanwhile, so that is not waited for without end."""
    idle = [pod for pod in pods if pod.alive and not pod.ready and (pod.unschedulable or _waits(pod))]
    at_work = any(pod.alive for pod in pods) and not idle
    if at_work or any(pod.terminated for pod in pods):
        return Judgement(Stage.SERVING, EngineReason.SERVING)
    since = (client.started_at or client.created_at) + timedelta(seconds=settings.client_start_deadline_s)
    why = joined(_why(pod) for pod in idle) or client.trouble
    remaining_s = (since - now).total_seconds()
    if remaining_s > 0:
        return Judgement(Stage.SERVING, EngineReason.SERVING, why, look_again_s=remaining_s)
    deadline = f"its client did not start within {settings.client_start_deadline_s:.0f} s"
    return failed(Scope.GROUP, ClientReason.NOT_STARTED, joined((deadline, why)))


def _waits(pod: Pod) -> bool:
    return pod.waiting is not None and pod.waiting.reason in _WAITS


def _why(pod: Pod) -> str:
    return pod.unschedulable or (joined((pod.waiting.reason, pod.waiting.message)) if pod.waiting else "")
