"""Judges a launch by its client's Job and pods: running, finished, or failed and with which scope.

The report's and the gate's Jobs are judged by the same rules. Only the newest pod of a Job counts: earlier ones were
disrupted, or failed and are retried. Why a client failed is in its pod's termination message, which is JSON. Logs are
never parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from specbench_api.fence.model import TerminationMessages
from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination
from specbench_api.redaction import redact
from specbench_api.spec.conditions import EngineReason
from specbench_operator.run.launches.launch_state import (
    ClientReason,
    LaunchContext,
    LaunchStage,
    LaunchState,
    failed,
    last_words,
)
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.conditions import join_sentences
from specbench_operator.state.objects import ContainerTerminated, FailureScope, Job, JobFailure, Pod

JOB_SUSPENDED_BY_OTHERS = (
    "its Job is suspended, and not by specbench: check whether a queue manages all Jobs of this namespace"
    " (Kueue's manageJobsWithoutQueueName)"
)


def judge_client(client: Job | None, pods: tuple[Pod, ...], context: LaunchContext) -> LaunchState:
    """Judge a launch whose engine is ready by its client, which may not exist yet."""
    ended = judge_ended_client(client, pods, context.settings, context.now) if client else None
    if ended:
        return ended
    if leaving := _on_dead_node(pods, context.settings, context.now):
        return leaving
    # Status may contain the error that prevented the creation of the Job.
    missing = context.known.message if context.known and context.idle_since else "its Job is not created yet"
    delay = start_delay(client, pods) if client else missing
    return (
        LaunchState(LaunchStage.SERVING, EngineReason.SERVING) if delay is None else _idle_engine(delay, pods, context)
    )


def _on_dead_node(pods: Iterable[Pod], settings: OperatorSettings, now: datetime) -> LaunchState | None:
    """The state of a launch whose client's pod is being deleted; None if none is.

    A pod that exists long after its deletion time is on a node that no longer answers. Its Job creates no other one
    before it is gone, which may be never, so the launch ends, and another one measures the missing points.
    """
    pod = _newest(pods)
    if pod is None or not pod.alive or pod.deleted_at is None:
        return None
    remaining_s = settings.gone_after_s - pod.overdue_s(now)
    if remaining_s > 0:
        return LaunchState(LaunchStage.SERVING, EngineReason.SERVING, requeue_after_s=remaining_s)
    message = f"the client's pod {pod.ref.name} was deleted, but still exists: its node {pod.node} does not answer"
    return failed(FailureScope.LAUNCH, ClientReason.LOST, message)


_MORE_MEMORY = "raise spec.placement.client.resources.limits.memory"


def judge_ended_client(
    client: Job, pods: tuple[Pod, ...], settings: OperatorSettings, now: datetime
) -> LaunchState | None:
    """The state of a launch whose client Job has ended; None while the Job may still create a pod."""
    if client.complete:
        return LaunchState(LaunchStage.FINISHED, EngineReason.DONE)
    if client.failure is None:
        return None
    termination = termination_of(pods, settings)
    if termination is None:
        message = join_sentences((client.failure.reason, client.failure.message))
        return failed(FailureScope.GROUP, ClientReason.FAILED, message)
    return _failed_client(termination, client.failure, settings, now)


def start_delay(client: Job, pods: Iterable[Pod]) -> str | None:
    """Why no pod of the Job runs yet; None if its newest pod runs, or ended and is retried."""
    newest = _newest(pods)
    if newest is None:
        return client.warning or (JOB_SUSPENDED_BY_OTHERS if client.suspended else "its pod is not created yet")
    if newest.phase != "Pending":
        return None
    waits = join_sentences((newest.waiting.reason, newest.waiting.message)) if newest.waiting else ""
    return newest.unschedulable or waits or "its pod is starting"


def termination_of(pods: Iterable[Pod], settings: OperatorSettings) -> Termination | None:
    """The termination message of the newest pod that has ended; None if no pod has ended.

    A message that is not JSON, such as that of a container that was killed, becomes the reason ClientFailed. Of a
    failed engine's answer, which the message may quote, as much is kept as of the engine's own last words.
    """
    ended = _newest(pod for pod in pods if pod.terminated and not pod.disrupted)
    return _termination(ended.terminated, settings) if ended and ended.terminated else None


def _termination(last: ContainerTerminated, settings: OperatorSettings) -> Termination:
    try:
        termination = Termination.from_untrusted_json(last.message.encode())  # of any version
    except ValueError:
        end = f"the client ended with exit code {last.exit_code}"
        remedy = _MORE_MEMORY if last.reason == EngineReason.OOM_KILLED else ""
        message = join_sentences((end, last.reason, last_words(last.message, settings), remedy))
        return Termination(code=last.exit_code, reason=ClientReason.FAILED, message=message)
    quotes_engine = termination.code == Exit.ENGINE_FAILED
    hides = quotes_engine and settings.termination_messages is TerminationMessages.NONE
    message = "see the client's log (kubectl logs)" if hides else redact(termination.message)
    return termination.model_copy(update={"reason": termination.reason or ClientReason.FAILED, "message": message})


def storage_failure(client: Job | None, pods: Iterable[Pod], settings: OperatorSettings) -> Termination | None:
    """The termination of the client's last pod if it could not store results, whether the Job retries or has failed."""
    termination = None if client is None or client.complete else termination_of(pods, settings)
    return termination if termination and termination.code == Exit.RESULTS_NOT_STORED else None


def _failed_client(
    termination: Termination, failure: JobFailure, settings: OperatorSettings, now: datetime
) -> LaunchState:
    if termination.code == Exit.BAD_INPUT:
        return failed(FailureScope.RUN, termination.reason, termination.message)
    scope, reason = FailureScope.GROUP, termination.reason
    if termination.code == Exit.ENGINE_FAILED and reason in (EngineReason.LOST, EngineReason.REQUESTS_FAILED):
        settle_s = (failure.at + timedelta(seconds=settings.engine_lost_settle_s) - now).total_seconds()
        # The client only observes failed requests. The engine's pod reports its own end a moment later, and its reason
        # decides whether the engine is launched again.
        if settle_s > 0:
            return LaunchState(
                LaunchStage.SERVING, reason, termination.message, degraded=True, requeue_after_s=settle_s
            )
        scope = FailureScope.LAUNCH if reason == EngineReason.LOST else scope
    return failed(scope, reason, termination.message)


def _idle_engine(delay: str, pods: Iterable[Pod], context: LaunchContext) -> LaunchState:
    """The state of a ready engine without a running client. The wait is limited, because the engine holds its GPUs."""
    newest = _newest(pods)
    since = context.idle_since or (newest.created_at if newest else context.now)
    limit_s = context.settings.client_start_deadline_s
    remaining_s = (since + timedelta(seconds=limit_s) - context.now).total_seconds()
    if remaining_s > 0:
        return LaunchState(
            LaunchStage.SERVING, EngineReason.SERVING, delay, requeue_after_s=remaining_s, idle_since=since
        )
    deadline = f"the engine was ready, but no client ran for {limit_s:.0f} s"
    return failed(FailureScope.GROUP, ClientReason.NOT_STARTED, join_sentences((deadline, delay)))


def _newest(pods: Iterable[Pod]) -> Pod | None:
    """The newest pod; None if there is none."""
    return max(pods, key=lambda pod: (pod.created_at, pod.ref.name), default=None)
