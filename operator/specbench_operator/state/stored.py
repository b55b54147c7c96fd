"""What lies in S3 of a run, or why S3 did not tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from specbench_api.outcome.summary import RunSummary


@dataclass(frozen=True)
class LaunchStored:
    """The last launch that the results tell of."""

    node: str
    """Node of the pod that served."""
    asked: datetime
    """When its engine was asked, by the client's clock."""


@dataclass(frozen=True)
class Stored:
    """What lies in S3 below the run's root."""

    measured: frozenset[str] = frozenset()
    """Hashes of points with a manifest."""
    summary: RunSummary | None = None
    answering: tuple[int, int] | None = None
    """Group and attempt whose client says in progress.json that its engine has answered a real completion."""
    answered_at: datetime | None = None
    """When that progress.json was stored, by S3's clock."""
    plan_json: str | None = None
    """plan.json that lies there; read for a run that carries on an earlier one's results, and for no other."""
    last_launch: LaunchStored | None = None
    """Asked for only where status does not say where the last engine ran, and where one engine is one pod."""
    launches: Mapping[int, int] = field(default_factory=dict)
    """By group: the number of the last launch that answered, of whichever run's results these are."""


@dataclass(frozen=True)
class StoreTrouble:
    """S3 did not answer. `refused`: it did, and said no; that heals only by somebody's hand."""

    reason: str
    message: str
    refused: bool
