"""The canonical form of a point, and of a run, and its hash: what makes two measurements the same measurement.

Only what is *declared* counts: model, engine, arguments, drafter, workload, load, repeat, hardware asked for.
Not where it queues, how long it may take, or where results go; and nothing that is only observed (that stands in
the manifest). Changing this function changes every hash, so it is versioned.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from specbench_api.plan.plan import Arm
from specbench_api.spec.chat_template import AppliedBy
from specbench_api.spec.load import Arrival, Level, Load
from specbench_api.spec.placement import Placement
from specbench_api.spec.run import RunSpec
from specbench_api.spec.workload import Workload

POINT_SCHEMA = "specbench.io/point/v3"
RUN_SCHEMA = "specbench.io/run/v1"
HARDWARE = ("gpus", "gpuResourceName", "nodeSelector", "engineResources")
"""What of a placement is measured; the rest is where it queues and who may run it."""
LATER_HARDWARE = ("resourceClaimTemplateName", "claimedGpus", "runtimeClassName", "nodes")
"""More of the same that came after v3: it stands in a point only where it is used: older points keep theirs."""
NOT_MEASURED = (
    "suspend", "gate", "slo", "activeDeadlineSeconds", "startupDeadlineSeconds", "ttlSecondsAfterFinished", "results",
    "placement",
)  # fmt: skip
"""Fields of a run's spec that change nothing of what is measured; placement, of which HARDWARE counts."""


def canonical_point(spec: RunSpec, arm: Arm, workload: Workload, level: Level, repeat: int) -> dict[str, Any]:
    """The point as plain data. Names of arms and workloads are labels for people and do not count."""
    return {
        "schemaVersion": POINT_SCHEMA,
        "model": _without(spec.model.to_dict(), "tokenSecret"),
        "engine": spec.engine.to_dict(),
        "drafter": _without(arm.drafter.to_dict(), "name") if arm.drafter else None,
        "workload": _workload(workload.to_dict()),
        "load": _load(spec.load, level),
        "repeat": repeat,
        "hardware": hardware_of(spec.placement),
    }


def _workload(told: dict[str, Any]) -> dict[str, Any]:
    """Without its name; a chat template that is the engine's business is what it is where none is declared."""
    template = told.get("chatTemplate")
    by_engine = template is not None and template["appliedBy"] == AppliedBy.ENGINE
    return {key: value for key, value in _without(told, "name").items() if key != "chatTemplate" or not by_engine}


def hardware_of(placement: Placement) -> dict[str, Any]:
    """What of a placement is measured: the hardware that was asked for."""
    whole = placement.to_dict()
    return {field: whole[field] for field in HARDWARE} | _later_hardware(
        placement.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    )


def _later_hardware(used: dict[str, Any]) -> dict[str, Any]:
    """Of a placement without what is as it is by default."""
    nodes = (used.get("affinity") or {}).get("nodeAffinity")
    affinity = {"nodeAffinity": nodes} if nodes else {}
    return {field: used[field] for field in LATER_HARDWARE if field in used} | affinity


def canonical_run(spec: RunSpec) -> dict[str, Any]:
    """What a whole run measures, as plain data. Names of arms and workloads are labels for people and do not count.

    Fields that are as they are by default are left out, so that a field which a later version adds makes no run another
    one; whole numbers are written without a fraction, because the API server keeps 1.0 as 1 where no schema looks. The
    order of levels does not count: they are measured upwards.
    """
    told = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    placement = told.get("placement", {})
    measured = {field: value for field, value in told.items() if field not in NOT_MEASURED}
    measured["load"] = _plain_load(spec.load, told["load"])
    if "drafters" in told:
        measured["drafters"] = [_without(row, "name") for row in told["drafters"]]
    if "workloads" in told:
        measured["workloads"] = [_workload(row) for row in told["workloads"]]
    if "model" in told:
        measured["model"] = _without(told["model"], "tokenSecret")
    hardware = {field: placement[field] for field in HARDWARE if field in placement} | _later_hardware(placement)
    plain: dict[str, Any] = plain_numbers({"schemaVersion": RUN_SCHEMA, **measured, "hardware": hardware})
    return plain


def _plain_load(load: Load, told: dict[str, Any]) -> dict[str, Any]:
    """What comes to the same is written in one way: levels upwards, and no slots or arrival that go without saying."""
    levels: dict[str, Any] = {name: sorted(told[name]) for name in ("concurrency", "rate") if name in told}
    implied = {name for name, value in told.items() if isinstance(value, dict) and not value}
    if load.concurrency is not None and load.slots == max(load.concurrency):
        implied.add("slots")
    return {name: value for name, value in (told | levels).items() if name not in implied}


def plain_numbers(data: Any) -> Any:
    """The same JSON with whole numbers as integers: 1.0 and 1 are one number, and true is none."""
    if isinstance(data, dict):
        return {key: plain_numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain_numbers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


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
