"""The runs of a round, expanded from the campaign's spec as `specbench plan` does it.

The result is cached, because a large matrix takes a third of a second to expand and every event of a run reconciles its
campaign. A refusal is cached too, because an invalid matrix may take longer. Both are pure functions of the campaign's
text and of this program, so the caches are safe to lose.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specbench_api import API_VERSION
from specbench_api.campaign.expansion import PlannedRun, campaign_refusals, expand_campaign, size_of_spec
from specbench_api.campaign.matrix import cell_text, short_cell_text
from specbench_api.campaign.names import run_name
from specbench_api.errors import InvalidSpec, NotAllowed, Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.plan.estimate import cost_of_run, total
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_campaign, parse_run
from specbench_api.spec.run import RunSpec
from specbench_operator.state.campaign import ANNOTATION_FIRE_TIME, ANNOTATION_RERUN, ObservedRun

PLANS_CACHED = 64
"""Maximum number of cached plans; there is one per campaign, generation and round."""
VALUES_CACHED = 600_000
"""Maximum number of values in the specs of the runs of all cached plans. They take about 100 MB."""
TEXT_CACHED = 60_000_000
"""Maximum number of characters in these specs."""
REFUSALS_CACHED = 4096
"""Maximum number of cached refusals. There are more than plans, because many invalid campaigns cost their author
nothing. They are kept apart, so that they do not evict the plans of others."""


@dataclass(frozen=True)
class RequiredRun:
    """One run of the round: its name, its cell as text, and its resource without the owner."""

    name: str
    cell: str
    short_cell: str
    resource: Mapping[str, Any]
    spec: RunSpec


@dataclass(frozen=True)
class RoundPlan:
    """All runs of a round in the order of the matrix. `gpu_hours`: their estimated cost."""

    campaign: SpecBenchCampaign
    runs: tuple[RequiredRun, ...]
    warnings: tuple[str, ...]
    gpu_hours: float

    @property
    def names(self) -> frozenset[str]:
        """The names of the runs."""
        return frozenset(run.name for run in self.runs)


def plan_round(resource: Mapping[str, Any], number: int, fence: FenceCheck | None = None) -> RoundPlan:
    """Expand a campaign for the round with this number.

    Raises InvalidSpec with all problems of all combinations, and NotAllowed with everything that the fence does not
    allow.
    """
    meta = resource["metadata"]
    identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    data = {"apiVersion": API_VERSION, "kind": "SpecBenchCampaign", "metadata": identity, "spec": resource["spec"]}
    text = json.dumps(data)
    digest = hashlib.sha256(f"{number} {text}".encode()).digest()
    refused = _refusal(digest)
    if refused.problems:
        raise InvalidSpec(refused.problems)
    try:
        plan = _PLANS.get(digest, lambda: _plan_round(text, number))
    except InvalidSpec as error:
        refused.problems = error.problems
        raise
    if fence is not None and (refusals := _refusals(digest, plan, fence)):
        raise NotAllowed(refusals)
    return plan


@dataclass
class _Refusal:
    """The problems of a campaign that cannot be expanded; empty if it can, or if it was not tried yet."""

    problems: tuple[Problem, ...] = ()


@lru_cache(maxsize=REFUSALS_CACHED)
def _refusal(_digest: bytes) -> _Refusal:
    return _Refusal()


class _PlanCache:
    """The plans used last, as far as the limits allow. One is made at a time, because a large one takes 100 MB."""

    def __init__(self) -> None:
        self._plans: OrderedDict[bytes, tuple[RoundPlan, int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: bytes, make: Callable[[], RoundPlan]) -> RoundPlan:
        """The cached plan, or the one that `make` returns. Raises what it raises."""
        with self._lock:
            if digest not in self._plans:
                plan = make()
                sizes = [size_of_spec(run.resource["spec"]) for run in plan.runs]
                self._plans[digest] = (plan, sum(size[0] for size in sizes), sum(size[1] for size in sizes))
            self._plans.move_to_end(digest)
            while len(self._plans) > 1 and self._is_full():
                self._plans.popitem(last=False)
            return self._plans[digest][0]

    def _is_full(self) -> bool:
        rows = self._plans.values()
        values, text = sum(row[1] for row in rows), sum(row[2] for row in rows)
        return len(rows) > PLANS_CACHED or values > VALUES_CACHED or text > TEXT_CACHED


_PLANS = _PlanCache()


def _plan_round(text: str, number: int) -> RoundPlan:
    campaign = parse_campaign(json.loads(text))
    plan = expand_campaign(campaign, number)
    cost = total(cost_of_run(run.plan, campaign.spec.budget) for run in plan.runs)
    return RoundPlan(campaign, tuple(_required_run(run) for run in plan.runs), plan.warnings, round(cost.gpu_hours, 2))


def _required_run(run: PlannedRun) -> RequiredRun:
    return RequiredRun(run.name, cell_text(run.cell), short_cell_text(run.cell), run.resource, run.run.spec)


def _refusals(digest: bytes, plan: RoundPlan, fence: FenceCheck) -> tuple[Problem, ...]:
    """What the fence does not allow in a plan; cached like the plans."""
    with _REFUSED_LOCK:
        found = _REFUSED.get((digest, fence))
    if found is None:
        found = tuple(campaign_refusals(plan.campaign, [(run.cell, run.spec) for run in plan.runs], fence))
        with _REFUSED_LOCK:
            _REFUSED[digest, fence] = found
            while len(_REFUSED) > PLANS_CACHED:
                _REFUSED.popitem(last=False)
    return found


_REFUSED: OrderedDict[tuple[bytes, FenceCheck], tuple[Problem, ...]] = OrderedDict()
_REFUSED_LOCK = threading.Lock()


def run_manifest(plan: RoundPlan, planned: RequiredRun, token: str, fire_time: str | None) -> dict[str, Any]:
    """The SpecBenchRun to create: owned by the campaign, and annotated with what started its round."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": plan.campaign.kind,
        "name": plan.campaign.metadata.name,
        "uid": plan.campaign.metadata.uid,
        "controller": True,
    }
    meta = planned.resource["metadata"]
    cause = {ANNOTATION_RERUN: token} | ({ANNOTATION_FIRE_TIME: fire_time} if fire_time else {})
    annotations = {**meta["annotations"], **cause}
    return {**planned.resource, "metadata": {**meta, "annotations": annotations, "ownerReferences": [owner]}}


def adoptable_orphans(plan: RoundPlan, number: int, orphans: Sequence[ObservedRun]) -> tuple[ObservedRun, ...]:
    """The orphans that the campaign becomes the owner of, as a ReplicaSet adopts a matching pod without an owner.

    `specbench recover` makes such a run from the results of a lost one. The name of a campaign's run contains a hash of
    what it measures, so the orphan must adopt results and measure exactly what is hashed in its name.
    """
    return tuple(
        run
        for run in orphans
        if run.name in plan.names and not run.deleting and _adopts_and_matches_name(plan, number, run)
    )


def _adopts_and_matches_name(plan: RoundPlan, number: int, run: ObservedRun) -> bool:
    if not (run.spec.get("results") or {}).get("adopt"):
        return False
    meta = plan.campaign.metadata
    identity = {"name": run.name, "namespace": meta.namespace}
    try:
        parsed = parse_run({"apiVersion": API_VERSION, "kind": "SpecBenchRun", "metadata": identity, "spec": run.spec})
    except InvalidSpec:
        return False
    return run_name(meta.name, parsed.spec, number) == run.name
