"""Acceptance length by category, and acceptance by position of the draft; both at the lightest load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile

import numpy as np
from matplotlib.axes import Axes

from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import (
    DrawArguments,
    Panel,
    PanelGroup,
    dodge,
    format_numbers,
    grid,
    label_rows,
    reference_line,
    shortened,
)
from specbench_client.report.plots.sections.cells import (
    INVALID,
    arms,
    figure_of,
    intervals,
    known,
    lightest,
    rests_on,
    series_of,
    sizes,
)
from specbench_client.report.plots.series import LoadLines, Series, describe_series, lines_panel, plot_value
from specbench_client.report.plots.styles import Style, Theme, arm_styles, split_into_panels

# Values by a name (category, position of the draft, …) as rows of marks with their bounds.

FRAME_IN = 1.15
MARK_IN = 0.11
"""Height of one mark in its row."""


@dataclass(frozen=True)
class Dots:
    """Rows, and the series that have a mark in each."""

    rows: tuple[str, ...]
    series: tuple[Series, ...]
    x_label: str
    level: float | None = None


def dots_height(rows: int, series: int) -> float:
    """Return the height of a panel in inches."""
    return FRAME_IN + rows * (0.12 + MARK_IN * max(1, series))


def draw_dots(axes: Axes, *, data: Dots, theme: Theme) -> None:
    """Draw the marks of a row below each other in the legend's order; invalid ones are hollow."""
    for index, series in enumerate(data.series):
        style, aside = series.style, dodge(index, len(data.series), 0.72)
        looks: DrawArguments = {"marker": style.marker, "markersize": 5.5, "color": style.colour, "linestyle": "none"}
        for place, each in series.known:
            if each.reach != (0.0, 0.0):
                reach = np.array([each.reach]).T
                bar: DrawArguments = {"fmt": "none", "ecolor": style.colour, "capsize": 2, "linewidth": 1.1}
                axes.errorbar([each.value], [place + aside], xerr=reach, **bar)
            face = style.colour if each.valid else theme.paper
            axes.plot([each.value], [place + aside], markerfacecolor=face, zorder=3, **looks)
        axes.plot([], [], label=shortened(series.name), **looks)
    for edge in range(1, len(data.rows)):
        axes.axhline(edge - 0.5, color=theme.ink, alpha=0.12, linewidth=0.6)
    if data.level is not None:
        reference_line(axes, data.level, upright=True)
    label_rows(axes, data.rows)
    grid(axes, "x")
    format_numbers(axes, "x")
    axes.set_xlabel(data.x_label)


KINDS = {"conditional_position_acceptance_rate": "given the one before", "position_acceptance_rate": "all up to here"}
"""Figures by position, and the titles of their panels."""
ALL = "all"


def by_category(summary: RunSummary) -> PanelGroup | None:
    """One panel a workload and group of arms; one row a category, and one for all of them."""
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, partial(figure_of, name=StatusFigure.ACCEPTANCE_LENGTH)):
        rows = (*sorted({name for cell in cells for name in cell.by_category}), ALL)
        for together in split_into_panels(arms(cells)):
            mine = [cell for cell in cells if cell.arm in together]
            data = Dots(rows, tuple(_row_marks(cell, rows, looks) for cell in mine), "tokens a step", level=1.0)
            words = describe_series([_overall(cell, looks) for cell in mine], [ALL])
            panels.append(Panel(partial(draw_dots, data=data), title, words, dots_height(len(rows), len(mine))))
        drawn += known(_length(cell, row) for cell in cells for row in rows)
    caption = f"{rests_on(drawn)} The dashed line is the baseline: one token a step. {INVALID}"
    return PanelGroup(tuple(panels), caption) if panels else None


def _row_marks(cell: Cell, rows: Sequence[str], looks: Mapping[str, Style]) -> Series:
    readings = (plot_value(_length(cell, row), valid=cell.valid) for row in rows)
    return series_of(cell.arm, looks[cell.arm], readings)


def _overall(cell: Cell, looks: Mapping[str, Style]) -> Series:
    return series_of(cell.arm, looks[cell.arm], [plot_value(_length(cell, ALL))])


def _length(cell: Cell, row: str) -> Figure | None:
    figures = cell.figures if row == ALL else cell.by_category.get(row, {})
    return figures.get(StatusFigure.ACCEPTANCE_LENGTH)


def by_position(summary: RunSummary) -> PanelGroup | None:
    """Two panels a workload and group of arms: the acceptance of each position given the previous one, and jointly."""
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, partial(figure_of, name="position_acceptance_rate_1")):
        for together in split_into_panels(arms(cells)):
            mine = [cell for cell in cells if cell.arm in together]
            for kind, meaning in KINDS.items():
                data = _positions(kind, mine, looks)
                words = describe_series(data.series, [f"position {each}" for each in data.labels])
                panels.append(lines_panel(data, f"{meaning}, {title}", words))
                drawn += known(figure for cell in mine for figure in _by_position(cell, kind))
    if not panels:
        return None
    caption = (
        "Share of draft steps that accepted the draft at each position, given that the one before was accepted"
        f" (conditional), and together with all before it (joint). {sizes(drawn)} {intervals(drawn)} {INVALID}"
    )
    return PanelGroup(tuple(panels), caption)


def _positions(kind: str, cells: Sequence[Cell], looks: Mapping[str, Style]) -> LoadLines:
    longest = max(len(_by_position(cell, kind)) for cell in cells)
    lines = []
    for cell in cells:
        figures = _by_position(cell, kind)
        readings = [plot_value(each, valid=cell.valid) for each in figures] + [None] * (longest - len(figures))
        lines.append(series_of(cell.arm, looks[cell.arm], readings))
    places = tuple(str(place + 1) for place in range(longest))
    return LoadLines(places, tuple(lines), "position in the draft", "share accepted", from_zero=True)


def _by_position(cell: Cell, kind: str) -> list[Figure | None]:
    """Return the figures of the positions that have one."""
    places = takewhile(lambda place: f"{kind}_{place}" in cell.figures, count(1))
    return [cell.figures[f"{kind}_{place}"] for place in places]
