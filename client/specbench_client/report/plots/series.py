"""Numbers of a plot with their bounds, and lines over them; a missing value leaves a gap and is never drawn as 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from specbench_api.outcome.figure import Figure
from specbench_client.report.plots.canvas import (
    DrawArguments,
    Panel,
    dodge,
    format_numbers,
    grid,
    label_columns,
    reference_line,
    shortened,
)
from specbench_client.report.plots.styles import GREY_LIGHT, Style, Theme

NAN = float("nan")


@dataclass(frozen=True)
class PlotValue:
    """One value with optional bounds, and whether it is valid; invalid values are drawn hollow."""

    value: float
    low: float | None = None
    high: float | None = None
    valid: bool = True

    @property
    def reach(self) -> tuple[float, float]:
        """Distances down and up to the bounds; 0 where there are none, or where the value is beyond one."""
        down = 0.0 if self.low is None else max(0.0, self.value - self.low)
        up = 0.0 if self.high is None else max(0.0, self.high - self.value)
        return down, up


@dataclass(frozen=True)
class Series:
    """One line or set of marks: a value for each place of the axis, None where it is missing."""

    name: str
    style: Style
    readings: tuple[PlotValue | None, ...]

    @property
    def known(self) -> list[tuple[int, PlotValue]]:
        """Places and values that are not missing."""
        return [(place, each) for place, each in enumerate(self.readings) if each is not None]

    @property
    def values(self) -> list[float]:
        """One value a place; NaN, which breaks a line, where it is missing."""
        return [NAN if each is None else each.value for each in self.readings]


def plot_value(figure: Figure | None, *, valid: bool = True, bounds: bool = True) -> PlotValue | None:
    """Return a figure as a value of a plot; None where it is missing or not finite."""
    if figure is None or figure.value is None or not math.isfinite(figure.value):
        return None
    held = figure.interval if bounds else None
    return PlotValue(figure.value, held.low if held else None, held.high if held else None, valid)


def describe_series(series: Sequence[Series], places: Sequence[str]) -> str:
    """Describe the series for screen readers: first and last value of each."""
    return "; ".join(_endpoints(each, places) for each in series if each.known)


def _endpoints(series: Series, places: Sequence[str]) -> str:
    (first, begin), (last, end) = series.known[0], series.known[-1]
    only = f"{series.name} {begin.value:.3g} at {places[first]}"
    return only if first == last else f"{only} to {end.value:.3g} at {places[last]}"


# Lines over the loads of a run with bands and error bars, and marks where a line crosses 1.

BAND = 0.14
"""Opacity of a band: six of them over each other still show their lines."""


@dataclass(frozen=True)
class CrossingMark:
    """Where a series crosses the level, in units of the load. Bounds of None are beyond the measured loads."""

    style: Style
    at: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class LoadLines:
    """Lines over named places, which are spaced equally."""

    labels: tuple[str, ...]
    """Of the places, the lightest load first."""
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    level: float | None = None
    """A dashed line: the baseline."""
    loads: tuple[float, ...] = ()
    """The places as numbers; only crossings need them."""
    crossings: tuple[CrossingMark, ...] = ()
    from_zero: bool = False
    """Whether the axis begins at 0, as it must where lengths are compared and not differences."""
    y_range: tuple[float, float] | None = None
    """Limits of the y axis, so that panels side by side share one scale; None fits it to the lines."""


def lines_panel(data: LoadLines, title: str, words: str) -> Panel:
    """Return a panel of lines over named places."""
    return Panel(partial(draw_load_lines, data=data), title, words)


def draw_load_lines(axes: Axes, *, data: LoadLines, theme: Theme) -> None:
    """Draw the lines; they break at missing values, and invalid values are hollow."""
    for index, each in enumerate(data.series):
        aside = dodge(index, len(data.series), 0.16)
        draw_line(axes, each, [place + aside for place in range(len(each.readings))], theme)
    if data.level is not None:
        reference_line(axes, data.level)
        axes.plot([], [], color=GREY_LIGHT, linewidth=1.2, linestyle=(0, (4, 2)), label="baseline")
    for crossing in data.crossings:
        _cross(axes, crossing, data)
    grid(axes)
    label_columns(axes, data.labels)
    format_numbers(axes, "y")
    if data.from_zero:
        axes.set_ylim(bottom=0)
    if data.y_range:
        axes.set_ylim(data.y_range)
    axes.set_xlabel(data.x_label)
    axes.set_ylabel(data.y_label)


def draw_line(axes: Axes, series: Series, places: Sequence[float], theme: Theme) -> None:
    """Draw a line with band and bars, broken at missing values. `places`: the coordinate of each value."""
    style, at = series.style, np.array(places)
    values = np.array(series.values)
    reach = np.array([(NAN, NAN) if each is None else each.reach for each in series.readings]).T
    axes.plot(at, values, color=style.colour, linewidth=1.4, linestyle=style.dash, zorder=3)
    axes.fill_between(at, values - reach[0], values + reach[1], color=style.colour, alpha=BAND, linewidth=0)
    held = [place for place, each in series.known if each.reach != (0.0, 0.0)]
    bars: DrawArguments = {"fmt": "none", "ecolor": style.colour, "capsize": 2.5, "linewidth": 1.1}
    axes.errorbar(at[held], values[held], yerr=reach[:, held], **bars)
    looks: DrawArguments = {
        "marker": style.marker,
        "markersize": 6,
        "markeredgecolor": style.colour,
        "linestyle": "none",
    }
    for valid in (True, False):
        shown = [place for place, each in series.known if each.valid is valid]
        face = style.colour if valid else theme.paper
        axes.plot(at[shown], values[shown], markerfacecolor=face, zorder=4, **looks)
    face = style.colour if any(each.valid for _, each in series.known) else theme.paper
    sample: DrawArguments = {**looks, "linestyle": style.dash, "color": style.colour, "linewidth": 1.4}
    axes.plot([], [], markerfacecolor=face, label=shortened(series.name), **sample)


def _cross(axes: Axes, crossing: CrossingMark, data: LoadLines) -> None:
    """Draw a mark on the level at the crossing and a bar over its interval, open where the interval is open."""
    assert data.level is not None, "a crossing is one of a level"
    at = load_position(crossing.at, data.loads)
    low = -0.5 if crossing.low is None else load_position(crossing.low, data.loads)
    high = len(data.loads) - 0.5 if crossing.high is None else load_position(crossing.high, data.loads)
    axes.plot([low, high], [data.level] * 2, color=crossing.style.colour, linewidth=5, alpha=0.45, zorder=2)
    axes.plot([at], [data.level], marker="|", markersize=16, markeredgewidth=2.2, color=crossing.style.colour, zorder=5)


def load_position(load: float, loads: Sequence[float]) -> float:
    """Return the x position of a load between the measured ones, on a logarithmic scale as crossings are interpolated.

    A load beyond the measured ones is placed half a position outside.
    """
    if load < loads[0]:
        return -0.5
    for place, (below, above) in enumerate(pairwise(loads)):
        if load <= above:
            return place + math.log(load / below) / math.log(above / below)
    return float(len(loads) - 1) if load == loads[-1] else len(loads) - 0.5


# Values along a number, such as the batch size.


@dataclass(frozen=True)
class NumberLines:
    """Series over numbers greater than 0 on a logarithmic axis (base 2); all series share the same numbers."""

    at: tuple[float, ...]
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    level: float | None = None


def draw_number_lines(axes: Axes, *, data: NumberLines, theme: Theme) -> None:
    """Draw lines with bands; they break at missing values."""
    axes.set_xscale("log", base=2)
    for each in data.series:
        draw_line(axes, each, data.at, theme)
    if data.level is not None:
        reference_line(axes, data.level)
    grid(axes)
    format_numbers(axes, "y")
    axes.xaxis.set_major_locator(FixedLocator(data.at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(data.at, [f"{at:g}" for at in data.at])
    axes.set_xlabel(data.x_label)
    axes.set_ylabel(data.y_label)
