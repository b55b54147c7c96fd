"""Runs that were applied by hand to carry on results of this campaign's own, and that it takes over.

As a ReplicaSet takes over a pod that nobody owns. `specbench import` makes such a run of the results of one that was
lost; it has the name of the lost one, and that name says what it measures.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api import API_VERSION
from specbench_api.campaign.names import run_name
from specbench_api.errors import InvalidSpec
from specbench_api.spec.reading import parse_run
from specbench_operator.campaign.planned import RoundPlan
from specbench_operator.state.campaign import RunSeen


def taken_over(plan: RoundPlan, number: int, orphans: Sequence[RunSeen]) -> tuple[RunSeen, ...]:
    """Those of the round that carry on results and measure what their name says, and nothing else."""
    return tuple(run for run in orphans if run.name in plan.names and not run.deleting and _is_it(plan, number, run))


def _is_it(plan: RoundPlan, number: int, run: RunSeen) -> bool:
    if not (run.spec.get("results") or {}).get("adopt"):
        return False
    meta = plan.campaign.metadata
    named = {"name": run.name, "namespace": meta.namespace}
    try:
        read = parse_run({"apiVersion": API_VERSION, "kind": "SpecBenchRun", "metadata": named, "spec": run.spec})
    except InvalidSpec:
        return False
    return run_name(meta.name, read.spec, number) == run.name
