"""Helpers for all plots: plain axes, named ticks and shortened names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from specbench_client.report.plots.styles import GREY_LIGHT, Theme

DrawArguments = dict[str, Any]
"""Keyword arguments for matplotlib."""

LETTERS_PT = 9
SMALL_PT = 8
NAME_MAX = 32
"""Longest name in a plot; names of arms are never longer, and tables show categories in full."""
SLANT_IN = 0.037
"""Height of a letter in a slanted name: half its width, at 30 degrees."""
SLANTED_FROM = 38
"""Number of letters under one axis above which labels are slanted."""


def style_axes(axes: Axes, theme: Theme) -> None:
    """Remove frame and background; draw letters and axes in the theme's ink."""
    axes.patch.set_alpha(0)
    axes.tick_params(colors=theme.ink, which="both", labelsize=LETTERS_PT)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(theme.ink)
        label.set_fontsize(LETTERS_PT)
    for name, spine in axes.spines.items():
        spine.set_visible(name in {"left", "bottom"})
        spine.set_color(theme.ink)
    axes.set_axisbelow(True)


def grid(axes: Axes, along: str = "y") -> None:
    """Draw thin lines that help to read values off one axis."""
    axes.grid(axis="x" if along == "x" else "y", color=GREY_LIGHT, alpha=0.3, linewidth=0.6)


def label_columns(axes: Axes, labels: Sequence[str]) -> None:
    """Label one tick for each place: slanted if names are long, thinned if there are very many places."""
    shown = _shown(labels)
    slanted = _slanted(shown)
    axes.xaxis.set_major_locator(FixedLocator(list(range(len(labels)))))
    axes.xaxis.set_minor_locator(NullLocator())
    turn: DrawArguments = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(range(len(labels)), shown, **turn)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def slanted_height_in(labels: Sequence[str]) -> float:
    """Return the extra height in inches of slanted names below the axis; 0 if they are horizontal."""
    shown = _shown(labels)
    return SLANT_IN * max(map(len, shown)) if _slanted(shown) else 0.0


def _shown(labels: Sequence[str]) -> list[str]:
    every = max(1, -(-len(labels) // 16))
    return [shortened(label) if place % every == 0 else "" for place, label in enumerate(labels)]


def _slanted(shown: Sequence[str]) -> bool:
    return sum(len(label) + 1 for label in shown) > SLANTED_FROM


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label one row for each name, the first on top."""
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(labels)), [shortened(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def format_numbers(axes: Axes, which: str) -> None:
    """Format an axis with a few plain numbers, without an offset."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def reference_line(axes: Axes, at: float, *, upright: bool = False) -> None:
    """Draw a dashed line of reference."""
    draw = axes.axvline if upright else axes.axhline
    draw(at, color=GREY_LIGHT, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)


def shortened(name: str, most: int = NAME_MAX) -> str:
    """Shorten a name in its middle, since names of drafters often differ at their ends.

    A dollar sign is escaped: matplotlib would read a formula.
    """
    if len(name) > most:
        head = (most - 1) // 2
        name = f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"
    return name.replace("$", r"\$")


def dodge(index: int, count: int, room: float) -> float:
    """Return the offset of the index-th of so many neighbours from their tick."""
    return (index - (count - 1) / 2) * room / max(1, count)
