"""Speed-up over the paired baseline by load, with its bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.load import Level
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.data import Reading, told
from specbench_client.report.plots.ink import Style, companies, styles_of
from specbench_client.report.plots.loads import OverLoads, draw_over_loads
from specbench_client.report.plots.sections.cells import (
    INVALID,
    arms,
    cell_of,
    compared,
    known,
    load_name,
    loads,
    rests_on,
    series_of,
    workloads,
)
from specbench_client.report.plots.sections.crossings import ArmCrossover, CrossoversOf, crossings
from specbench_client.report.plots.sections.section import Drawn

PLACES = "Loads stand at equal distances, not to scale."
CROSSINGS = "The stroke on the dashed line: where an arm's speed-up falls to 1; the bar on it: its interval."


def speedup(summary: RunSummary, crossovers_of: CrossoversOf = lambda _: ()) -> Drawn | None:
    """A panel a workload and company of arms; None without a comparison.

    crossovers_of: where the summary tells at which loads speed-ups fall to 1; they are marked.
    """
    looks = styles_of(cell.arm for cell in summary.cells)
    panels: list[Panel] = []
    found = crossovers_of(summary)
    for workload, cells in workloads(summary):
        shown = [arm for arm in arms(cells) if known(cell.speedup for cell in cells if cell.arm == arm)]
        panels += [
            Panel(partial(draw_over_loads, data=data), workload, told(data.series, data.labels))
            for data in _parts(cells, shown, looks, found)
        ]
    figures = known(cell.speedup for cell in summary.cells)
    marks = [CROSSINGS] if any(each.crossover.at.value is not None for each in found) else []
    caption = " ".join((rests_on(figures), PLACES, *marks, INVALID))
    return Drawn(tuple(panels), caption) if panels else None


def _parts(
    cells: Sequence[Cell], shown: Sequence[str], looks: Mapping[str, Style], found: Sequence[ArmCrossover]
) -> list[OverLoads]:
    levels = loads(cells)
    return [
        OverLoads(
            labels=tuple(level.label for level in levels),
            series=tuple(series_of(arm, looks[arm], _readings(cells, arm, levels)) for arm in together),
            x_label=load_name(levels),
            y_label="speed-up (1 = baseline)",
            level=1.0,
            loads=tuple(level.order for level in levels),
            crossings=crossings(found, cells[0].workload, together, looks),
        )
        for together in companies(shown)
    ]


def _readings(cells: Sequence[Cell], arm: str, levels: Sequence[Level]) -> list[Reading | None]:
    found = [cell_of(cells, arm, level) for level in levels]
    return [compared(cell, cell.speedup if cell else None) for cell in found]
