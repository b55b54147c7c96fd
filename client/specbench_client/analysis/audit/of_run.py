"""A run of ours as a document, so that our own tables are held to the same rules as anybody's."""

from __future__ import annotations

import json

from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.audit.columns import Name
from specbench_client.analysis.audit.document import Document, Row, labelled
from specbench_client.analysis.audit.numbers import Told, exactly

_FIGURES = {
    Name.ACCEPTANCE_RATE: Headline.ACCEPTANCE_RATE.value,
    Name.ACCEPTANCE_LENGTH: Headline.ACCEPTANCE_LENGTH.value,
    Name.TPOT: f"{Headline.TPOT_MS}_p50",
    Name.TTFT: f"{Headline.TTFT_MS}_p50",
    Name.E2E: f"{Headline.E2E_MS}_p50",
    Name.THROUGHPUT: Headline.OUTPUT_TPS.value,
}

_APART = ("name", "method", "numSpeculativeTokens")
"""What a drafter's other knobs are told without: rows of one sweep differ in these."""


def document_of(plan: Plan, summary: RunSummary) -> Document:
    """One table a workload. Invalid cells are left out: their own findings say why."""
    workloads = dict.fromkeys(cell.workload for cell in summary.cells)
    return Document(
        f"run {summary.name}", {workload: labelled(_rows(plan, summary, workload)) for workload in workloads}
    )


def _rows(plan: Plan, summary: RunSummary, workload: str) -> list[Row]:
    cells = [cell for cell in summary.cells if cell.workload == workload]
    return [_row(plan, workload, number, cell) for number, cell in enumerate(cells, start=1) if cell.valid]


def _row(plan: Plan, workload: str, number: int, cell: Cell) -> Row:
    drafter = plan.arm(cell.arm).drafter
    settings: dict[str, str | float] = {
        Name.METHOD: str(drafter.method) if drafter else "none",
        "workload": workload,
        Name.TEMPERATURE: float(plan.workload(workload).sampling.temperature),
        Name.DRAFT_LENGTH: float((drafter.num_speculative_tokens or 0) if drafter else 0),
    }
    if drafter:
        knobs = {key: value for key, value in drafter.to_dict().items() if key not in _APART}
        settings["drafter"] = json.dumps(knobs, sort_keys=True)
    if cell.level.concurrency is None:
        settings["load"] = cell.level.label
    else:
        settings[Name.CONCURRENCY] = float(cell.level.concurrency)
    figures = {name: cell.figures.get(figure) for name, figure in _FIGURES.items()}
    figures |= {Name.SPEEDUP: cell.speedup, Name.TPOT_SPEEDUP: cell.tpot_speedup}
    told = {name: _told(figure) for name, figure in figures.items()}
    kept = {name: each for name, each in told.items() if each and (each.value > 0 or name == Name.ACCEPTANCE_RATE)}
    return Row(workload, number, settings, kept)


def _told(figure: Figure | None) -> Told | None:
    """Its interval is its rounding: what a run may be wrong by is no contradiction."""
    if figure is None or figure.value is None:
        return None
    bounds = figure.interval
    return Told(figure.value, bounds.low, bounds.high) if bounds else exactly(figure.value)
