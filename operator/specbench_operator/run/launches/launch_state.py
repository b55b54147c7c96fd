"""LaunchState: the state of one launch, as judged from its engine or its client; and its messages that are safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from specbench_api.fence.model import TerminationMessages
from specbench_api.plan.names import ROLE_ENGINE
from specbench_api.redaction import excerpt, redact
from specbench_api.spec.conditions import EngineReason
from specbench_api.spec.run import RunSpec
from specbench_api.spec.status import GroupStatus
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.objects import ContainerTerminated, FailureScope, Pod
from specbench_operator.state.timestamps import parse_timestamp

SUSPENDED = "Suspended"
"""Reason of a launch that ended because the run was suspended. It does not count as lost."""
NEVER_STARTED_REASONS = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a terminated container whose program never ran."""


class LaunchStage(StrEnum):
    """The stages of a launch."""

    QUEUED = "Queued"
    """The engine's Job exists and waits for its queue."""
    STARTING = "Starting"
    """The engine's Job exists and the engine is not ready."""
    SERVING = "Serving"
    """The engine is ready; the client is running or may be created."""
    FINISHED = "Finished"
    """The client succeeded."""
    FAILED = "Failed"
    """The launch is over; `scope` is what ends with it."""


class ClientReason(StrEnum):
    """Why a launch failed although its engine did not, unless the client reports a reason itself."""

    FAILED = "ClientFailed"
    LOST = "ClientLost"
    NOT_STARTED = "ClientNotStarted"
    RESULTS_MISSING = "ResultsMissing"


@dataclass(frozen=True)
class LaunchState:
    """The state of a launch.

    `degraded`: in progress, but needs attention; EngineReady is then False instead of Unknown.
    """

    stage: LaunchStage
    reason: str
    message: str = ""
    scope: FailureScope | None = None
    degraded: bool = False
    requeue_after_s: float | None = None
    """When this state changes by the passing of time alone, in seconds."""
    idle_since: datetime | None = None
    """Since when the engine has been ready without a running client."""
    previous_pod: str | None = None
    """Set if the launch is over and its Job continues: UID of the launch's pod, empty if no pod was observed."""
    recorded: bool = False
    """The verdict is already written on the Job. That decision is kept, whatever is observed now."""


@dataclass(frozen=True)
class LaunchContext:
    """What a launch is judged by besides its objects: the run's limits, the settings, the time, and its last status.

    `degraded_since` and `known` come from status; if status is lost, the waits that they begin start again.
    """

    spec: RunSpec
    settings: OperatorSettings
    now: datetime
    degraded_since: datetime | None = None
    """Since when the image pull or the configuration has been failing."""
    known: GroupStatus | None = None
    """The row of the launch's group."""

    @property
    def idle_since(self) -> datetime | None:
        """Since when the launch's engine has been ready without a running client, as far as known."""
        return parse_timestamp(self.known.idle_since) if self.known else None


def failed(scope: FailureScope, reason: str, message: str) -> LaunchState:
    """The state of a launch that is over."""
    return LaunchState(LaunchStage.FAILED, str(reason), message, scope)


def lost(message: str) -> LaunchState:
    """The state of a launch whose engine was lost, not at fault."""
    return failed(FailureScope.LAUNCH, EngineReason.LOST, message)


def preempted(message: str, previous_pod: str | None = None) -> LaunchState:
    """The state of a launch whose engine was preempted: by its queue, the scheduler, or its node."""
    return replace(failed(FailureScope.LAUNCH, EngineReason.PREEMPTED, message), previous_pod=previous_pod)


# What of the messages of pods may be repeated in status, events and logs.
#
# An engine runs a program of the user's choice with the run's Secrets, and its last words are in its pod's status,
# which more people can read than may read Secrets. Therefore messages are redacted, and the administrator may limit
# them to a short excerpt, or to reason and exit code.

EXCERPT_MAX_CHARS: Mapping[TerminationMessages | None, int] = {
    None: 900,
    TerminationMessages.REDACTED: 400,
    TerminationMessages.NONE: 0,
}
"""Length of the excerpt of a program's last words. Status keeps 1,024 characters of a message, from its beginning."""


def with_safe_messages(pod: Pod, settings: OperatorSettings) -> Pod:
    """The pod with the messages that may be repeated.

    An engine's pod counts as foreign whatever its image: with specbench's own image it may run another command.
    The message of a client's pod is parsed first (`client.termination_of`).
    """
    foreign = pod.key.role == ROLE_ENGINE
    return replace(
        pod,
        message=redact(pod.message),
        disrupted=None if pod.disrupted is None else redact(pod.disrupted),
        unschedulable=None if pod.unschedulable is None else redact(pod.unschedulable),
        waiting=replace(pod.waiting, message=redact(pod.waiting.message)) if pod.waiting else None,
        terminated=_engine_end(pod.terminated, settings) if foreign and pod.terminated else pod.terminated,
        probe=replace(pod.probe, message=redact(pod.probe.message)) if pod.probe else None,
    )


def last_words(text: str, settings: OperatorSettings) -> str:
    """What of a program's own text may be repeated. It is redacted before it is cut, so that no part of a key is left.

    `settings.termination_messages` decides how much of it.
    """
    longest = EXCERPT_MAX_CHARS[settings.termination_messages]
    return excerpt(redact(text), longest) if longest else ""


def _engine_end(ended: ContainerTerminated, settings: OperatorSettings) -> ContainerTerminated:
    by_runtime = ended.reason in NEVER_STARTED_REASONS  # the container runtime's message: no program ran
    return replace(ended, message=redact(ended.message) if by_runtime else last_words(ended.message, settings))
