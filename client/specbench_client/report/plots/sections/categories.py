"""Speed-up by category and load, as a table in colours; each arm a panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.heatmap import HeatMap, draw_heatmap, height_of
from specbench_client.report.plots.sections.cells import (
    arms,
    cell_of,
    known,
    load_name,
    loads,
    rests_on,
    workloads,
)
from specbench_client.report.plots.sections.section import Drawn

NOTE = "Blue: faster than the paired baseline; orange: slower; –: not compared, or invalid. Intervals: the table below."


def by_category(summary: RunSummary) -> Drawn | None:
    """A panel an arm of each workload, over categories and loads; None where there are no two categories."""
    maps: list[tuple[str, HeatMap]] = []
    for workload, cells in workloads(summary):
        categories = sorted({name for cell in cells for name, told in cell.by_category.items() if "speedup" in told})
        for arm in arms(cells) if len(categories) > 1 else []:
            data = _map(cells, arm, categories)
            if any(value is not None for row in data.values for value in row):
                maps.append((", ".join(part for part in (arm, workload) if part), data))
    farthest = max((data.reach for _, data in maps), default=0.0)
    panels = [
        Panel(
            partial(draw_heatmap, data=replace(data, farthest=farthest)), title, _told(data), height_of(len(data.rows))
        )
        for title, data in maps
    ]
    figures = known(told.get("speedup") for cell in summary.cells for told in cell.by_category.values())
    caption = f"{rests_on(figures, bounds=False)} {NOTE}"
    return Drawn(tuple(panels), caption) if panels else None


def _map(cells: Sequence[Cell], arm: str, categories: Sequence[str]) -> HeatMap:
    levels = loads(cells)
    values = tuple(tuple(_value(cell_of(cells, arm, level), name) for level in levels) for name in categories)
    return HeatMap(tuple(categories), tuple(level.label for level in levels), values, load_name(levels), middle=1.0)


def _value(cell: Cell | None, category: str) -> float | None:
    figure: Figure | None = cell.by_category.get(category, {}).get("speedup") if cell and cell.valid else None
    return figure.value if figure else None


def _told(data: HeatMap) -> str:
    found = [
        (value, row, column)
        for row, values in zip(data.rows, data.values, strict=True)
        for value, column in zip(values, data.columns, strict=True)
        if value is not None
    ]
    (low, *least), (high, *most) = min(found), max(found)
    return f"from {low:.2f} ({' at '.join(least)}) to {high:.2f} ({' at '.join(most)})"
