"""The runs that a round wants, made from the campaign by the expansion that `specbench plan` prints.

Kept from one look to the next, because a large matrix takes a third of a second to expand and every word of a run wakes
its campaign. What is kept is a function of the text of the campaign, so it is a saving and no memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specbench_api import API_VERSION
from specbench_api.campaign.cell import cell_text, short_cell_text
from specbench_api.campaign.estimate import cost_of_run, total
from specbench_api.campaign.expand import PlannedRun, expand_campaign
from specbench_api.spec.campaign import SpecBenchCampaign
from specbench_api.spec.reading import parse_campaign
from specbench_operator.state.campaign import ANNOTATION_FIRE_TIME, ANNOTATION_RERUN

KEPT = 64
"""Campaigns, at one generation and round each."""


@dataclass(frozen=True)
class Wanted:
    """One run of the round: what it is called, what it measures for people, and the resource but for its owner."""

    name: str
    cell: str
    short_cell: str
    resource: Mapping[str, Any]


@dataclass(frozen=True)
class RoundPlan:
    """All runs of a round in the order of the matrix. `gpu_hours`: what they are estimated to take."""

    campaign: SpecBenchCampaign
    runs: tuple[Wanted, ...]
    warnings: tuple[str, ...]
    gpu_hours: float

    @property
    def names(self) -> frozenset[str]:
        """Of its runs."""
        return frozenset(run.name for run in self.runs)


def plan_round(resource: Mapping[str, Any], number: int) -> RoundPlan:
    """Expand. Raises InvalidSpec with every problem of every combination."""
    meta = resource["metadata"]
    named = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    data = {"apiVersion": API_VERSION, "kind": "SpecBenchCampaign", "metadata": named, "spec": resource["spec"]}
    return _plan_round(json.dumps(data), number)


@lru_cache(maxsize=KEPT)
def _plan_round(text: str, number: int) -> RoundPlan:
    campaign = parse_campaign(json.loads(text))
    plan = expand_campaign(campaign, number)
    cost = total(cost_of_run(run.plan, campaign.spec.budget) for run in plan.runs)
    return RoundPlan(campaign, tuple(_wanted(run) for run in plan.runs), plan.warnings, round(cost.gpu_hours, 2))


def _wanted(run: PlannedRun) -> Wanted:
    return Wanted(run.name, cell_text(run.cell), short_cell_text(run.cell), run.resource)


def manifest(plan: RoundPlan, wanted: Wanted, token: str, fire_time: str | None) -> dict[str, Any]:
    """The SpecBenchRun as it is created: owned by the campaign, with what began its round."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": plan.campaign.kind,
        "name": plan.campaign.metadata.name,
        "uid": plan.campaign.metadata.uid,
        "controller": True,
    }
    meta = wanted.resource["metadata"]
    cause = {ANNOTATION_RERUN: token} | ({ANNOTATION_FIRE_TIME: fire_time} if fire_time else {})
    annotations = {**meta["annotations"], **cause}
    return {**wanted.resource, "metadata": {**meta, "annotations": annotations, "ownerReferences": [owner]}}
