"""The numbers of a plot with their bounds. A missing value leaves a gap and is never drawn as 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.figure import Figure
from specbench_client.report.plots.styles import Style

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
        """Distances down and up to the bounds; 0 where there are none, or where the value lies beyond one."""
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
    return "; ".join(_told(each, places) for each in series if each.known)


def _told(series: Series, places: Sequence[str]) -> str:
    (first, begin), (last, end) = series.known[0], series.known[-1]
    only = f"{series.name} {begin.value:.3g} at {places[first]}"
    return only if first == last else f"{only} to {end.value:.3g} at {places[last]}"
