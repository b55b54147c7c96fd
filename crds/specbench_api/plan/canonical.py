"""The canonical form of a point and of a run, and its hash: what makes two measurements the same measurement.

Only what is *specified* counts: model, engine, arguments, drafter, workload, load, repeat, requested hardware. Where it
queues, how long it may take and where results go do not count, nor does anything that is only observed (that is in the
manifest). Changing this function changes every hash, so it is versioned.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from specbench_api.launch.registry import with_gpus
from specbench_api.plan.plan import Arm, Plan
from specbench_api.spec.chat_template import AppliedBy
from specbench_api.spec.gate import Gate
from specbench_api.spec.load import ArmOrder, Arrival, Level, Load
from specbench_api.spec.placement import Placement
from specbench_api.spec.run import RunSpec, default_cache_policy
from specbench_api.spec.workload import Workload

POINT_SCHEMA = "specbench.io/point/v6"
RUN_SCHEMA = "specbench.io/run/v1"
HARDWARE = ("gpus", "gpuResourceName", "nodeSelector")
"""Fields of placement that are part of what is measured; the others only decide where it queues and who runs it."""
LATER_HARDWARE = ("resourceClaimTemplateName", "claimedGpus", "runtimeClassName", "nodes", "template")
"""More such fields, which are part of a point only if they are set: their defaults must not change hashes."""
NOT_MEASURED = (
    "suspend", "gate", "slo", "retries", "activeDeadlineSeconds", "startupDeadlineSeconds", "reportDeadlineSeconds",
    "ttlSecondsAfterFinished", "results", "placement",
)  # fmt: skip
"""Fields of a run's spec that do not affect what is measured. Of placement, HARDWARE counts."""


def canonical_point(spec: RunSpec, arm: Arm, workload: Workload, level: Level, repeat: int) -> dict[str, Any]:
    """Return the point as plain data. Names of arms and workloads are labels and do not count."""
    return {
        "schemaVersion": POINT_SCHEMA,
        "model": _without(spec.model.to_dict(), "tokenSecretRef", *(() if spec.model.adapter else ("adapter",))),
        "engine": _without(spec.engine.to_dict(), "endpoints", "apiKeySecretRef"),
        "hardware": hardware_of(spec.placement),
        "promptCache": spec.cache_policy,
        "drafter": _without(arm.drafter.to_dict(), "name") if arm.drafter else None,
        "workload": _workload(workload.to_dict()),
        "load": _load(spec.load, level),
        "repeat": repeat,
        **({"endpoint": _without(arm.endpoint.to_dict(), "name")} if arm.endpoint else {}),
    }


def point_hash(spec: RunSpec, arm: Arm, workload: Workload, level: Level, repeat: int) -> str:
    """Return the hash of one point."""
    return digest(canonical_point(spec, arm, workload, level, repeat))


def _workload(fields: dict[str, Any]) -> dict[str, Any]:
    """Remove the name, and a chat template that the engine applies, which is the default."""
    template = fields.get("chatTemplate")
    by_engine = template is not None and template["appliedBy"] == AppliedBy.ENGINE
    return {key: value for key, value in _without(fields, "name").items() if key != "chatTemplate" or not by_engine}


def hardware_of(placement: Placement) -> dict[str, Any]:
    """Return the requested hardware: the part of the placement that is measured."""
    whole = {"gpus": 0, **placement.to_dict()}
    return {field: whole[field] for field in HARDWARE} | _later_hardware(
        placement.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    )


def _later_hardware(placement: dict[str, Any]) -> dict[str, Any]:
    """Return LATER_HARDWARE, the node affinity and the client's template of a placement without its defaults."""
    nodes = (placement.get("affinity") or {}).get("nodeAffinity")
    affinity = {"nodeAffinity": nodes} if nodes else {}
    client = (placement.get("client") or {}).get("template")
    sidecars = {"clientTemplate": client} if client else {}
    return {field: placement[field] for field in LATER_HARDWARE if field in placement} | affinity | sidecars


