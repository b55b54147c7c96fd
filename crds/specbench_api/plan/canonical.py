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
from specbench_api.spec.run import RunSpec
from specbench_api.spec.workload import Workload

POINT_SCHEMA = "specbench.io/point/v3"


def canonical_point(spec: RunSpec, arm: Arm, workload: Workload, level: Level, repeat: int) -> dict[str, Any]:
    """The point as plain data. Names of arms and workloads are labels for people and do not count."""
    placement = spec.placement
    return {
        "schemaVersion": POINT_SCHEMA,
        "model": spec.model.to_dict(),
        "engine": spec.engine.to_dict(),
        "drafter": _without_name(arm.drafter.to_dict()) if arm.drafter else None,
        "workload": _without_name(workload.to_dict()),
        "load": _load(spec.load, level),
        "repeat": repeat,
        "hardware": {
            "gpus": placement.gpus,
            "gpuResourceName": placement.gpu_resource_name,
            "nodeSelector": placement.node_selector,
            "engineResources": placement.engine_resources.to_dict(),
        },
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


def _without_name(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "name"}
