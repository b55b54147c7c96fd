"""What a client's (or the report's) Job and its pods say: at work, done, or failed, and what fails with it.

The newest pod tells: those before it were disrupted, or ended and are retried. Why a client failed is in the
termination message, which is data. Logs are never parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import ValidationError

from specbench_api.outcome.ending import Exit, Termination
from specbench_api.spec.conditions import EngineReason
from specbench_operator.reconcile.launches.engine_side import Patience
from specbench_operator.reconcile.launches.judgement import ClientReason, Judgement, Stage, failed, joined
from specbench_operator.settings import Settings
from specbench_operator.state.jobs import Failure, Job, Scope
from specbench_operator.state.pods import Pod

SUSPENDED = "its Job is suspended, and not by us: does a queue take all Jobs here (Kueue's manageJobsWithoutQueueName)?"


def judge_client(client: Job | None, pods: tuple[Pod, ...], settings: Settings, patience: Patience) -> Judgement:
    """Judge a launch whose engine is ready by its client alone, be it there or still to be made."""
    over = judge_ended(client, pods, settings, patience.now) if client else None
    if over:
        return over
    why = delay(client, pods) if client else _unmade(patience)
    return Judgement(Stage.SERVING, EngineReason.SERVING) if why is None else _idle(why, pods, settings, patience)


def judge_ended(client: Job, pods: tuple[Pod, ...], settings: Settings, now: datetime) -> Judgement | None:
    """What the end of its Job says; None while that may still start a pod."""
    if client.complete:
        return Judgement(Stage.FINISHED, EngineReason.DONE)
    if client.failure is None:
        return None
    ending = last_words(pods)
    if ending is None:
        message = joined((client.failure.reason, client.failure.message))
        return failed(Scope.GROUP, ClientReason.FAILED, message)
    return _failed(ending, client.failure, settings, now)


def delay(client: Job, pods: Iterable[Pod]) -> str | None:
    """Why nothing runs for it; None where its newest pod runs, or ended and is retried."""
    newest = _newest(pods)
    if newest is None:
        return client.trouble or (SUSPENDED if client.suspended else "its pod is not created yet")
    if newest.phase != "Pending":
        return None
    waits = joined((newest.waiting.reason, newest.waiting.message)) if newest.waiting else ""
    return newest.unschedulable or waits or "its pod is starting"


def last_words(pods: Iterable[Pod]) -> Termination | None:
    """The termination message of the pod that ended last, whatever it holds; None where no pod has ended."""
    ended = _newest(pod for pod in pods if pod.terminated and not pod.disrupted)
    if ended is None:
        return None
    last = ended.terminated
    assert last is not None
    try:
        said = Termination.from_json(last.message)
        return said if said.reason else said.model_copy(update={"reason": ClientReason.FAILED})
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


def _idle(why: str, pods: Iterable[Pod], settings: Settings, patience: Patience) -> Judgement:
    """The engine holds its GPUs for nothing meanwhile, so that is not waited for without end."""
    newest = _newest(pods)
    since = patience.idle.since if patience.idle else newest.created_at if newest else patience.now
    limit_s = settings.client_start_deadline_s
    remaining_s = (since + timedelta(seconds=limit_s) - patience.now).total_seconds()
    if remaining_s > 0:
        return Judgement(Stage.SERVING, EngineReason.SERVING, why, look_again_s=remaining_s, idle_since=since)
    deadline = f"its engine was ready, and no client was at work for {limit_s:.0f} s"
    return failed(Scope.GROUP, ClientReason.NOT_STARTED, joined((deadline, why)))


def _unmade(patience: Patience) -> str:
    """Of a client whose Job is not there: what refused it, where that was said."""
    return patience.idle.why if patience.idle else "its Job is not created yet"


def _newest(pods: Iterable[Pod]) -> Pod | None:
    return max(pods, key=lambda pod: (pod.created_at, pod.ref.name), default=None)
