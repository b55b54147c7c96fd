"""LaunchState: the state of one launch, as judged from its engine or from its client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from specbench_api.spec.conditions import EngineReason
from specbench_operator.state.objects import FailureScope

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


def failed(scope: FailureScope, reason: str, message: str) -> LaunchState:
    """The state of a launch that is over."""
    return LaunchState(LaunchStage.FAILED, str(reason), message, scope)


def lost(message: str) -> LaunchState:
    """The state of a launch whose engine was lost, not at fault."""
    return failed(FailureScope.LAUNCH, EngineReason.LOST, message)


def preempted(message: str, previous_pod: str | None = None) -> LaunchState:
    """The state of a launch whose engine was preempted: by its queue, the scheduler, or its node."""
    return replace(failed(FailureScope.LAUNCH, EngineReason.PREEMPTED, message), previous_pod=previous_pod)
