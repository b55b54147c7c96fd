"""Adds acceptance maps (one line per request) to a run's summary, from the records of each arm's lowest load."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.outcome.manifest import Manifest
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan, Point
from specbench_client.analysis.breakdown.acceptance_map import COLUMNS, build_acceptance_map
from specbench_client.store.points import PointStore


def with_acceptance_maps(
    plan: Plan, summary: RunSummary, points: PointStore, manifests: Mapping[str, Manifest]
) -> RunSummary:
    """Return the summary with a map in each cell at its workload's lowest load, if the positions of steps are known.

    The map is of the first repeat that was measured. Blocks. Raises NotDurable.
    """
    lightest = {
        workload.name: min(
            (cell.level for cell in summary.cells if cell.workload == workload.name),
            default=None,
            key=lambda level: level.order,
        )
        for workload in plan.workloads
    }
    by_hash = {point.hash: point for point in plan.points}
    cells = [
        _with_acceptance_map(cell, by_hash, points, manifests) if cell.level == lightest.get(cell.workload) else cell
        for cell in summary.cells
    ]
    return summary.model_copy(update={"cells": cells})


def _with_acceptance_map(
    cell: Cell, plan: Mapping[str, Point], points: PointStore, manifests: Mapping[str, Manifest]
) -> Cell:
    if not cell.breakdown.by_position:
        return cell
    first = min((plan[name] for name in cell.points if name in manifests), key=lambda point: point.repeat)
    found = build_acceptance_map(points.read_frames(manifests[first.hash], COLUMNS), first.repeat)
    return cell.model_copy(update={"breakdown": cell.breakdown.model_copy(update={"accepted_map": found})})
