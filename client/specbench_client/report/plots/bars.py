"""Horizontal bars, one row each, so that long and many names remain readable; whole or in parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from specbench_client.report.plots.canvas import (
    SMALL_PT,
    WIDTH_IN,
    DrawArguments,
    Panel,
    format_numbers,
    grid,
    label_rows,
)
from specbench_client.report.plots.styles import Style, Theme

ROW_IN = 0.27
"""Height of a row."""
FRAME_IN = 0.95
"""Height of title, ticks and axis label in inches."""
LETTER_IN = 0.073
"""Width of a letter of names and texts in inches, for the widest fonts of browsers."""
EDGES_IN = 0.4
"""Share of the panel's width that is neither names nor axis."""
LEAST = 0.3
"""Smallest share of the axis for the longest bar."""
BEHIND = 0.015
"""Share of the axis between a bar and its text."""


@dataclass(frozen=True)
class Part:
    """One part of a bar."""

    size: float
    style: Style


@dataclass(frozen=True)
class Bar:
    """One row. Without parts there is no bar, and the text gives the reason."""

    name: str
    parts: tuple[Part, ...]
    text: str
    valid: bool = True
    low: float | None = None
    """Bounds of the total, where it has some."""
    high: float | None = None

    @property
    def length(self) -> float:
        """Length of the total."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class Bars:
    """Rows over one axis; the legend names parts by their style."""

    rows: tuple[Bar, ...]
    x_label: str
    legend: tuple[tuple[str, Style], ...] = ()
    longest: float | None = None
    """The longest bar of all panels that share a scale; None: of this panel."""


def bars_panel(data: Bars, title: str) -> Panel:
    """Return a panel of the rows; for screen readers, the name and the text of each."""
    words = ", ".join(f"{row.name} {row.text}" for row in data.rows)
    return Panel(partial(draw_bars, data=data), title, words, FRAME_IN + ROW_IN * max(2, len(data.rows)))


def draw_bars(axes: Axes, *, data: Bars, theme: Theme) -> None:
    """Draw the bars; invalid ones are hollow."""
    longest = data.longest or max((bar.high or bar.length for bar in data.rows), default=0.0)
    axes.set_xlim(0, longest / _share(data) if longest > 0 else 1)
    for row, bar in enumerate(data.rows):
        _row(axes, row, bar, theme)
        end = max(bar.length, bar.high or 0.0) + axes.get_xlim()[1] * BEHIND
        axes.text(end, row, bar.text, va="center", fontsize=SMALL_PT, color=theme.ink)
    for name, style in data.legend:
        axes.barh([0], [0], label=name, **_looks(style, theme, valid=True))
    label_rows(axes, [bar.name for bar in data.rows])
    grid(axes, "x")
    format_numbers(axes, "x")
    axes.set_xlabel(data.x_label)


def _share(data: Bars) -> float:
    """Return the share of the axis for the longest bar that leaves room for the longest text."""
    axis_in = WIDTH_IN - EDGES_IN - LETTER_IN * max(len(bar.name) for bar in data.rows)
    return max(LEAST, 1 - LETTER_IN * (2 + max(len(bar.text) for bar in data.rows)) / axis_in)


def _row(axes: Axes, row: int, bar: Bar, theme: Theme) -> None:
    begin = 0.0
    for part in bar.parts:
        axes.barh([row], [part.size], left=begin, height=0.66, **_looks(part.style, theme, valid=bar.valid))
        begin += part.size
    if bar.low is not None and bar.high is not None:
        reach = [[max(0.0, begin - bar.low)], [max(0.0, bar.high - begin)]]
        axes.errorbar([begin], [row], xerr=reach, fmt="none", ecolor=theme.ink, capsize=2, linewidth=1)


def _looks(style: Style, theme: Theme, *, valid: bool) -> DrawArguments:
    if not valid:
        return {"facecolor": theme.paper, "edgecolor": style.colour, "linewidth": 1.2, "linestyle": "--"}
    return {"facecolor": style.colour, "edgecolor": theme.paper, "linewidth": 0.5, "hatch": style.hatch}
