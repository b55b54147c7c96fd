"""The input and output of `campaign`: CampaignObservation and CampaignDecision.

A campaign creates, patches and deletes the SpecBenchRuns that it owns. It changes no other objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from specbench_api import GROUP
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_operator.state.conditions import ConditionValue
from specbench_operator.state.objects import ObjectRef
from specbench_operator.state.run import KubernetesEvent

ANNOTATION_SUSPEND_REASON = f"{GROUP}/suspended-by-campaign"
"""Why the campaign suspended this run. A suspended run without it was suspended by hand and is left suspended."""
ANNOTATION_RERUN = f"{GROUP}/rerun"
"""On every run: the `rerun` token that started its round, so that a lost campaign status can be restored from runs."""
ANNOTATION_FIRE_TIME = f"{GROUP}/fire-time"
"""On every run of a round that the schedule started: the scheduled time."""


@dataclass(frozen=True)
class ObservedRun:
    """A SpecBenchRun that has the campaign's UID as a label and is owned by it."""

    ref: ObjectRef
    version: str
    """Its resourceVersion."""
    number: int | None
    """Number of its round, from its label; None if the label is not a number."""
    created_at: datetime
    deleting: bool = False
    suspended: bool = False
    """spec.suspend"""
    suspend_reason: str = ""
    """Why the campaign suspended it; empty if it did not."""
    rerun: str = ""
    fire_time: str | None = None
    combination: str = ""
    """Its combination of the matrix, which is the same in every round."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    phase: str = ""
    conditions: Mapping[str, ConditionValue] = field(default_factory=dict)
    """By type, which may be any string, because a newer operator may write more types."""
    progress: str = ""
    measured: int = 0
    """Number of its measured points."""
    launch_measured: bool = False
    """Whether all points of one of its launches are measured."""
    trust: str = ""
    best: str = ""
    speedup: float | None = None
    """Its largest speed-up whose confidence interval is above 1; None if there is none."""
    gpus: int = 0
    """Number of GPUs of one launch of its engine."""
    gpu_seconds: float = 0
    """GPU-seconds that its engines have held, from its status."""
    gpu_seconds_until: datetime | None = None
    """Time up to which `gpu_seconds` counts."""
    completed_at: datetime | None = None

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.ref.name

    @property
    def succeeded(self) -> bool:
        """Whether it ended with results."""
        return self.is_true("Ready")

    @property
    def failed(self) -> bool:
        """Whether it ended without results, is invalid, or cannot continue until somebody changes something."""
        return not self.succeeded and (self.is_true("Stalled") or self.phase in ("Failed", "Invalid"))

    @property
    def over(self) -> bool:
        """Whether it will make no progress without a change; it then does not count against `parallelism`."""
        return self.succeeded or self.failed

    @property
    def ended(self) -> bool:
        """Whether it has ended, so that its status no longer changes."""
        return self.succeeded or self.completed_at is not None

    @property
    def counted(self) -> bool:
        """Whether its status contains its GPU-seconds; an empty status and that of an invalid run do not."""
        return self.gpu_seconds_until is not None or self.phase not in ("", "Invalid")

    @property
    def queued(self) -> bool:
        """Whether it waits for its queue."""
        return not self.over and self.is_true("Queued")

    @property
    def resumable(self) -> bool:
        """Whether the campaign suspended it and may resume it, also if it failed but can still be repaired."""
        return self.suspended and bool(self.suspend_reason) and not self.ended

    def is_true(self, kind: str) -> bool:
        """Whether its condition of this type is True."""
        return kind in self.conditions and self.conditions[kind].status == "True"

    def is_false(self, kind: str) -> bool:
        """Whether its condition of this type is False."""
        return kind in self.conditions and self.conditions[kind].status == "False"


class OtherRunKind(StrEnum):
    """Who owns a run that does not belong to the campaign."""

    FOREIGN = "Foreign"
    """Somebody else. The campaign never changes it."""
    LEFTOVER = "Leftover"
    """A deleted campaign of the same name. The garbage collector is removing the run."""


@dataclass(frozen=True)
class CampaignObservation:
    """Everything that was read about one campaign: the campaign first, then its runs, then the other runs."""

    resource: Mapping[str, Any]
    runs: tuple[ObservedRun, ...] = ()
    other_runs: Mapping[str, OtherRunKind] = field(default_factory=dict)
    """Name → owner of all other runs of the namespace, because a run whose name is taken cannot be created."""
    live: bool = True
    """Read from the API server. If not, it is from the cache, and may be outdated."""


@dataclass(frozen=True)
class RunPatch:
    """A merge patch of a run, with its UID and the observed resourceVersion as preconditions."""

    ref: ObjectRef
    version: str
    change: Mapping[str, Any]


@dataclass(frozen=True)
class RunDeletion:
    """The deletion of a run, with its UID and the observed resourceVersion as preconditions."""

    ref: ObjectRef
    version: str


@dataclass(frozen=True)
class CampaignDecision:
    """The changes to make for a campaign, in this order: patch, delete, create, status, events."""

    status: CampaignStatus
    patch: tuple[RunPatch, ...] = ()
    delete: tuple[RunDeletion, ...] = ()
    create: tuple[Mapping[str, Any], ...] = ()
    events: tuple[KubernetesEvent, ...] = ()
    requeue_after_s: float | None = None
    """When to reconcile again even without an event, in seconds; None if only an event or the resync should."""
