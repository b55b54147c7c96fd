"""Values along a number: position in the output, context length, temperature, batch size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from specbench_client.report.plots.axes import Looks, grid, level_line, numbers, shortened
from specbench_client.report.plots.data import NAN, Series
from specbench_client.report.plots.ink import Theme
from specbench_client.report.plots.loads import BAND


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
        style, values = each.style, np.array(each.values)
        reach = np.array([(NAN, NAN) if one is None else one.reach for one in each.readings]).T
        line: Looks = {"color": style.colour, "linestyle": style.dash, "marker": style.marker, "markersize": 5}
        hollow = any(not one.valid for _, one in each.known)
        face = theme.paper if hollow else style.colour
        axes.plot(data.at, values, linewidth=1.4, label=shortened(each.name), markerfacecolor=face, **line)
        axes.fill_between(data.at, values - reach[0], values + reach[1], color=style.colour, alpha=BAND, linewidth=0)
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
