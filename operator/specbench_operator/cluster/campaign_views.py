"""Raw SpecBenchRuns → RunSeen. Read leniently: a run may have been written by a newer operator, or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_api.campaign.names import ANNOTATION_CELL, LABEL_ROUND
from specbench_operator.cluster.kinds import CAMPAIGN, RUN
from specbench_operator.cluster.views import moment
from specbench_operator.state.campaign import (
    ANNOTATION_FIRE_TIME,
    ANNOTATION_HELD,
    ANNOTATION_RERUN,
    RunSeen,
    Stranger,
    Told,
)
from specbench_operator.state.child import Ref

Raw = Mapping[str, Any]


def run_seen(raw: Raw) -> RunSeen:
    """A run of a campaign. Raises KeyError for what the API server would not serve."""
    meta, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
    annotations = meta.get("annotations", {})
    created = moment(meta["creationTimestamp"])
    assert created is not None
    return RunSeen(
        ref=Ref(RUN, meta["name"], meta["uid"]),
        number=_number(meta.get("labels", {}).get(LABEL_ROUND, "")),
        created_at=created,
        deleting="deletionTimestamp" in meta,
        suspended=bool(spec.get("suspend", False)),
        held=annotations.get(ANNOTATION_HELD, ""),
        rerun=annotations.get(ANNOTATION_RERUN, ""),
        fire_time=annotations.get(ANNOTATION_FIRE_TIME),
        cell=annotations.get(ANNOTATION_CELL, ""),
        spec=spec,
        phase=status.get("phase", ""),
        conditions={row["type"]: _told(row) for row in status.get("conditions", [])},
        progress=status.get("progress", ""),
        verdict=status.get("verdict", ""),
        best=status.get("best", ""),
        speedup=_speedup(status.get("arms", [])),
        gpus=_gpus(spec.get("placement", {})),
        gpu_seconds=float(status.get("gpuSecondsHeld", 0)),
        gpu_seconds_until=moment(status.get("gpuSecondsUntil")),
        completed_at=moment(status.get("completionTime")),
    )


def stranger(raw: Raw, campaign: str) -> Stranger:
    """Whose a run is that does not belong to the present campaign of this name. Its metadata is enough."""
    owners = raw["metadata"].get("ownerReferences", [])
    left = any((owner["kind"], owner["name"]) == (CAMPAIGN, campaign) and owner.get("controller") for owner in owners)
    return Stranger.LEFTOVER if left else Stranger.FOREIGN


def _told(row: Raw) -> Told:
    return Told(row["status"], row.get("reason", ""), row.get("message", ""))


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _gpus(placement: Raw) -> int:
    """Of one launch, as `Placement.engine_devices` has it."""
    devices = int(placement.get("gpus", 0)) + int(placement.get("claimedGpus", 0))
    return devices * int(placement.get("nodes", 1))


def _speedup(arms: list[Raw]) -> float | None:
    """The largest that is told from 1, as the run's own `best` has it."""
    intervals = [row["speedup"] for row in arms if row.get("valid", True) and row.get("speedup")]
    return max((float(row["value"]) for row in intervals if row["low"] > 1), default=None)
