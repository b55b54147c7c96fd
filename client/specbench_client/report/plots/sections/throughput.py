"""Output tokens per second of the engine: by load, and against the speed of one stream (the Pareto frontier)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from specbench_api.outcome.figure import StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.report.plots.bars import Bar, Bars, Part, bars_panel
from specbench_client.report.plots.canvas import (
    SMALL_PT,
    DrawArguments,
    Panel,
    PanelGroup,
    format_numbers,
    grid,
    shortened,
)
from specbench_client.report.plots.sections.cells import (
    INVALID,
    amount,
    arm_label,
    arms,
    at_load,
    cell_of,
    figure_of,
    known,
    loads,
    rests_on,
    workloads,
)
from specbench_client.report.plots.series import plot_value
from specbench_client.report.plots.styles import Style, Theme, arm_styles, split_into_panels

OUTPUT_TPS = "output_tps"
NOTE = (
    "The percentage is the gap over the baseline's bar at the same load, between valid cells; the paired comparison is"
    " the speed-up. Each load has its own scale."
)


def throughput(summary: RunSummary) -> PanelGroup | None:
    """One panel a workload and load, each with its own scale, because throughput grows many times with load."""
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels = []
    for workload, cells in workloads(summary):
        names = list(dict.fromkeys(cell.arm for cell in cells))
        for level in loads(cells):
            rows = tuple(_bar(cells, arm, level, looks) for arm in names)
            if any(row.parts for row in rows):
                panels.append(bars_panel(Bars(rows, "output tokens a second"), at_load(level, workload)))
    figures = known(cell.figures.get(OUTPUT_TPS) for cell in summary.cells)
    caption = f"{rests_on(figures)} {NOTE} {INVALID}"
    return PanelGroup(tuple(panels), caption) if panels else None


def _bar(cells: Sequence[Cell], arm: str, level: Level, looks: Mapping[str, Style]) -> Bar:
    cell = cell_of(cells, arm, level)
    shown = plot_value(figure_of(cell, OUTPUT_TPS), valid=bool(cell and cell.valid))
    if shown is None:
        return Bar(arm_label(arm), (), "not measured" if cell is None else "missing")
    part = Part(shown.value, looks[arm])
    text = " ".join((amount(shown.value), *_gap(shown.value, cell_of(cells, BASELINE_NAME, level), cell)))
    return Bar(arm_label(arm), (part,), text, shown.valid, shown.low, shown.high)


def _gap(value: float, baseline: Cell | None, cell: Cell | None) -> list[str]:
    """Return the difference from the baseline in percent; empty unless both are valid."""
    under = figure_of(baseline, OUTPUT_TPS)
    if baseline is None or cell is None or cell.arm == BASELINE_NAME or under is None or not under.value:
        return []
    return [f"({value / under.value - 1:+.0%})"] if baseline.valid and cell.valid else []


# Speed of one stream against throughput of the engine: each arm's path over the loads, and the Pareto frontier.

ROOM = (0.12, 0.09)
"""Share of the plot's width and height that a label needs."""


@dataclass(frozen=True)
class Spot:
    """One load of one arm: speed of a stream (x) and throughput of the engine (y); more is better in both."""

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
    """The paths of a panel, and the frontier over the paths of all panels."""

    paths: tuple[Path, ...]
    frontier: tuple[Spot, ...]
    x_label: str
    y_label: str


def frontier(spots: Sequence[Spot]) -> tuple[Spot, ...]:
    """Return the valid spots that no other valid one beats in both, from left to right.

    Of equal spots, only the first is returned.
    """
    best: list[Spot] = []
    for spot in sorted((each for each in spots if each.valid), key=lambda each: (-each.x, -each.y)):
        if not best or spot.y > best[-1].y:
            best.append(spot)
    return tuple(reversed(best))


def labelled(paths: Sequence[Sequence[Spot]]) -> list[Spot]:
    """Return the first and the last spot of each path, without those whose labels would overlap."""
    spots = [spot for path in paths for spot in path]
    wide = ROOM[0] * (max(spot.x for spot in spots) - min(spot.x for spot in spots)) if spots else 0.0
    high = ROOM[1] * (max(spot.y for spot in spots) - min(spot.y for spot in spots)) if spots else 0.0
    kept: list[Spot] = []
    for spot in dict.fromkeys(each for path in paths if path for each in (path[0], path[-1])):
        if all(abs(spot.x - other.x) > wide or abs(spot.y - other.y) > high for other in kept):
            kept.append(spot)
    return kept


