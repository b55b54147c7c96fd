"""The runs of a benchmark: how many are in which state, and their objects. Pure.

All runs are in campaigns of 256 (the last one is smaller), because most runs of a large cluster are. Half of them have
finished, 2 % are active, and the others wait: they are suspended by their user. Waiting runs are the expensive ones, as
they are not at rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from random import Random
from typing import Any

from specbench_api import API_VERSION
from specbench_api.campaign.expansion import expand_campaign
from specbench_api.campaign.names import LABEL_CAMPAIGN_UID
from specbench_api.spec.campaign_limits import RUNS_MAX
from specbench_api.spec.parsing import parse_campaign
from specbench_testing.resources import Resource, resource

ACTIVE_SHARE, FINISHED_SHARE = 0.02, 0.5
_PLACEHOLDER = "campaign-name"
_SEEDS = 64
"""Values of one axis; RUNS_MAX is a multiple of it."""
_LOAD = {"concurrency": [1, 2, 4, 8, 16], "repeats": 3, "warmupRequests": 1, "order": "Sequential"}
"""15 points of each arm, so that an active run stays active for a quarter of an hour at a point a minute."""


class RunState(StrEnum):
    """The state that a run has when the measurement begins."""

    WAITING = "waiting"
    ACTIVE = "active"
    FINISHED = "finished"


@dataclass(frozen=True)
class Mix:
    """The number of runs in each state."""

    waiting: int
    active: int
    finished: int

    @classmethod
    def of(cls, runs: int) -> Mix:
        """The mix of this many runs: 50 % finished, 2 % active, and the others waiting."""
        active, finished = round(runs * ACTIVE_SHARE), round(runs * FINISHED_SHARE)
        return cls(runs - active - finished, active, finished)

    def states(self) -> list[RunState]:
        """The state of each run, mixed, in the same order every time."""
        counts = {RunState.WAITING: self.waiting, RunState.ACTIVE: self.active, RunState.FINISHED: self.finished}
        states = [state for state, count in counts.items() for _ in range(count)]
        Random(len(states)).shuffle(states)  # noqa: S311 -- not a secret
        return states


@dataclass(frozen=True)
class RunTemplates:
    """What the runs have in common: their spec, and statuses that the operator wrote for real runs."""

    spec: Mapping[str, Any]
    waiting: Resource
    """A suspended run with its status."""
    finished: Resource
    """A run that has succeeded, with its status."""


def run_spec(placement: Mapping[str, Any], s3: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a run: a baseline and one drafter at five loads, on one GPU, with results in S3."""
    edits = {
        "spec.load": _LOAD,
        "spec.workloads[0].output": {"maxTokens": 16},
        "spec.placement": dict(placement),
        "spec.results.s3": dict(s3),
    }
    return dict(resource(edits)["spec"])


def campaigns(runs: int, spec: Mapping[str, Any]) -> list[Resource]:
    """The campaigns that this many runs belong to, with matrices of seeds and numbers of draft tokens."""
    return [_campaign(number, min(RUNS_MAX, runs - first), spec) for number, first in _firsts(runs)]


def _firsts(runs: int) -> Iterator[tuple[int, int]]:
    yield from enumerate(range(0, runs, RUNS_MAX))


def _campaign(number: int, size: int, spec: Mapping[str, Any]) -> Resource:
    drafts, rest = divmod(size, _SEEDS)
    axes = []
    if drafts:
        axes = [
            {"name": "seed", "path": "workloads[0].sampling.seed", "values": list(range(1, _SEEDS + 1))},
            {"name": "drafts", "path": "drafters[0].numSpeculativeTokens", "values": list(range(1, drafts + 1))},
        ]
    else:
        axes = [{"name": "seed", "path": "workloads[0].sampling.seed", "values": list(range(1, rest + 1))}]
        rest = 0
    include = [{"seed": 1000 + row, "drafts": 1} for row in range(rest)]
    return {
        "apiVersion": API_VERSION,
        "kind": "SpecBenchCampaign",
        "metadata": {"name": f"bench-{number:03d}"},
        "spec": {"template": {"spec": dict(spec)}, "axes": axes, "include": include, "parallelism": 64},
    }


def runs_of(campaign: Resource) -> list[Resource]:
    """The runs of a created campaign, as the operator would create them."""
    meta = campaign["metadata"]
    owner = {
        "apiVersion": API_VERSION,
        "kind": campaign["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    planned = json.loads(_planned(json.dumps(campaign["spec"])).replace(_PLACEHOLDER, meta["name"]))
    for run in planned:
        run["metadata"]["namespace"] = meta["namespace"]
        run["metadata"]["labels"][LABEL_CAMPAIGN_UID] = meta["uid"]
        run["metadata"]["ownerReferences"] = [owner]
    return list(planned)


@cache
def _planned(spec: str) -> str:
    """The runs of a campaign with this spec, as JSON. Expanding each of forty equal campaigns would take a minute."""
    meta = {"name": _PLACEHOLDER, "namespace": "default"}
    campaign = {"apiVersion": API_VERSION, "kind": "SpecBenchCampaign", "metadata": meta, "spec": json.loads(spec)}
    return json.dumps([row.resource for row in expand_campaign(parse_campaign(campaign)).runs])


def status_of(template: Resource, run: Resource) -> dict[str, Any]:
    """The status of a template, with name and UID of another run."""
    text = json.dumps(template["status"])
    for field in ("uid", "name"):
        text = text.replace(template["metadata"][field], run["metadata"][field])
    return dict(json.loads(text))
