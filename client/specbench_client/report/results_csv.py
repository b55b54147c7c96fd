"""The cells of a run as rows of a spreadsheet: `results.csv`, `report --output csv` and data frames."""

from __future__ import annotations

from specbench_client.analysis.estimates.speedups import END_TO_END_NAMES as END_TO_END
from specbench_client.analysis.estimates.speedups import figures_by_name
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.table_renderers import spreadsheet
from specbench_client.report.text.results_table import steady_share
from specbench_client.report.text.text_table import csv_fields


def csv(summary: RunSummary) -> str:
    """Return one row a cell and one column a figure (and its bounds); missing is empty.

    The bounds of the steady windows are in seconds from the start of each point, one a repeat, with `;` between them.
    """
    return spreadsheet([cell_row(summary, cell) for cell in summary.cells])


def cell_row(summary: RunSummary, cell: Cell) -> dict[str, object]:
    """Return the fields of a cell by the names of the columns of results.csv."""
    windows = [window for window in cell.windows if window]
    row: dict[str, object] = {
        "namespace": summary.namespace,
        "run": summary.name,
        "simulated": summary.simulated,
        "arm": cell.arm,
        "workload": cell.workload,
        "load": cell.level.label,
        "concurrency": cell.level.concurrency,
        "rate": cell.level.rate,
        "arrivals": cell.arrivals.process,
        "burstiness": cell.arrivals.burstiness,
        "trace": cell.arrivals.trace,
        "steady_start_s": ";".join(f"{window.start_ns / 1e9:.3f}" for window in windows),
        "steady_end_s": ";".join(f"{window.end_ns / 1e9:.3f}" for window in windows),
        "steady_share": steady_share(cell),
        "valid": cell.valid,
        "findings": ";".join(cell.findings),
        "compared_repeats": cell.compared_repeats,
        "claim": str(cell.claims.overall) if cell.claims else None,
        **cell.counts.model_dump(),
    }
    whole = figures_by_name(cell.end_to_end) if cell.end_to_end else dict.fromkeys(END_TO_END)
    for name, figure in {"speedup": cell.speedup, "tpot_speedup": cell.tpot_speedup, **whole}.items():
        row |= csv_fields(name, figure)
    if cell.goodput:
        row |= csv_fields("slo_goodput", cell.goodput.rate) | csv_fields("slo_attainment", cell.goodput.slo_attainment)
    for name, figure in cell.figures.items():
        row |= csv_fields(name, figure)
    return row