def draw_pareto(axes: Axes, *, data: Pareto, theme: Theme) -> None:
    """Draw the paths; their ends are labelled with the load where there is room; invalid spots are hollow."""
    if data.frontier:
        across, up = [spot.x for spot in data.frontier], [spot.y for spot in data.frontier]
        line: DrawArguments = {"color": theme.ink, "linewidth": 5, "alpha": 0.18, "solid_capstyle": "round"}
        axes.plot(across, up, zorder=1, marker="o", markersize=9, label="frontier", **line)
    for path in data.paths:
        _draw_path(axes, path, theme)
    for spot in labelled([path.spots for path in data.paths]):
        place: DrawArguments = {
            "textcoords": "offset points",
            "xytext": (5, 4),
            "fontsize": SMALL_PT,
            "color": theme.ink,
        }
        axes.annotate(shortened(spot.load), (spot.x, spot.y), **place)
    grid(axes)
    format_numbers(axes, "x")
    format_numbers(axes, "y")
    axes.margins(0.1, 0.12)
    axes.set_xlabel(data.x_label)
    axes.set_ylabel(data.y_label)


def _draw_path(axes: Axes, path: Path, theme: Theme) -> None:
    style = path.style
    line: DrawArguments = {"color": style.colour, "linestyle": style.dash, "linewidth": 1.3}
    axes.plot([spot.x for spot in path.spots], [spot.y for spot in path.spots], zorder=3, **line)
    for spot in path.spots:
        face = style.colour if spot.valid else theme.paper
        axes.plot(spot.x, spot.y, style.marker, color=style.colour, markerfacecolor=face, markersize=6, zorder=4)
    axes.plot([], [], marker=style.marker, markersize=6, label=shortened(path.name), **line)


PER_GPU, WHOLE = "output_tps_per_gpu", "output_tps"


def pareto(summary: RunSummary) -> PanelGroup | None:
    """One panel a workload and group of arms, with the baseline in each; the frontier is of all arms."""
    up = PER_GPU if any(figure_of(cell, PER_GPU) for cell in summary.cells) else WHOLE
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels = []
    for workload, cells in workloads(summary):
        paths = [path for arm in [BASELINE_NAME, *arms(cells)] if (path := _path(cells, arm, up, looks)).spots]
        best = frontier([spot for path in paths for spot in path.spots])
        for group in _groups_with_baseline(paths):
            data = Pareto(tuple(group), best, "tokens a second of one user (median)", _label(up))
            panels.append(Panel(partial(draw_pareto, data=data), workload, f"frontier: {_named(paths, best)}"))
    figures = known(cell.figures.get(up) for cell in summary.cells)
    note = (
        "Up: more from the machine; right: more for each user. The grey line is the Pareto front. Labels at the ends of"
        " a line are loads; some are omitted for lack of room."
    )
    caption = f"{rests_on(figures, bounds=False)} {note} {INVALID}"
    return PanelGroup(tuple(panels), caption) if panels else None


def _path(cells: Sequence[Cell], arm: str, up: str, looks: Mapping[str, Style]) -> Path:
    spots = []
    for level in loads(cells):
        cell = cell_of(cells, arm, level)
        user, engine = figure_of(cell, StatusFigure.USER_TPS), figure_of(cell, up)
        if cell and user and engine and user.value is not None and engine.value is not None:
            spots.append(Spot(level.label, user.value, engine.value, cell.valid))
    return Path(arm_label(arm), looks[arm], tuple(spots))


def _groups_with_baseline(paths: Sequence[Path]) -> list[list[Path]]:
    """Return the groups of arms with the baseline added to each, where it was measured."""
    always = [path for path in paths if path.name == arm_label(BASELINE_NAME)]
    others = {path.name: path for path in paths if path not in always}
    groups = [[others[name] for name in names] for names in split_into_panels(list(others))]
    return [[*always, *group] for group in groups] or ([always] if always else [])


def _named(paths: Sequence[Path], best: Sequence[Spot]) -> str:
    at = [(path.name, spot) for spot in best for path in paths if spot in path.spots]
    return ", ".join(f"{name} at {spot.load} ({spot.x:.3g}, {spot.y:.3g})" for name, spot in at) or "no valid point"


def _label(name: str) -> str:
    return "output tokens a second of a GPU" if name == PER_GPU else "output tokens a second of the engine"
