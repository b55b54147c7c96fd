"""The table of cells for a terminal, for Markdown and for spreadsheets."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.plan.plan import Plan
from specbench_client.analysis.estimates.end_to_end import NAMES as END_TO_END
from specbench_client.analysis.estimates.end_to_end import named
from specbench_client.report.columns import SIMULATED, Column, arrivals_of, columns_of, steady_share, terminal_columns
from specbench_client.report.coverage import left_out_lines
from specbench_client.report.crossover import crossover_markdown
from specbench_client.report.findings import grouped, measure_again
from specbench_client.report.holds import holds_sheet
from specbench_client.report.lossless import losslessness_lines
from specbench_client.report.sheets import Sheet, escaped, markdown_table

_STYLES = {Severity.INVALID: "red", Severity.DOUBT: "yellow", Severity.NOTE: "dim"}


def cells_sheet(summary: RunSummary) -> Sheet:
    """Return the cells for a terminal, one line each."""
    named = f"{summary.name} (simulated, not a measurement)" if summary.simulated else summary.name
    targets = f"in time: {summary.slo.words}" if summary.slo else ""
    title = ": ".join(part for part in (named, arrivals_of(summary), targets) if part)
    return _sheet(title, terminal_columns(summary), summary)


def _sheet(title: str, columns: Sequence[Column], summary: RunSummary) -> Sheet:
    return Sheet(
        title,
        [column.title for column in columns],
        [[column.text(cell) for column in columns] for cell in summary.cells],
        words=[column.title for column in columns if not column.numeric],
        styles=["" if cell.valid else _STYLES[Severity.INVALID] for cell in summary.cells],
        caption=summary.verdict,
    )


def markdown(plan: Plan, summary: RunSummary) -> str:
    """Return verdict, cells and findings as Markdown."""
    lines = [f"# {summary.name}", ""]
    lines += [f"> **{SIMULATED}**", ""] if summary.simulated else []
    lines += [f"**{summary.verdict}**", "", *markdown_table(_sheet("", columns_of(summary), summary)), ""]
    lines += [f"Load: {arrivals_of(summary)}.", ""] if arrivals_of(summary) else []
    lines += crossover_markdown(summary)
    lines += [f"In time: {summary.slo.words}.", ""] if summary.slo else []
    answers = losslessness_lines(summary)
    lines += ["## Losslessness", "", *(f"- {escaped(line)}" for line in answers), ""] if answers else []
    missing = left_out_lines(summary)
    lines += ["## Prompts", "", *(f"- {line}" for line in missing), ""] if missing else []
    lines += _findings(plan, summary)
    holds = holds_sheet(plan, summary)
    lines += [f"## {holds.title}", "", *markdown_table(holds), ""]
    return "\n".join(lines)


def csv(summary: RunSummary) -> str:
    """Return one row a cell and one column a figure (and its bounds); missing is empty.

    The bounds of the steady windows are in seconds from the start of each point, one a repeat, with `;` between them.
    A speed-up that was compared in too few repeats to tell has no bounds: a spreadsheet would plot them as if they held
    what repeats do.
    """
    return str(pd.DataFrame([_row(summary, cell) for cell in summary.cells]).to_csv(index=False))


def _findings(plan: Plan, summary: RunSummary) -> list[str]:
    groups = grouped(summary.findings)
    if not groups:
        return []
    lines = ["## Findings", ""]
    for group in groups:
        lines.append(f"- **{group.check}** ({group.severity}): {group.messages[0]}{group.more}")
        lines.append(f"  *What to do:* {group.remedy}")
    return [*lines, "", measure_again(plan), ""]


def _row(summary: RunSummary, cell: Cell) -> dict[str, object]:
    counts = cell.counts.model_dump()
    row: dict[str, object] = {
        "namespace": summary.namespace,
        "run": summary.name,
        "simulated": summary.simulated,
        "arm": cell.arm,
        "workload": cell.workload,
        "load": cell.level.label,
        "concurrency": cell.level.concurrency,
        "rate": cell.level.rate,
        "arrivals": cell.arrivals.process if cell.arrivals else None,
        "burstiness": cell.arrivals.burstiness if cell.arrivals else None,
        "trace": cell.arrivals.trace if cell.arrivals else None,
        **_steady(cell),
        "valid": cell.valid,
        "findings": ";".join(cell.findings),
        "compared_repeats": cell.compared_repeats,
        "claim": str(cell.claims.overall) if cell.claims else None,
        **counts,
    }
    for name, figure in {"speedup": cell.speedup, "tpot_speedup": cell.tpot_speedup}.items():
        row |= _fields(name, figure, bounded=not cell.too_few_repeats)
    whole = named(cell.end_to_end) if cell.end_to_end else dict.fromkeys(END_TO_END)
    for name, figure in whole.items():
        row |= _fields(name, figure, bounded=not cell.too_few_repeats)
    if cell.goodput:
        row |= _fields("slo_goodput", cell.goodput.rate) | _fields("slo_met_share", cell.goodput.share)
    for name, figure in cell.figures.items():
        row |= _fields(name, figure)
    return row


def _steady(cell: Cell) -> dict[str, object]:
    windows = [window for window in cell.windows if window]
    return {
        "steady_start_s": ";".join(f"{window.start_ns / 1e9:.3f}" for window in windows),
        "steady_end_s": ";".join(f"{window.end_ns / 1e9:.3f}" for window in windows),
        "steady_share": steady_share(cell),
    }


def _fields(name: str, figure: Figure | None, *, bounded: bool = True) -> dict[str, float | None]:
    bounds = figure.interval if figure and bounded else None
    return {
        name: figure.value if figure else None,
        f"{name}_low": bounds.low if bounds else None,
        f"{name}_high": bounds.high if bounds else None,
    }
