"""How far one launch came, in one value. Both the engine's and the client's side are judged in these words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from specbench_api.spec.conditions import EngineReason
from specbench_operator.state.jobs import Scope

SUSPENDED = "Suspended"
"""Reason of a launch that ended because the run was suspended: it was given back, and is no loss."""


class Stage(StrEnum):
    """Where a launch stands."""

    QUEUED = "Queued"
    """Asked for, and held back by its queue."""
    STARTING = "Starting"
    """Asked for, not ready."""
    SERVING = "Serving"
    """Ready; the client is at work or may begin."""
    FINISHED = "Finished"
    """The client ended well."""
    FAILED = "Failed"
    """Over; `scope` says what ends with it."""


class ClientReason(StrEnum):
    """Why a launch failed though its engine did not. What a client says of itself is passed on as it is."""

    FAILED = "ClientFailed"
    NOT_STARTED = "ClientNotStarted"
    RESULTS_MISSING = "ResultsMissing"


@dataclass(frozen=True)
class Judgement:
    """`hurts`: not over yet, but a person should look: it is shown as False instead of Unknown."""

    stage: Stage
    reason: str
    message: str = ""
    scope: Scope | None = None
    hurts: bool = False
    look_again_s: float | None = None
    """When time alone would change this judgement."""
    idle_since: datetime | None = None
    """Since when the engine has been ready with no client at work."""
    past_pod: str | None = None
    """Where the launch is over and its Job is not: UID of the pod that is past, empty where none was seen."""
    recorded: bool = False
    """The launch's Job says so already, so that what was decided then counts, whatever holds by now."""


def failed(scope: Scope, reason: str, message: str) -> Judgement:
    """The launch is over."""
    return Judgement(Stage.FAILED, str(reason), message, scope)


def lost(message: str) -> Judgement:
    """The engine is gone without any fault of its own."""
    return failed(Scope.LAUNCH, EngineReason.LOST, message)


def preempted(message: str, past_pod: str | None = None) -> Judgement:
    """The engine was taken away by whoever shares out the cluster: its queue, the scheduler, its node."""
    return replace(failed(Scope.LAUNCH, EngineReason.PREEMPTED, message), past_pod=past_pod)


def soonest(*seconds: float | None) -> float | None:
    """The shortest of some waits, where there is any."""
    return min((given for given in seconds if given is not None), default=None)


def joined(parts: Iterable[str]) -> str:
    """Sentences that are there, joined."""
    return ": ".join(part.strip() for part in parts if part.strip())
