"""A run's answer in a few words, for columns and tables: the largest speed-up that is distinguishable from 1.

Where the summary says what may be claimed after the correction for many comparisons, nothing else is called one here.
"""

from __future__ import annotations

from specbench_api.outcome.summary import Cell, RunSummary

BEST_MAX = 128
NONE_FASTER = "none faster"


def best_of(summary: RunSummary) -> str:
    """The largest speed-up that is claimed, with where it was found; else that there is none.

    Then the largest loss that is one is told beside it. Empty where nothing could be compared.
    """
    compared = [(bounds, cell) for cell in summary.cells if cell.valid and (bounds := _speedup(cell))]
    several = len({cell.workload for cell in summary.cells}) > 1
    told = [
        (value, f"{cell.arm} {value:.2f}x at {cell.level.words}{f' {cell.workload}' if several else ''}")
        for (value, low, high), cell in compared
        if (low > 1 or high < 1) and (cell.claims is None or cell.claims.overall.is_claim)
    ]
    if told and max(told)[0] > 1:
        return max(told)[1][:BEST_MAX]
    worst = f"; {min(told)[1]}" if told else ""
    return f"{NONE_FASTER}{worst}"[:BEST_MAX] if compared else ""


def _speedup(cell: Cell) -> tuple[float, float, float] | None:
    """Value and bounds; None where it has none that hold what repeats do."""
    figure = cell.speedup
    if figure is None or figure.value is None or figure.interval is None or cell.too_few_repeats:
        return None
    return figure.value, figure.interval.low, figure.interval.high