def canonical_run(spec: RunSpec) -> dict[str, Any]:
    """Return what a whole run measures, as plain data. Names of arms and workloads are labels and do not count.

    Fields with default values are omitted, so that adding a field in a later version does not change existing hashes.
    Whole numbers are written as integers, because the API server stores 1.0 as 1 where no schema applies. The order of
    load levels does not count, because they are always measured in ascending order.
    """
    fields = with_gpus(spec).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    placement = fields.get("placement", {})
    measured = {field: value for field, value in fields.items() if field not in NOT_MEASURED}
    measured["load"] = _plain_load(spec.load, fields["load"])
    if "drafters" in fields:
        measured["drafters"] = [_without(row, "name") for row in fields["drafters"]]
    if "workloads" in fields:
        measured["workloads"] = [_workload(row) for row in fields["workloads"]]
    if "model" in fields:
        measured["model"] = _without(fields["model"], "tokenSecretRef")
    if spec.cache_policy is default_cache_policy(spec.engine):
        measured.pop("promptCache", None)
    if "engine" in fields:
        measured["engine"] = _without(fields["engine"], "apiKeySecretRef")
    hardware = {field: placement[field] for field in HARDWARE if placement.get(field)} | _later_hardware(placement)
    plain: dict[str, Any] = plain_numbers({"schemaVersion": RUN_SCHEMA, **measured, "hardware": hardware})
    return plain


def _plain_load(load: Load, fields: dict[str, Any]) -> dict[str, Any]:
    """Normalise equivalent loads: ascending levels, and neither `slots` nor `arrival` where they equal the default."""
    levels: dict[str, Any] = {name: sorted(fields[name]) for name in ("concurrency", "rate") if name in fields}
    implied = {name for name, value in fields.items() if isinstance(value, dict) and not value}
    if load.concurrency is not None and load.slots == max(load.concurrency):
        implied.add("slots")
    return {name: value for name, value in (fields | levels).items() if name not in implied}


def plain_numbers(data: Any) -> Any:
    """Return the JSON data with whole floats as integers: 1.0 and 1 are the same number; booleans are unchanged."""
    if isinstance(data, dict):
        return {key: plain_numbers(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain_numbers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _load(load: Load, level: Level) -> dict[str, Any]:
    """Return one level with the fields common to all; a missing arrival is replaced by the default one."""
    fields = {
        "level": level.to_dict(),
        "slots": load.engine_slots,
        "requests": load.requested(level),
        "durationSeconds": load.duration_seconds,
        "warmupRequests": load.warmup_requests,
        **({"soak": True} if load.order is ArmOrder.SOAK else {}),
    }
    return fields if level.concurrency is not None else {**fields, "arrival": (load.arrival or Arrival()).to_dict()}


def canonical_json(data: Any) -> str:
    """Return JSON text with sorted keys, no spaces and no NaN: equal data give equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: Any) -> str:
    """Return the SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def _without(data: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in fields}


def digest_of_gate(gate: Gate) -> str:
    """Return the SHA-256 of a gate, in hex, by which a report is matched to it. Defaults count as if written out."""
    return digest(gate.to_dict())


# Whether two plans measure the same, so that one may adopt the results of the other. Queue, priority, tolerations and
# pinning are not part of a point's hash, so a run in another queue can adopt them too.


def differing_fields(one: Plan, other: Plan) -> list[str]:
    """Return the fields, by their names in plan.json, in which two plans measure something different."""
    mine, theirs = _measured(one), _measured(other)
    return [name for name in mine if mine[name] != theirs[name]]


GROWING = frozenset({"repeats", "concurrency", "rate"})
"""Fields of a plan's load that may grow while the stored points stay."""


def extends(plan: Plan, stored: Plan) -> bool:
    """Return whether a plan measures all that a stored one does, and more repeats or loads: its points stay.

    Loads cannot be added where each point sends the next prompts, because those of the stored points would change.
    """
    load = {name: getattr(plan.load, name) for name in GROWING}
    grown = stored.model_copy(update={"load": stored.load.model_copy(update=load)})
    grown = grown.model_copy(update={"groups": plan.groups, "planned_repeats": plan.planned_repeats})
    kept = {point.hash for point in stored.points} < {point.hash for point in plan.points}
    same_prompts = plan.load.levels == stored.load.levels or not plan.repeats_continue
    return kept and same_prompts and not plan.soaks and not differing_fields(plan, grown)


def _measured(plan: Plan) -> dict[str, Any]:
    fields = {field.alias or name: getattr(plan, name) for name, field in Plan.model_fields.items()}
    return {**fields, "placement": hardware_of(plan.placement)}


def plan_digest(plan: Plan) -> str:
    """Return the SHA-256 of what a plan measures, in hex: that of the plans between which no field differs.

    Fields with default values are omitted, so that adding a field in a later version does not change the digest of a
    plan that a run began with.
    """
    fields = plan.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return digest({**fields, "placement": hardware_of(plan.placement)})
