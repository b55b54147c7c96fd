"""What a plot is drawn from: plain numbers with their bounds. Missing stays missing: it leaves a gap, never a 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.outcome.figure import Figure
from specbench_client.report.plots.ink import Style

NAN = float("nan")


@dataclass(frozen=True)
class Reading:
    """One value, its bounds where it has some, and whether it is valid; what is not is drawn hollow."""

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
    """One line, or one set of marks: a reading for each place of the axis, None where there is none."""

    name: str
    style: Style
    readings: tuple[Reading | None, ...]

    @property
    def known(self) -> list[tuple[int, Reading]]:
        """Place and reading of those that are there."""
        return [(place, each) for place, each in enumerate(self.readings) if each is not None]

    @property
    def values(self) -> list[float]:
        """One a place; NaN, which breaks a line, where there is none."""
        return [NAN if each is None else each.value for each in self.readings]


def reading(figure: Figure | None, *, valid: bool = True, bounds: bool = True) -> Reading | None:
    """A figure as it is drawn; None where it is missing or no finite number."""
    if figure is None or figure.value is None or not math.isfinite(figure.value):
        return None
    held = figure.interval if bounds else None
    return Reading(figure.value, held.low if held else None, held.high if held else None, valid)


def told(series: Sequence[Series], places: Sequence[str]) -> str:
    """The series in words, for who cannot see them: first and last value of each."""
    return "; ".join(_told(each, places) for each in series if each.known)


def _told(series: Series, places: Sequence[str]) -> str:
    (first, begin), (last, end) = series.known[0], series.known[-1]
    only = f"{series.name} {begin.value:.3g} at {places[first]}"
    return only if first == last else f"{only} to {end.value:.3g} at {places[last]}"
