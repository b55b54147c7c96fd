"""Values along a number: position in the output, context length, temperature, batch size."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from specbench_client.report.plots.axes import grid, level_line, numbers
from specbench_client.report.plots.data import Series
from specbench_client.report.plots.ink import Theme
from specbench_client.report.plots.loads import draw_line


@dataclass(frozen=True)
class Along:
    """Series over numbers that stand where they are; the same ones for all series."""

    at: tuple[float, ...]
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    logarithmic: bool = False
    """The axis is one of doublings; all of `at` are greater than 0."""
    level: float | None = None


def draw_along(axes: Axes, *, data: Along, theme: Theme) -> None:
    """Lines with bands; they break where a reading is missing."""
    if data.logarithmic:
        axes.set_xscale("log", base=2)
    for each in data.series:
        draw_line(axes, each, data.at, theme)
    if data.level is not None:
        level_line(axes, data.level)
    grid(axes)
    numbers(axes, "y")
    if data.logarithmic:
        axes.xaxis.set_major_locator(FixedLocator(data.at))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(data.at, [f"{at:g}" for at in data.at])
    else:
        numbers(axes, "x")
    axes.set_xlabel(data.x_label)
    axes.set_ylabel(data.y_label)
