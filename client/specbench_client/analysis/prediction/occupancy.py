"""The batch's share in each cell's speed-up, once the step costs of the run are known."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.stepcost import Basis, StepCost, StepObservation
from specbench_api.outcome.summary import Cell
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.prediction.explain import with_occupancy
from specbench_client.analysis.stepcost.fit import refitted


def explained(cells: Sequence[Cell], costs: Sequence[StepCost]) -> list[Cell]:
    """Return the cells, with the batch told apart from the step cost where a profile that fits tells it."""
    return [_explained(cell, _profile_of(cell, costs)) for cell in cells]


def _explained(cell: Cell, cost: StepCost | None) -> Cell:
    if cell.prediction is None or cost is None or cost.basis is not Basis.FIT:
        return cell
    sides = (_seen(cost, arm, cell) for arm in (cell.arm, BASELINE_NAME))
    return cell.model_copy(update={"prediction": with_occupancy(cell.prediction, refitted(cost), *sides)})


def _profile_of(cell: Cell, costs: Sequence[StepCost]) -> StepCost | None:
    return next((cost for cost in costs if cell.arm in cost.arms and cell.arm != BASELINE_NAME), None)


def _seen(cost: StepCost, arm: str, cell: Cell) -> StepObservation | None:
    wanted = (arm, cell.workload, cell.level.label)
    return next((each for each in cost.observations if (each.arm, each.workload, each.load) == wanted), None)
