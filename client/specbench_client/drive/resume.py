"""What must hold before anything is measured into a root: it is this plan's, and the world is still the same.

Planning is pure, so a hash knows only what was declared. What could only be observed (the prompts' content, the
engine's version) stands in the manifests; a resume that meets something else would compare two different things under
one name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN
from specbench_api.outcome.manifest import Manifest, Observed
from specbench_api.plan.plan import Plan
from specbench_api.plan.same import differing
from specbench_client.errors import BadInput, NotDurable
from specbench_client.store.store import Refusal, Store
from specbench_client.workload.prompts import Prompts

_SEEN = {
    "engine_version": "engine's version",
    "engine_model": "model that the engine serves",
    "image_digest": "engine's image",
    "trace_fingerprint": "trace of arrivals",
    "chat_template_sha256": "chat template",
    "tokenizer_sha256": "tokenizer that the chat template is applied with",
}


def claim(plan: Plan, store: Store) -> None:
    """Write plan.json, or find there one that measures the same. It is the probe of the store too.

    Raises BadInput, NotDurable.
    """
    try:
        store.put(PLAN, plan.to_json().encode())
    except NotDurable as refused:
        if refused.reason != Refusal.CONFLICT:
            raise
        if names := differing(_plan_in(store), plan):
            remedy = "give another folder or prefix, or a run with a name of its own"
            what = f"{store.uri()} holds the results of another plan: {', '.join(names)} differ"
            raise BadInput(f"{what}: {remedy}", "OtherPlan") from refused


def _plan_in(store: Store) -> Plan:
    data = store.get(PLAN)
    try:
        return Plan.from_json(data or b"")
    except ValidationError as error:
        remedy = "it was written by another version of specbench, or damaged; give another folder or prefix"
        raise BadInput(f"{store.uri(PLAN)} cannot be read as a plan: {remedy}: {error}", "OtherPlan") from error


def refuse_changed(plan: Plan, manifests: Mapping[str, Manifest], now: Mapping[str, Observed]) -> None:
    """Compare what is seen now, by workload, with what the run's manifests saw. Raises BadInput(ObservedChanged)."""
    workloads = {point.hash: point.workload for point in plan.points}
    for point, manifest in manifests.items():
        then, seen = manifest.observed, now.get(workloads[point])
        if seen is None:
            continue
        differences = _differences(then, seen, workloads[point])
        if differences:
            what, remedy = "; ".join(differences), "these results cannot be continued"
            how = (
                "on this machine add --new; on a cluster give it another name, or create it anew without results.adopt"
            )
            raise BadInput(f"since the point {point[:12]} was measured, {what}: {remedy}: {how}", "ObservedChanged")


def refuse_other_prompts(plan: Plan, manifests: Mapping[str, Manifest], workload: str, prompts: Prompts) -> None:
    """The same of a workload's prompts alone, without an engine."""
    now = Observed(dataset_fingerprint=prompts.fingerprint, prompts=len(prompts.rows), client_version="", launch="")
    refuse_changed(plan, manifests, {workload: now})


def _differences(then: Observed, now: Observed, workload: str) -> Sequence[str]:
    found = []
    if then.dataset_fingerprint != now.dataset_fingerprint:
        before = f"{then.dataset_fingerprint[:12]} ({then.prompts} prompts)"
        after = f"{now.dataset_fingerprint[:12]} ({now.prompts} prompts)"
        found.append(f"the prompts of the workload {workload!r} changed from {before} to {after}")
    for field, name in _SEEN.items():
        before, after = getattr(then, field), getattr(now, field)
        if None not in (before, after) and before != after:
            found.append(f"the {name} changed from {before!r} to {after!r}")
    return found
