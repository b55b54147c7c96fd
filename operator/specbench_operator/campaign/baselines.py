"""Runs of earlier rounds with which the runs of this round are compared, and which are therefore not deleted."""

from __future__ import annotations

from specbench_api.campaign.names import ANNOTATION_CELL
from specbench_operator.campaign.planned import Wanted
from specbench_operator.campaign.scene import Scene
from specbench_operator.state.campaign import RunSeen


def baselines(scene: Scene) -> frozenset[str]:
    """Names of them: of each cell whose gate means this very campaign, the newest earlier run that has results.

    As `reconcile.baseline` finds it. So there is one run a cell beyond the history's limit, at most.
    """
    wanted = {_cell(run) for run in scene.plan.runs if _means(run, scene.plan.campaign.metadata.name)}
    found: dict[str, RunSeen] = {}
    for run in sorted(scene.unwanted, key=lambda run: (run.created_at, run.name)):
        if run.cell in wanted and run.succeeded:
            found[run.cell] = run
    return frozenset(run.name for run in found.values())


def _cell(wanted: Wanted) -> str:
    return str(wanted.resource["metadata"]["annotations"][ANNOTATION_CELL])


def _means(wanted: Wanted, campaign: str) -> bool:
    gate = wanted.resource["spec"].get("gate") or {}
    return bool(gate.get("baselineRef", {}).get("campaign") == campaign)
