"""The canonical form of a point and its hash: what makes two measurements the same measurement.

Only what is *declared* counts: model, engine, arguments, drafter, workload, load, repeat, hardware asked for.
Not where it queues, how long it may take, or where results go; and nothing that is only observed (that stands in
the manifest). Changing this function changes every hash, so it is versioned.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from specbench_api.plan.plan import Arm
from specbench_api.spec.load import Arrival, Level, Load
from specbench_api.spec.placement import Placement
from specbench_api.spec.run import RunSpec
from specbench_api.spec.workload import Workload

POINT_SCHEMA = "specbench.io/point/v3"


def canonical_point(spec: RunSpec, arm: Arm, workload: Workload, level: Level, repeat: int) -> dict[str, Any]:
    """The point as plain data. Names of arms and workloads are labels for people and do not count."""
    return {
        "schemaVersion": POINT_SCHEMA,
        "model": _without(spec.model.to_dict(), "tokenSecret"),
        "engine": spec.engine.to_dict(),
        "drafter": _without(arm.drafter.to_dict(), "name") if arm.drafter else None,
        "workload": _without(workload.to_dict(), "name"),
        "load": _load(spec.load, level),
        "repeat": repeat,
        "hardware": _hardware(spec.placement),
    }


def _hardware(placement: Placement) -> dict[str, Any]:
    """What was asked for. Fields that came after v3 stand there only where they are used: older points keep theirs."""
    affinity = placement.affinity.to_dict().get("nodeAffinity") if placement.affinity else None
    later = {
        "resourceClaimTemplateName": placement.resource_claim_template_name,
        "claimedGpus": placement.claimed_gpus or None,
        "nodeAffinity": affinity or None,
        "runtimeClassName": placement.runtime_class_name,
        "nodes": placement.nodes if placement.nodes > 1 else None,
    }
    return {
        "gpus": placement.gpus,
        "gpuResourceName": placement.gpu_resource_name,
        "nodeSelector": placement.node_selector,
        "engineResources": placement.engine_resources.to_dict(),
        **{name: value for name, value in later.items() if value is not None},
    }


def _load(load: Load, level: Level) -> dict[str, Any]:
    """One level, and what is the same for all; an arrival that is left out is the default one, written out."""
    told = {
        "level": level.to_dict(),
        "slots": load.engine_slots,
        "requests": load.requests,
        "durationSeconds": load.duration_seconds,
        "warmupRequests": load.warmup_requests,
    }
    return told if level.concurrency is not None else {**told, "arrival": (load.arrival or Arrival()).to_dict()}


def canonical_json(data: Any) -> str:
    """Sorted keys, no spaces, no NaN: equal data give equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def _without(data: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != field}
