"""Checks before a run is continued: the store belongs to this plan, and the observed inputs are unchanged.

Planning is pure, so a point's hash covers declared values only. Observed values (the content of the prompts, the
engine's version) are in the manifests. A run that continued with other values would compare different things under one
name.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN
from specbench_api.plan.canonical import differing_fields, extends
from specbench_api.plan.plan import Plan
from specbench_client.documents.manifest import Manifest, PointProvenance
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.store import Store, StoreErrorReason
from specbench_client.workload.prompts import Prompts

_OF_THE_ENGINE = {
    "engine_version": "engine's version",
    "engine_model": "model that the engine serves",
    "image_digest": "engine's image",
}
_OBSERVED_FIELDS = {
    **_OF_THE_ENGINE,
    "trace_fingerprint": "trace of arrivals",
    "chat_template_sha256": "chat template",
    "tokenizer_sha256": "tokenizer that the chat template is applied with",
}


def claim_store(plan: Plan, store: Store) -> None:
    """Write plan.json, or check that the stored one measures the same, or less. This also tests access to the store.

    Raises BadInput, NotDurable.
    """
    try:
        store.put(PLAN, plan.to_json().encode())
    except NotDurable as refused:
        if refused.reason != StoreErrorReason.CONFLICT:
            raise
        stored = _stored_plan(store)
        if extends(plan, stored):
            store.replace(PLAN, plan.to_json().encode())
        elif names := differing_fields(stored, plan):
            remedy = "give another folder or prefix, or give the run another name"
            what = f"{store.uri()} contains the results of another plan: {', '.join(names)} differ"
            raise BadInput(f"{what}: {remedy}", "OtherPlan") from refused


def _stored_plan(store: Store) -> Plan:
    data = store.get(PLAN)
    try:
        return Plan.from_json(data or b"")
    except ValidationError as error:
        remedy = "it was written by another version of specbench, or damaged; give another folder or prefix"
        raise BadInput(f"{store.uri(PLAN)} cannot be read as a plan: {remedy}: {error}", "OtherPlan") from error


def reject_changed_inputs(
    plan: Plan, manifests: Mapping[str, Manifest], now: Mapping[str, PointProvenance], arm: str | None = None
) -> None:
    """Compare the observed values, by workload, with those in the manifests. Raises BadInput(ObservedChanged).

    `arm`: whose engine was observed. Endpoints are compared with themselves only, because they may differ in anything.
    """
    points = {point.hash: point for point in plan.points}
    for point, manifest in manifests.items():
        workload = points[point].workload
        then, seen = manifest.observed, now.get(workload)
        if seen is None:
            continue
        other = plan.engine.is_external and points[point].arm != arm
        differences = _differences(then, seen, workload, _OF_THE_ENGINE if other else ())
        if differences:
            what, remedy = "; ".join(differences), "these results cannot be continued"
            how = (
                "on this machine add --new; on a cluster give it another name, or create it anew without results.adopt"
            )
            raise BadInput(f"since the point {point[:12]} was measured, {what}: {remedy}: {how}", "ObservedChanged")


def reject_changed_prompts(plan: Plan, manifests: Mapping[str, Manifest], workload: str, prompts: Prompts) -> None:
    """Like `reject_changed_inputs`, for a workload's prompts only, without an engine."""
    now = PointProvenance(
        dataset_fingerprint=prompts.fingerprint, prompts=len(prompts.rows), client_version="", launch=""
    )
    reject_changed_inputs(plan, manifests, {workload: now})


def _differences(then: PointProvenance, now: PointProvenance, workload: str, left_out: Container[str]) -> Sequence[str]:
    found = []
    if then.dataset_fingerprint != now.dataset_fingerprint:
        before = f"{then.dataset_fingerprint[:12]} ({then.prompts} prompts)"
        after = f"{now.dataset_fingerprint[:12]} ({now.prompts} prompts)"
        found.append(f"the prompts of the workload {workload!r} changed from {before} to {after}")
    for field, name in _OBSERVED_FIELDS.items():
        before, after = getattr(then, field), getattr(now, field)
        if field not in left_out and None not in (before, after) and before != after:
            found.append(f"the {name} changed from {before!r} to {after!r}")
    return found
