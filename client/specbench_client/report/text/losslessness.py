"""Losslessness as rows of a table, one for each arm, workload and load, and as lines of text."""

from __future__ import annotations

from dataclasses import dataclass

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.lossless import Losslessness
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.text.text_table import DASH


@dataclass(frozen=True)
class LosslessRow:
    """One line of the table of losslessness."""

    arm: str
    workload: str
    load: str
    verdict: str
    divergence: str
    control: str
    excess: str
    first_difference: str
    message: str


def lossless_rows(summary: RunSummary) -> list[LosslessRow]:
    """Return one row for each cell that was compared with the baseline."""
    return [_row(cell.arm, cell.workload, cell.level.label, cell.lossless) for cell in summary.cells if cell.lossless]


def losslessness_lines(summary: RunSummary) -> list[str]:
    """Return one line for each distinct result, with the cells that share it."""
    places: dict[str, list[str]] = {}
    for row in lossless_rows(summary):
        places.setdefault(f"{row.verdict}: {row.message}", []).append(f"{row.arm} on {row.workload} at {row.load}")
    return [f"{', '.join(where)}: {result}" for result, where in places.items()]


def _row(arm: str, workload: str, load: str, found: Losslessness) -> LosslessRow:
    place = found.first_difference
    return LosslessRow(
        arm=arm,
        workload=workload,
        load=load,
        verdict=str(found.verdict),
        divergence=_share(found.divergence),
        control=_share(found.control),
        excess=_share(found.excess),
        first_difference=f"{_number(place.arm)} / {_number(place.control)} {place.unit}" if place else DASH,
        message=found.message,
    )


def _share(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return DASH
    bounds = figure.interval
    return f"{figure.value:.1%}" + (f" [{bounds.low:.1%}, {bounds.high:.1%}]" if bounds else "")


def _number(figure: Figure | None) -> str:
    return DASH if figure is None or figure.value is None else f"{figure.value:.0f}"
