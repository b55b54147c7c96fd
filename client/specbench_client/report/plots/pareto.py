"""What a user gets against what the engine gives: each arm's path over the loads, and the frontier of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from specbench_client.report.plots.axes import SMALL_PT, Looks, grid, numbers, shortened
from specbench_client.report.plots.ink import Style, Theme

ROOM = (0.12, 0.09)
"""Of the plot's width and height, that a label takes."""


@dataclass(frozen=True)
class Spot:
    """One load of one arm: what a user sees (x) and what the engine gives (y); more is better in both."""

    load: str
    x: float
    y: float
    valid: bool = True


@dataclass(frozen=True)
class Path:
    """One arm, the lightest load first."""

    name: str
    style: Style
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Pareto:
    """Paths, and the frontier over more than these where the arms are divided over panels."""

    paths: tuple[Path, ...]
    frontier: tuple[Spot, ...]
    x_label: str
    y_label: str


def frontier(spots: Sequence[Spot]) -> tuple[Spot, ...]:
    """The valid spots that no other valid one beats in both, from the left to the right.

    Of spots that are alike, the first stands for all of them.
    """
    best: list[Spot] = []
    for spot in sorted((each for each in spots if each.valid), key=lambda each: (-each.x, -each.y)):
        if not best or spot.y > best[-1].y:
            best.append(spot)
    return tuple(reversed(best))


def labelled(paths: Sequence[Sequence[Spot]]) -> list[Spot]:
    """The first and the last spot of each path, without those that stand where another one's label does."""
    spots = [spot for path in paths for spot in path]
    wide = ROOM[0] * (max(spot.x for spot in spots) - min(spot.x for spot in spots)) if spots else 0.0
    high = ROOM[1] * (max(spot.y for spot in spots) - min(spot.y for spot in spots)) if spots else 0.0
    kept: list[Spot] = []
    for spot in dict.fromkeys(each for path in paths if path for each in (path[0], path[-1])):
        if all(abs(spot.x - other.x) > wide or abs(spot.y - other.y) > high for other in kept):
            kept.append(spot)
    return kept


def draw_pareto(axes: Axes, *, data: Pareto, theme: Theme) -> None:
    """Each path's ends bear their load, where there is room; invalid spots are hollow."""
    if data.frontier:
        across, up = [spot.x for spot in data.frontier], [spot.y for spot in data.frontier]
        line: Looks = {"color": theme.ink, "linewidth": 5, "alpha": 0.18, "solid_capstyle": "round"}
        axes.plot(across, up, zorder=1, marker="o", markersize=9, label="frontier", **line)
    for path in data.paths:
        _path(axes, path, theme)
    for spot in labelled([path.spots for path in data.paths]):
        place: Looks = {"textcoords": "offset points", "xytext": (5, 4), "fontsize": SMALL_PT, "color": theme.ink}
        axes.annotate(shortened(spot.load), (spot.x, spot.y), **place)
    grid(axes)
    numbers(axes, "x")
    numbers(axes, "y")
    axes.margins(0.1, 0.12)
    axes.set_xlabel(data.x_label)
    axes.set_ylabel(data.y_label)


def _path(axes: Axes, path: Path, theme: Theme) -> None:
    style = path.style
    line: Looks = {"color": style.colour, "linestyle": style.dash, "linewidth": 1.3}
    axes.plot([spot.x for spot in path.spots], [spot.y for spot in path.spots], zorder=3, **line)
    for spot in path.spots:
        face = style.colour if spot.valid else theme.paper
        axes.plot(spot.x, spot.y, style.marker, color=style.colour, markerfacecolor=face, markersize=6, zorder=4)
    axes.plot([], [], marker=style.marker, markersize=6, label=shortened(path.name), **line)
