"""What all plots share: axes without clutter, ticks with names, names that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from specbench_client.report.plots.ink import GREY_LIGHT, Theme

Looks = dict[str, Any]
"""Keywords that matplotlib takes."""

LETTERS_PT = 9
SMALL_PT = 8
NAME_MAX = 32
"""Letters of a name in a plot: an arm's is never longer. Those of categories may be; the tables have them whole."""
SLANT_IN = 0.037
"""Height of a letter in a slanted name: half its width, at 30 degrees."""
SLANTED_FROM = 38
"""Letters under one axis from which on its labels are slanted."""


def dress(axes: Axes, theme: Theme) -> None:
    """No frame, no background; letters and axes in the theme's ink."""
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
    """Thin lines that help to read values off one axis."""
    axes.grid(axis="x" if along == "x" else "y", color=GREY_LIGHT, alpha=0.3, linewidth=0.6)


def named_x(axes: Axes, labels: Sequence[str]) -> None:
    """One tick a place, named; slanted where the names are long, thinned where places are very many."""
    shown = _shown(labels)
    slanted = _slanted(shown)
    axes.xaxis.set_major_locator(FixedLocator(list(range(len(labels)))))
    axes.xaxis.set_minor_locator(NullLocator())
    turn: Looks = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    axes.set_xticks(range(len(labels)), shown, **turn)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def slant_in(labels: Sequence[str]) -> float:
    """Inches that slanted names take below the axis, beyond what a line of letters does; 0 where they lie."""
    shown = _shown(labels)
    return SLANT_IN * max(map(len, shown)) if _slanted(shown) else 0.0


def _shown(labels: Sequence[str]) -> list[str]:
    every = max(1, -(-len(labels) // 16))
    return [shortened(label) if place % every == 0 else "" for place, label in enumerate(labels)]


def _slanted(shown: Sequence[str]) -> bool:
    return sum(len(label) + 1 for label in shown) > SLANTED_FROM


def named_y(axes: Axes, labels: Sequence[str]) -> None:
    """One row a name, the first on top."""
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(labels)), [shortened(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def numbers(axes: Axes, which: str) -> None:
    """Plain numbers, few of them, without an offset."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def level_line(axes: Axes, at: float, *, upright: bool = False) -> None:
    """A dashed line of reference."""
    draw = axes.axvline if upright else axes.axhline
    draw(at, color=GREY_LIGHT, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)


def shortened(name: str, most: int = NAME_MAX) -> str:
    """A name that fits: its middle left out, since names of drafters often differ at their ends.

    A dollar sign is escaped: matplotlib would read a formula.
    """
    if len(name) > most:
        head = (most - 1) // 2
        name = f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"
    return name.replace("$", r"\$")


def shift(index: int, count: int, room: float) -> float:
    """Where the index-th of so many neighbours stands around its tick."""
    return (index - (count - 1) / 2) * room / max(1, count)
