"""A line a request in the answer of a run: read once more from the records of each arm's lightest load."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.outcome.manifest import Manifest
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan, Point
from specbench_client.analysis.slices.accepted import COLUMNS, accepted_map
from specbench_client.store.point import PointStore


def with_maps(plan: Plan, summary: RunSummary, points: PointStore, manifests: Mapping[str, Manifest]) -> RunSummary:
    """The summary, with a map in each cell at its workload's lightest load whose steps can be placed.

    Of the first repeat that was measured. Blocks. Raises NotDurable.
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
        _mapped(cell, by_hash, points, manifests) if cell.level == lightest.get(cell.workload) else cell
        for cell in summary.cells
    ]
    return summary.model_copy(update={"cells": cells})


def _mapped(cell: Cell, plan: Mapping[str, Point], points: PointStore, manifests: Mapping[str, Manifest]) -> Cell:
    if cell.slices is None or not cell.slices.by_position:
        return cell
    first = min((plan[name] for name in cell.points if name in manifests), key=lambda point: point.repeat)
    found = accepted_map(points.read_frames(manifests[first.hash], COLUMNS), first.repeat)
    return cell.model_copy(update={"slices": cell.slices.model_copy(update={"accepted_map": found})})
