"""CampaignObserved (all that was read of a campaign) and CampaignDecision (all that is to be done).

A campaign touches SpecBenchRuns and nothing else: it creates, patches and deletes them, those that it owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from specbench_api import GROUP
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_operator.state.child import Ref
from specbench_operator.state.decision import Event

ANNOTATION_HELD = f"{GROUP}/suspended-by-campaign"
"""On a run that the campaign suspended: why. A run that is suspended without it was suspended by hand, and stays so."""
ANNOTATION_RERUN = f"{GROUP}/rerun"
"""On every run of a round: the token that began the round, so that a lost status can be read again."""
ANNOTATION_FIRE_TIME = f"{GROUP}/fire-time"
"""On every run of a round that the schedule began: the firing."""


@dataclass(frozen=True)
class Told:
    """A condition of a run, as far as a campaign asks. Of any type: newer operators may tell more."""

    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class RunSeen:
    """A SpecBenchRun that bears the campaign's UID and is owned by it."""

    ref: Ref
    number: int | None
    """Its round, by its label; None where that is no number."""
    created_at: datetime
    deleting: bool = False
    suspended: bool = False
    """spec.suspend"""
    held: str = ""
    """Why the campaign suspended it; empty where it did not."""
    rerun: str = ""
    fire_time: str | None = None
    cell: str = ""
    """Which cell of the matrix it is, in every round alike."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    phase: str = ""
    conditions: Mapping[str, Told] = field(default_factory=dict)
    progress: str = ""
    verdict: str = ""
    best: str = ""
    speedup: float | None = None
    """The largest speed-up whose interval lies above 1, as a number."""
    gpus: int = 0
    """GPUs of one launch of its engine."""
    gpu_seconds: float = 0
    """GPU-seconds held, as its status has them."""
    gpu_seconds_until: datetime | None = None
    """Until when they count."""
    completed_at: datetime | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.ref.name

    @property
    def succeeded(self) -> bool:
        """It ended with results."""
        return self.is_true("Ready")

    @property
    def failed(self) -> bool:
        """It ended without results, was refused, or cannot go on until somebody changes something."""
        return not self.succeeded and (self.is_true("Stalled") or self.phase in ("Failed", "Invalid"))

    @property
    def over(self) -> bool:
        """Nothing is to be expected of it: it takes nobody's place."""
        return self.succeeded or self.failed

    @property
    def ended(self) -> bool:
        """It has said its last word, and is a record from now on."""
        return self.succeeded or self.completed_at is not None

    @property
    def counted(self) -> bool:
        """Whether its status tells what it held: an empty one does not, and neither does one that refuses it."""
        return self.gpu_seconds_until is not None or self.phase not in ("", "Invalid")

    @property
    def queued(self) -> bool:
        """It waits for quota."""
        return not self.over and self.is_true("Queued")

    @property
    def resumable(self) -> bool:
        """The campaign suspended it, and may let it go on. One that failed and has not ended may be mended yet."""
        return self.suspended and bool(self.held) and not self.ended

    def is_true(self, kind: str) -> bool:
        """Whether it says so of itself."""
        return kind in self.conditions and self.conditions[kind].status == "True"

    def is_false(self, kind: str) -> bool:
        """Whether it says that it is not so."""
        return kind in self.conditions and self.conditions[kind].status == "False"


class Stranger(StrEnum):
    """Whose a run is that is not the campaign's own."""

    FOREIGN = "Foreign"
    """Somebody else's. It is never touched."""
    LEFTOVER = "Leftover"
    """It belonged to a deleted campaign of the same name: Kubernetes removes it."""
    ORPHAN = "Orphan"
    """Nobody's, and made to carry on results of the very run that has this name: the campaign takes it over."""


@dataclass(frozen=True)
class CampaignObserved:
    """All that was read of one campaign. The campaign first, its runs after it, strangers last."""

    resource: Mapping[str, Any]
    runs: tuple[RunSeen, ...] = ()
    strangers: Mapping[str, Stranger] = field(default_factory=dict)
    """The other runs in the namespace, by their names: what has a name already cannot be made."""
    orphans: tuple[RunSeen, ...] = ()
    """Those of them that nobody owns and whose name may be one of the campaign's, read whole."""


@dataclass(frozen=True)
class RunPatch:
    """A change of a run, fenced by its UID. `change`: a merge patch."""

    ref: Ref
    change: Mapping[str, Any]


@dataclass(frozen=True)
class CampaignDecision:
    """What is to be done, in this order: patch, delete, create, status, events."""

    status: CampaignStatus
    patch: tuple[RunPatch, ...] = ()
    delete: tuple[Ref, ...] = ()
    create: tuple[Mapping[str, Any], ...] = ()
    events: tuple[Event, ...] = ()
    look_again_s: float | None = None
    """When to look again even if nothing is heard."""
