"""Speed-up over the paired baseline by load, and by category and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specbench_api.outcome.crossover import ArmCrossover
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.load import Level
from specbench_client.report.plots.canvas import PanelGroup
from specbench_client.report.plots.heatmap import HeatMap, describe_extremes, heatmap_panel
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
from specbench_client.report.plots.series import CrossingMark, LoadLines, PlotValue, describe_series, lines_panel
from specbench_client.report.plots.styles import Style, arm_styles, split_into_panels


def crossings(
    found: Sequence[ArmCrossover], workload: str, together: Sequence[str], looks: Mapping[str, Style]
) -> tuple[CrossingMark, ...]:
    """Return the marks of one panel's arms. No interval, no bar; not reached, no mark."""
    marks = []
    for each in found:
        at, bounds = each.crossover.at.value, each.crossover.interval
        if each.workload == workload and each.arm in together and at is not None:
            low, high = (bounds.low, bounds.high) if bounds else (at, at)
            marks.append(CrossingMark(looks[each.arm], at, low, high))
    return tuple(marks)


PLACES = "Loads are spaced equally, not to scale."
CROSSINGS = "The stroke on the dashed line: where an arm's speed-up falls to 1; the bar on it: its interval."


def speedup(summary: RunSummary, found: Sequence[ArmCrossover] = ()) -> PanelGroup | None:
    """One panel a workload and group of arms; None without a comparison.

    `found`: the loads at which speed-ups fall to 1, which are marked.
    """
    looks = arm_styles(cell.arm for cell in summary.cells)
    drawn: list[tuple[str, LoadLines]] = []
    for workload, cells in workloads(summary):
        shown = [arm for arm in arms(cells) if known(cell.speedup for cell in cells if cell.arm == arm)]
        drawn += [(workload, data) for data in _parts(cells, shown, looks, found)]
    shared = _y_range([data for _, data in drawn])
    panels = [
        lines_panel(replace(data, y_range=shared), workload, describe_series(data.series, data.labels))
        for workload, data in drawn
    ]
    figures = known(cell.speedup for cell in summary.cells)
    marks = [CROSSINGS] if any(each.crossover.at.value is not None for each in found) else []
    caption = " ".join((rests_on(figures), PLACES, *marks, INVALID))
    return PanelGroup(tuple(panels), caption) if panels else None


def _y_range(panels: Sequence[LoadLines]) -> tuple[float, float] | None:
    """Return limits that show every value, every bound and the baseline in all panels; None without a value."""
    values = [value for data in panels for series in data.series for _, value in series.known]
    if not values:
        return None
    low = min(1.0, *(value.value - value.reach[0] for value in values))
    high = max(1.0, *(value.value + value.reach[1] for value in values))
    margin = 0.05 * (high - low) or 0.05
    return low - margin, high + margin


def _parts(
    cells: Sequence[Cell], shown: Sequence[str], looks: Mapping[str, Style], found: Sequence[ArmCrossover]
) -> list[LoadLines]:
    levels = loads(cells)
    return [
        LoadLines(
            labels=tuple(level.label for level in levels),
            series=tuple(series_of(arm, looks[arm], _readings(cells, arm, levels)) for arm in together),
            x_label=load_name(levels),
            y_label="speed-up (1 = baseline)",
            level=1.0,
            loads=tuple(level.order for level in levels),
            crossings=crossings(found, cells[0].workload, together, looks),
        )
        for together in split_into_panels(shown)
    ]


def _readings(cells: Sequence[Cell], arm: str, levels: Sequence[Level]) -> list[PlotValue | None]:
    found = [cell_of(cells, arm, level) for level in levels]
    return [compared(cell, cell.speedup if cell else None) for cell in found]


CATEGORIES_NOTE = (
    "Blue: faster than the paired baseline; orange: slower; –: not compared, or invalid. Intervals: the table below."
)


def speedup_by_category(summary: RunSummary) -> PanelGroup | None:
    """Coloured tables of categories by loads, one panel an arm of each workload; None for fewer than two categories."""
    maps: list[tuple[str, HeatMap]] = []
    for workload, cells in workloads(summary):
        categories = sorted({name for cell in cells for name, each in cell.by_category.items() if "speedup" in each})
        for arm in arms(cells) if len(categories) > 1 else []:
            data = _map(cells, arm, categories)
            if any(value is not None for row in data.values for value in row):
                maps.append((", ".join(part for part in (arm, workload) if part), data))
    farthest = max((data.reach for _, data in maps), default=0.0)
    panels = [
        heatmap_panel(replace(data, farthest=farthest), title, describe_extremes(data, "{row} at {column}"))
        for title, data in maps
    ]
    figures = known(category.get("speedup") for cell in summary.cells for category in cell.by_category.values())
    caption = f"{rests_on(figures, bounds=False)} {CATEGORIES_NOTE}"
    return PanelGroup(tuple(panels), caption) if panels else None


def _map(cells: Sequence[Cell], arm: str, categories: Sequence[str]) -> HeatMap:
    levels = loads(cells)
    values = tuple(tuple(_value(cell_of(cells, arm, level), name) for level in levels) for name in categories)
    return HeatMap(tuple(categories), tuple(level.label for level in levels), values, load_name(levels), middle=1.0)


def _value(cell: Cell | None, category: str) -> float | None:
    figure: Figure | None = cell.by_category.get(category, {}).get("speedup") if cell and cell.valid else None
    return figure.value if figure else None
