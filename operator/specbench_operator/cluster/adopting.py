"""`adopt: Latest`: which earlier results a run carries on, found once and kept to.

Found in S3, and from then on told by the run's own plan and by its status: what comes to lie in S3 later changes
nothing. Whoever decides is given the run with that very UID, as if it had been written there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from specbench_api.outcome.layout import PLAN
from specbench_api.plan.plan import Plan
from specbench_api.plan.same import same_points
from specbench_api.spec.results import LATEST
from specbench_operator.cluster.bucket import Bucket


def means_latest(resource: Mapping[str, Any]) -> bool:
    """Whether the newest results are asked for."""
    return bool((resource.get("spec", {}).get("results") or {}).get("adopt") == LATEST)


def kept_uid(resource: Mapping[str, Any], plan_json: str | None) -> str | None:
    """The UID that was found before: by the plan of the run's own ConfigMap, else by status; None where none was."""
    try:
        by_plan = json.loads(plan_json or "{}").get("uid")
    except (ValueError, AttributeError):
        by_plan = None
    uri = ((resource.get("status") or {}).get("results") or {}).get("uri", "")
    found = by_plan or uri.rpartition("/")[2]
    return str(found) if found else None


def carrying_on(resource: Mapping[str, Any], uid: str) -> Mapping[str, Any]:
    """The run with that UID in the place of Latest; without any where it is the run's own."""
    spec = resource["spec"]
    results = {name: value for name, value in spec["results"].items() if name != "adopt"}
    adopted = {} if uid == resource["metadata"]["uid"] else {"adopt": uid}
    return {**resource, "spec": {**spec, "results": {**results, **adopted}}}


def newest_alike(bucket: Bucket, root: str, plan: Plan) -> str | None:
    """UID of the newest results below a run's name that measure the plan's very points. Raises StoreError."""
    stored = {
        prefix: at
        for prefix in bucket.listing(f"{root}/").prefixes
        if (at := bucket.listing(prefix).modified.get(f"{prefix}{PLAN}"))
    }
    for prefix in sorted(stored, key=lambda prefix: (stored[prefix], prefix), reverse=True):
        if _is_alike(bucket.get(f"{prefix}{PLAN}"), plan):
            return prefix.rstrip("/").rpartition("/")[2]
    return None


def _is_alike(data: bytes | None, plan: Plan) -> bool:
    try:
        there = Plan.from_json(data or b"")
    except ValidationError:
        return False  # another version's: it could not be carried on
    return same_points(there, plan)
