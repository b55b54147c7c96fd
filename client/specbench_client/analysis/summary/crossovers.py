"""Up to which load each arm of a run pays, and which acceptance length it needs there."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.crossover import ArmCrossover, BreakEven, Crossovers
from specbench_api.outcome.summary import Cell
from specbench_api.plan.plan import Plan
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.crossover.axis import CONCURRENCY, RATE
from specbench_client.analysis.crossover.crossing import crossover
from specbench_client.analysis.crossover.shape import Rung
from specbench_client.analysis.summary.cell import Judged


def crossovers(plan: Plan, judged: Sequence[Judged]) -> Crossovers:
    """Answer for every arm and workload that was compared. `judged`: the cells, with their findings final."""
    compared = [each for each in judged if each.cell.arm != BASELINE_NAME]
    keys = dict.fromkeys((each.cell.arm, each.cell.workload) for each in compared)
    of_each = {key: [each for each in compared if (each.cell.arm, each.cell.workload) == key] for key in keys}
    return Crossovers(
        by_load=[_by_load(plan, mine) for mine in of_each.values()],
        break_even=[_break_even(each, each.break_even) for each in compared if each.break_even is not None],
    )


def unusable(cell: Cell, *, interval: bool) -> str:
    """Why a cell's speed-up is no place of a curve; empty where it is one. `interval`: whether it has one."""
    if not cell.valid:
        return f"invalid ({', '.join(cell.findings)})"
    if cell.speedup is None or cell.speedup.value is None:
        return "not compared with the baseline"
    if cell.too_few_repeats:
        return cell.too_few_repeats
    return "" if interval else "too few prompts for an interval"


def _by_load(plan: Plan, judged: Sequence[Judged]) -> ArmCrossover:
    cell = judged[0].cell
    axis = RATE if plan.load.concurrency is None else CONCURRENCY
    rungs, left_out = [], []
    for each in judged:
        level = each.cell.level
        place = level.concurrency or level.rate
        why = unusable(each.cell, interval=each.ratio is not None and each.ratio.told)
        if place is None:
            left_out.append(f"{level.words}: it has no number to be drawn over")
        elif why or each.ratio is None:
            left_out.append(f"{level.words}: {why}")
        else:
            rungs.append(Rung(float(place), each.ratio))
    seed = plan.workload(cell.workload).sampling.seed
    return ArmCrossover(arm=cell.arm, workload=cell.workload, crossover=crossover(axis, rungs, left_out, seed))


def _break_even(judged: Judged, found: BreakEven) -> BreakEven:
    return found.model_copy(update={"valid": judged.cell.valid})
