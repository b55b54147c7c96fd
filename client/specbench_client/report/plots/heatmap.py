"""A coloured table: a number in each cell, white where both sides are equal.

Cells keep their colours on a light and on a dark page, so their numbers have an ink of their own: the one of two that
has the greater contrast. Rectangles, not an image: an SVG of the page fetches and embeds nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as MplPath

from specbench_client.report.plots.canvas import SMALL_PT, DrawArguments, Panel, label_columns, label_rows
from specbench_client.report.plots.styles import Theme

BELOW = np.array([0.753, 0.373, 0.016])
"""Orange: less than the middle."""
ABOVE = np.array([0.0, 0.353, 0.745])
"""Blue: more than the middle. Colour-blind readers can distinguish orange and blue."""
MIDDLE = np.array([0.945, 0.945, 0.945])
DARK_INK, LIGHT_INK = "#000001", "#fffffe"
"""Nearly black and white: only they have a contrast of 4.5 on every colour between light and dark."""
CELLS_MAX = 1600
"""With more cells, means of neighbours are drawn: they would be indistinguishable and make the page large."""
NUMBERED_COLUMNS = 14
"""With more columns there is no room for numbers."""
SHADES = 12
"""Shades on each side of the middle where cells have no numbers; more would be indistinguishable."""
FAINTEST = 0.1
"""A smaller difference never has the full colour, even if it is the largest of the map."""
ROW_IN = 0.3
LETTERS_IN = 0.2
"""Height that a line of letters needs."""
FRAME_IN = 1.15


@dataclass(frozen=True)
class HeatMap:
    """Rows × columns; None is a cell without a value."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    x_label: str
    middle: float = 0.0
    """The value without colour: 0 for differences, 1 for ratios."""
    form: str = "{:.2f}"
    farthest: float | None = None
    """The distance from the middle that has the full colour, where several maps share their colours."""
    row_in: float = ROW_IN
    """Height of a row. Where it is less than letters need, not every row is named, and no cell has a number."""

    @property
    def reach(self) -> float:
        """The greatest distance of a value from the middle; 0 without values."""
        return max((abs(value - self.middle) for row in self.values for value in row if value is not None), default=0.0)


def heatmap_panel(data: HeatMap, title: str, words: str, *, names_in: float = 0.0) -> Panel:
    """Return a panel of the map. `names_in`: extra height in inches for the names below its columns."""
    height = FRAME_IN + data.row_in * max(2, len(data.rows)) + names_in
    return Panel(partial(draw_heatmap, data=data), title, words, height)


def describe_extremes(data: HeatMap, cell: str) -> str:
    """Return the smallest and the largest value in words, for screen readers; empty without values.

    `cell`: the words for a cell, with the fields `{row}` and `{column}`.
    """
    found = [
        (value, cell.format(row=row, column=column))
        for row, values in zip(data.rows, data.values, strict=True)
        for value, column in zip(values, data.columns, strict=True)
        if value is not None
    ]
    if not found:
        return ""
    (low, least), (high, most) = min(found), max(found)
    return f"from {data.form.format(low)} ({least}) to {data.form.format(high)} ({most})"


def draw_heatmap(axes: Axes, *, data: HeatMap, theme: Theme) -> None:
    """Colours reach as far on one side of the middle as on the other, to the value farthest from it.

    Raises ValueError where there are too many cells.
    """
    if len(data.rows) * len(data.columns) > CELLS_MAX:
        raise ValueError(f"{len(data.rows)} × {len(data.columns)} cells are more than {CELLS_MAX}: condense them")
    farthest = max(data.farthest or data.reach, FAINTEST)
    numbered = len(data.columns) <= NUMBERED_COLUMNS and data.row_in >= LETTERS_IN
    if not numbered:
        _shade(axes, data, farthest, theme)
    for row, values in enumerate(data.values if numbered else ()):
        for column, value in enumerate(values):
            colour = None if value is None else colour_of((value - data.middle) / farthest)
            looks: DrawArguments = {"facecolor": colour or "none", "edgecolor": theme.paper, "linewidth": 0.8}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **looks))
            text = "–" if value is None else data.form.format(value)
            ink = theme.ink if colour is None else ink_on(colour)
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL_PT, color=ink)
    label_columns(axes, data.columns)
    axes.set_xlim(-0.5, len(data.columns) - 0.5)
    every = max(1, math.ceil(LETTERS_IN / data.row_in))
    label_rows(axes, [name if row % every == 0 else "" for row, name in enumerate(data.rows)])
    axes.set_ylim(len(data.rows) - 0.5, -0.5)
    scale = "" if numbered else f" ({_scale(data, farthest)})"
    axes.set_xlabel(data.x_label + scale)


def _shade(axes: Axes, data: HeatMap, farthest: float, theme: Theme) -> None:
    """Cells without numbers: one path a shade, of few, so that a map of a thousand cells is no heavier than a table."""
    shades: dict[int, list[MplPath]] = {}
    for row, values in enumerate(data.values):
        for column, value in enumerate(values):
            if value is not None:
                share = max(-1.0, min(1.0, (value - data.middle) / farthest))
                shades.setdefault(round(share * SHADES), []).append(_square(row, column))
    for shade, squares in shades.items():
        looks: DrawArguments = {"facecolor": colour_of(shade / SHADES), "edgecolor": theme.paper, "linewidth": 0.8}
        axes.add_patch(PathPatch(MplPath.make_compound_path(*squares), **looks))


def _square(row: int, column: int) -> MplPath:
    low, high, left, right = row - 0.5, row + 0.5, column - 0.5, column + 0.5
    return MplPath([(left, low), (right, low), (right, high), (left, high), (left, low)], closed=True)


def _scale(data: HeatMap, farthest: float) -> str:
    """Draw the colour scale where cells have no numbers: one side of the middle, or both."""
    if any(value is not None and value < data.middle for row in data.values for value in row):
        return f"full colour: {data.middle:g} ± {farthest:.2g}"
    return f"no colour: {data.middle:g}, full: {data.middle + farthest:.2g}"


def colour_of(share: float) -> str:
    """Return the colour of a value: −1 the farthest below the middle, 0 the middle, 1 the farthest above."""
    side = BELOW if share < 0 else ABOVE
    mixed = MIDDLE + (side - MIDDLE) * min(1.0, abs(share))
    return "#" + "".join(f"{round(part * 255):02x}" for part in mixed)


def ink_on(colour: str) -> str:
    """Return the most readable ink on a colour."""
    return max((DARK_INK, LIGHT_INK), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (`#rrggbb`), 1 to 21, as WCAG 2 defines it."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))
