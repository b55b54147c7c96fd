"""The prediction for a mix of traffic for every arm and load of a stored result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specbench_api.outcome.prediction import MixPrediction
from specbench_api.outcome.summary import Cell
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.compare.result import Result
from specbench_client.analysis.estimates.rows import rows_of
from specbench_client.analysis.estimates.speedup import missing as no_speedup
from specbench_client.analysis.prediction.mix import Mixed, mixed, of_requests, shares
from specbench_client.errors import BadInput
from specbench_client.metrics.pairing import BASELINE, Pairs, pair


@dataclass(frozen=True)
class Mix:
    """Shares by category, of requests or of output tokens, in any unit."""

    given: Mapping[str, float]
    by_tokens: bool = False


def predictions(result: Result, cells: Sequence[Cell], mix: Mix) -> list[MixPrediction]:
    """Predict for each of these cells. Raises BadInput for categories that were not measured, by their names."""
    cells = [cell for cell in cells if cell.arm != BASELINE_NAME and cell.speedup is not None]
    if not cells:
        raise BadInput("this run compared nothing with a baseline: there is no speed-up to weigh", "NotCompared")
    return [found for cell in cells if (found := _predicted(result, cell, mix)) is not None]


def _predicted(result: Result, cell: Cell, mix: Mix) -> MixPrediction | None:
    pairs = _pairs(result, cell)
    if pairs is None:
        return None
    _refuse_missing(mix.given, pairs, cell)
    seed = result.plan.workload(cell.workload).sampling.seed
    given = of_requests(shares(mix.given), pairs) if mix.by_tokens else shares(mix.given)
    found = mixed(pairs, given, seed) if given else None
    return None if found is None else _told(cell, found)


def _pairs(result: Result, cell: Cell) -> Pairs | None:
    """The cell's pairs; None where its records or the baseline's are gone."""
    sides = [result.points_of((arm, cell.workload, cell.level.label)) for arm in (cell.arm, BASELINE_NAME)]
    if not all(sides):
        return None
    arm, baseline = (rows_of(result.plan, points, result.records) for points in sides)
    return pair(arm, baseline)


def _refuse_missing(given: Mapping[str, float], pairs: Pairs, cell: Cell) -> None:
    there = sorted({str(name) for name in pairs.rows["category" + BASELINE] if name is not None})
    absent = sorted(set(given) - set(there))
    if absent:
        known = ", ".join(there) or "none: its prompts have no category"
        what = f"{', '.join(absent)} of the mix was not measured on workload {cell.workload}"
        remedy = f"measured are {known}: measure it, or give --workload of another one"
        raise BadInput(f"{what} (arm {cell.arm} at {cell.level.label}): {remedy}", "CategoryMissing")


def _told(cell: Cell, found: Mixed) -> MixPrediction:
    return MixPrediction(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        speedup=found.speedup,
        acceptance_length=found.acceptance_length,
        measured_speedup=cell.speedup or no_speedup("speedup"),
        categories=found.categories,
        valid=cell.valid,
    )


def cells_of(result: Result, workload: str | None) -> Sequence[Cell]:
    """The cells of one workload, or all. Raises BadInput where there is no such workload."""
    names = [each.name for each in result.plan.workloads]
    if workload is not None and workload not in names:
        raise BadInput(f"--workload {workload}: this run has {', '.join(names)}", "NoSuchWorkload")
    return [cell for cell in result.summary.cells if workload in (None, cell.workload)]
