"""Where a local run keeps its results, and how it finds them again.

A run of this machine has the namespace `local` and a UID that is made once: the same spec meets its own earlier results
under the same root and goes on with them; a spec that was changed gets a UID of its own, beside the old one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from specbench_api.outcome.layout import PLAN, measured_among, run_root
from specbench_api.plan.plan import Plan
from specbench_client.store.locate import open_store
from specbench_client.store.store import Store


@dataclass(frozen=True)
class Place:
    """A plan with its UID, the store of its run, and the points that are measured there already."""

    plan: Plan
    store: Store
    measured: set[str]


def open_results(location: str) -> Store:
    """The results' root: a folder or s3://bucket/prefix. Raises BadInput."""
    return open_store(location)


def find_run(results: Store, plan: Plan) -> Place:
    """The place of this plan's run: where the very same plan ran before, or a new one. Nothing is written."""
    family = run_root(plan.namespace, plan.name, "")
    uids = sorted({key.removeprefix(family).split("/")[0] for key in results.keys(family)})
    for uid in uids:
        candidate = plan.model_copy(update={"uid": uid})
        store = results.below(run_root(plan.namespace, plan.name, uid))
        if store.get(PLAN) == candidate.to_json().encode():
            wanted = (point.hash for point in plan.points)
            return Place(candidate, store, measured_among(store.keys("points/"), wanted))
    fresh = plan.model_copy(update={"uid": str(uuid.uuid4())})
    return Place(fresh, results.below(run_root(plan.namespace, plan.name, fresh.uid)), set())
