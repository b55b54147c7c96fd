"""All that is to be done about one run: what `reconcile` gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_api.spec.status import RunStatus
from specbench_operator.state.child import Ref
from specbench_operator.state.jobs import Relaunch, Verdict


@dataclass(frozen=True)
class StopJob:
    """End a Job for good and write on it why. It and its last pod stay as the record; its running pods go."""

    ref: Ref
    verdict: Verdict
    ended: bool
    """It ended by itself: only the reason is to be written."""


@dataclass(frozen=True)
class RelaunchJob:
    """Let an engine's Job go on as another launch."""

    ref: Ref
    relaunch: Relaunch


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event for people."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Decision:
    """What is to be done, in this order: relaunch, stop, delete, apply, status, events."""

    status: RunStatus
    stop: tuple[StopJob, ...] = ()
    delete: tuple[Ref, ...] = ()
    apply: tuple[Mapping[str, Any], ...] = ()
    events: tuple[Event, ...] = ()
    look_again_s: float | None = None
    """When to look again even if nothing is heard."""
    at_rest: bool = False
    """Nothing is left to be done until the run itself changes: the relist may pass it over."""
    relaunch: tuple[RelaunchJob, ...] = ()
    awaits: frozenset[str] = frozenset()
    """Names of other runs of the namespace at whose end it is worth looking again."""
