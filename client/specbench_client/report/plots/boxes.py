"""How a value is spread over requests: a box from quartile to quartile, whiskers to the 5th and the 95th percentile."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes

from specbench_client.report.plots.axes import SMALL_PT, Looks, grid, level_line, named_y, numbers
from specbench_client.report.plots.ink import Style, Theme

ROW_IN = 0.34
FRAME_IN = 0.95


@dataclass(frozen=True)
class Box:
    """Five numbers, and how many requests they are of."""

    name: str
    style: Style
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float
    n: int
    mean: float | None = None


@dataclass(frozen=True)
class Boxes:
    """Rows under one axis."""

    rows: tuple[Box, ...]
    x_label: str
    level: float | None = None
    """A line of reference."""


def height_of(rows: int) -> float:
    """Inches that a panel of so many boxes takes."""
    return FRAME_IN + ROW_IN * max(2, rows)


def draw_boxes(axes: Axes, *, data: Boxes, theme: Theme) -> None:
    """One row a box; the mean, where there is one, is a cross."""
    for row, box in enumerate(data.rows):
        colour = box.style.colour
        inside: Looks = {"facecolor": colour, "edgecolor": colour, "alpha": 0.35, "height": 0.56}
        axes.barh([row], [box.three_quarters - box.quarter], left=box.quarter, **inside)
        for begin, end in ((box.low, box.quarter), (box.three_quarters, box.high)):
            axes.plot([begin, end], [row, row], color=colour, linewidth=1.2)
        for at in (box.low, box.high):
            axes.plot([at, at], [row - 0.16, row + 0.16], color=colour, linewidth=1.2)
        axes.plot([box.median] * 2, [row - 0.28, row + 0.28], color=theme.ink, linewidth=1.8)
        if box.mean is not None:
            axes.plot(box.mean, row, "x", color=theme.ink, markersize=5)
    if data.level is not None:
        level_line(axes, data.level, upright=True)
    named_y(axes, [box.name for box in data.rows])
    grid(axes, "x")
    numbers(axes, "x")
    axes.margins(x=0.14)
    for row, box in enumerate(data.rows):
        place: Looks = {"textcoords": "offset points", "xytext": (6, 0), "va": "center", "fontsize": SMALL_PT}
        axes.annotate(f"n {box.n}", (box.high, row), color=theme.ink, **place)
    axes.set_xlabel(data.x_label)
