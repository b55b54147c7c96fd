"""The runs of a round, expanded from the campaign's spec as `specbench plan` does it.

The result is cached, because a large matrix takes a second to expand and every event of a run reconciles its campaign.
The resources of the runs are kept compressed: they are needed once, when their run is created. A refusal is cached too,
because an invalid matrix may take longer. All are pure functions of the campaign's text, the fence and this program, so
the caches are safe to lose.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specbench_api import API_VERSION
from specbench_api.campaign.expansion import PlannedRun, campaign_refusals, expand_campaign
from specbench_api.campaign.matrix import short_combination_text
from specbench_api.campaign.names import ANNOTATION_COMBINATION
from specbench_api.errors import InvalidSpec, NotAllowed, Problem
from specbench_api.fence.check import FenceCheck
from specbench_api.plan.canonical import NOT_MEASURED
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.parsing import parse_campaign
from specbench_operator.state.campaign import ANNOTATION_FIRE_TIME, ANNOTATION_RERUN

PROPAGATED = tuple(field for field in NOT_MEASURED if field not in ("suspend", "results", "placement"))
"""Fields of the template that are applied to existing runs. Placement and the location of results never change."""
PLANS_CACHED = 4096
"""Maximum number of cached plans; there is one per campaign, generation and round."""
BYTES_CACHED = 64 << 20
"""Maximum size of all cached plans in bytes, about. A plan of 256 runs takes 0.4 MB."""
RUN_BYTES = 1000
"""Size of a planned run beside its compressed resource, about."""
REFUSALS_CACHED = 4096
"""Maximum number of cached refusals. There are more than plans, because many invalid campaigns cost their author
nothing. They are kept apart, so that they do not evict the plans of others."""


@dataclass(frozen=True)
class RequiredRun:
    """One run of the round: its name, its combination as text, and its resource without the owner."""

    name: str
    combination: str
    """The value of the combination's annotation."""
    short_combination: str
    points: int
    """Number of its points."""
    gpus: int
    """Number of GPUs of one launch of its engine."""
    propagated: Mapping[str, Any]
    """The fields of its spec that are applied to an existing run."""
    packed: bytes

    @property
    def resource(self) -> dict[str, Any]:
        """The resource to create, without its owner."""
        found: dict[str, Any] = json.loads(zlib.decompress(self.packed))
        return found


@dataclass(frozen=True)
class RoundPlan:
    """All runs of a round in the order of the matrix."""

    campaign: SpecBenchCampaign
    runs: tuple[RequiredRun, ...]
    warnings: tuple[str, ...]
    refusals: tuple[Problem, ...] = ()
    """What the fence does not allow."""

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
        plan = _PLANS.get((digest, fence), lambda: _plan_round(text, number, fence))
    except InvalidSpec as error:
        refused.problems = error.problems
        raise
    if plan.refusals:
        raise NotAllowed(plan.refusals)
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
        self._plans: OrderedDict[tuple[bytes, FenceCheck | None], tuple[RoundPlan, int]] = OrderedDict()
        self._bytes = 0
        self._making, self._lock = threading.Lock(), threading.Lock()

    def get(self, key: tuple[bytes, FenceCheck | None], make: Callable[[], RoundPlan]) -> RoundPlan:
        """The cached plan, or the one that `make` returns. Raises what it raises."""
        found = self._known(key)
        if found is None:
            with self._making:  # plans that are known are returned meanwhile
                found = self._known(key)
                if found is None:
                    found = make()
                    self._keep(key, found)
        return found

    def _known(self, key: tuple[bytes, FenceCheck | None]) -> RoundPlan | None:
        with self._lock:
            if key not in self._plans:
                return None
            self._plans.move_to_end(key)
            return self._plans[key][0]

    def _keep(self, key: tuple[bytes, FenceCheck | None], plan: RoundPlan) -> None:
        size = sum(RUN_BYTES + len(run.packed) for run in plan.runs)
        with self._lock:
            self._plans[key] = (plan, size)
            self._bytes += size
            while len(self._plans) > 1 and (len(self._plans) > PLANS_CACHED or self._bytes > BYTES_CACHED):
                _, (_, dropped) = self._plans.popitem(last=False)
                self._bytes -= dropped


_PLANS = _PlanCache()


def _plan_round(text: str, number: int, fence: FenceCheck | None) -> RoundPlan:
    campaign = parse_campaign(json.loads(text))
    plan = expand_campaign(campaign, number)
    combinations = [(run.combination_text, run.run.spec) for run in plan.runs]
    refusals = campaign_refusals(campaign, combinations, fence) if fence is not None else []
    shared: dict[str, Mapping[str, Any]] = {}
    runs = tuple(_required_run(run, shared) for run in plan.runs)
    return RoundPlan(campaign, runs, plan.warnings, tuple(refusals))


def _required_run(run: PlannedRun, shared: dict[str, Mapping[str, Any]]) -> RequiredRun:
    """The planned run; those with equal propagated fields share them."""
    spec = run.resource["spec"]
    propagated = {field: spec[field] for field in PROPAGATED if field in spec}
    return RequiredRun(
        name=run.name,
        combination=str(run.resource["metadata"]["annotations"][ANNOTATION_COMBINATION]),
        short_combination=short_combination_text(run.combination),
        points=len(run.plan.points),
        gpus=run.plan.placement.engine_devices,
        propagated=shared.setdefault(json.dumps(propagated, sort_keys=True), propagated),
        packed=zlib.compress(json.dumps(run.resource).encode(), 1),
    )


def run_manifest(plan: RoundPlan, planned: RequiredRun, token: str, fire_time: str | None) -> dict[str, Any]:
    """The SpecBenchRun to create: owned by the campaign, and annotated with what started its round."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": plan.campaign.kind,
        "name": plan.campaign.metadata.name,
        "uid": plan.campaign.metadata.uid,
        "controller": True,
    }
    resource = planned.resource
    meta = resource["metadata"]
    cause = {ANNOTATION_RERUN: token} | ({ANNOTATION_FIRE_TIME: fire_time} if fire_time else {})
    annotations = {**meta["annotations"], **cause}
    return {**resource, "metadata": {**meta, "annotations": annotations, "ownerReferences": [owner]}}
