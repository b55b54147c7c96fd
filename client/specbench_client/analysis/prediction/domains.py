"""A category's speed-up in decoding from its acceptance and the cell's step times alone, beside the measured one.

    predicted = AL of the category · t_ar / t_sd        t_ar, t_sd over all categories of the cell

SPEED-Bench (arXiv 2604.09557) parts data from system so: acceptance is the data's, the time of a step the system's. It
presumes that a step of this category takes as long as one of any other: context, the rest of the batch and drafts that
are not found break that, and measured / predicted tells by how much. Decoding alone: prefill is in neither.
"""

from __future__ import annotations

from specbench_api.outcome.crossover import BreakEven
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import DomainPrediction
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.analysis.estimates.evidence import quotient

LENGTH, MEASURED = "acceptance_length_emitted_pooled", "tpot_speedup"
PREDICTED = (
    "Acceptance length of the category / (step time of the arm / step time of the baseline, over all categories)"
)
RATIO = "Measured speed-up of decoding over the predicted one; they share the category's acceptance: on the wide side"


def domains(summary: RunSummary, workload: str | None = None) -> list[DomainPrediction]:
    """A row a category of each valid cell that tells its steps. `workload`: of this one alone."""
    costs = {} if summary.crossover is None else {_place(each): each for each in summary.crossover.break_even}
    found = []
    for cell in summary.cells:
        cost = costs.get((cell.arm, cell.workload, cell.level.label))
        if cell.valid and cost is not None and workload in (None, cell.workload):
            found += [each for name, figures in cell.by_category.items() if (each := _of(cell, name, figures, cost))]
    return found


def _place(each: BreakEven) -> tuple[str, str, str]:
    return each.arm, each.workload, each.load


def _of(cell: Cell, category: str, figures: dict[str, Figure], cost: BreakEven) -> DomainPrediction | None:
    length, measured = figures.get(LENGTH), figures.get(MEASURED)
    predicted = None if length is None else quotient(length, cost.needed, PREDICTED)
    if length is None or predicted is None:
        return None
    ratio = None if measured is None else quotient(measured, predicted, RATIO)
    return DomainPrediction(
        arm=cell.arm,
        workload=cell.workload,
        load=cell.level.label,
        category=category,
        acceptance_length=length,
        predicted=predicted,
        measured=measured,
        ratio=ratio,
    )
