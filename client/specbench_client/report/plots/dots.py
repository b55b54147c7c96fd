"""Values by a name (category, position of the draft, …) as rows of marks with their bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from specbench_client.report.plots.axes import Looks, grid, level_line, named_y, numbers, shift, shortened
from specbench_client.report.plots.data import Series
from specbench_client.report.plots.ink import Theme

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


def height_of(rows: int, series: int) -> float:
    """Inches that a panel takes."""
    return FRAME_IN + rows * (0.12 + MARK_IN * max(1, series))


def draw_dots(axes: Axes, *, data: Dots, theme: Theme) -> None:
    """Marks of a row stand below each other in the legend's order; invalid ones are hollow."""
    for index, series in enumerate(data.series):
        style, aside = series.style, shift(index, len(data.series), 0.72)
        looks: Looks = {"marker": style.marker, "markersize": 5.5, "color": style.colour, "linestyle": "none"}
        for place, each in series.known:
            if each.reach != (0.0, 0.0):
                reach = np.array([each.reach]).T
                bar: Looks = {"fmt": "none", "ecolor": style.colour, "capsize": 2, "linewidth": 1.1}
                axes.errorbar([each.value], [place + aside], xerr=reach, **bar)
            face = style.colour if each.valid else theme.paper
            axes.plot([each.value], [place + aside], markerfacecolor=face, zorder=3, **looks)
        axes.plot([], [], label=shortened(series.name), **looks)
    for edge in range(1, len(data.rows)):
        axes.axhline(edge - 0.5, color=theme.ink, alpha=0.12, linewidth=0.6)
    if data.level is not None:
        level_line(axes, data.level, upright=True)
    named_y(axes, data.rows)
    grid(axes, "x")
    numbers(axes, "x")
    axes.set_xlabel(data.x_label)
