"""Acceptance length by position and by context, and its distribution over requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from specbench_api.outcome.breakdown import BreakdownSlice, LengthClass, RequestDistribution
from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import (
    SMALL_PT,
    DrawArguments,
    Panel,
    PanelGroup,
    format_numbers,
    grid,
    label_rows,
    reference_line,
)
from specbench_client.report.plots.sections.cells import (
    INVALID,
    arm_label,
    arms,
    is_placed,
    known,
    lightest,
    placement_note,
    rests_on,
    series_of,
)
from specbench_client.report.plots.series import LoadLines, describe_series, lines_panel, plot_value
from specbench_client.report.plots.styles import (
    SERIES_PER_PANEL_MAX,
    Style,
    Theme,
    arm_styles,
    series_style,
    split_into_panels,
)

# The distribution of a value over requests: a box between quartiles, whiskers at the 10th and the 90th percentile.

ROW_IN = 0.34
FRAME_IN = 0.95


@dataclass(frozen=True)
class Box:
    """Five numbers of a distribution, and the number of requests."""

    name: str
    style: Style
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float
    n: int


@dataclass(frozen=True)
class Boxes:
    """Rows under one axis."""

    rows: tuple[Box, ...]
    x_label: str
    level: float | None = None
    """A line of reference."""


def boxes_height(rows: int) -> float:
    """Return the height in inches of a panel with so many boxes."""
    return FRAME_IN + ROW_IN * max(2, rows)


def draw_boxes(axes: Axes, *, data: Boxes, theme: Theme) -> None:
    """Draw one row per box."""
    for row, box in enumerate(data.rows):
        colour = box.style.colour
        inside: DrawArguments = {"facecolor": colour, "edgecolor": colour, "alpha": 0.35, "height": 0.56}
        axes.barh([row], [box.three_quarters - box.quarter], left=box.quarter, **inside)
        for begin, end in ((box.low, box.quarter), (box.three_quarters, box.high)):
            axes.plot([begin, end], [row, row], color=colour, linewidth=1.2)
        for at in (box.low, box.high):
            axes.plot([at, at], [row - 0.16, row + 0.16], color=colour, linewidth=1.2)
        axes.plot([box.median] * 2, [row - 0.28, row + 0.28], color=theme.ink, linewidth=1.8)
    if data.level is not None:
        reference_line(axes, data.level, upright=True)
    label_rows(axes, [box.name for box in data.rows])
    grid(axes, "x")
    format_numbers(axes, "x")
    axes.margins(x=0.14)
    for row, box in enumerate(data.rows):
        place: DrawArguments = {"textcoords": "offset points", "xytext": (6, 0), "va": "center", "fontsize": SMALL_PT}
        axes.annotate(f"n {box.n}", (box.high, row), color=theme.ink, **place)
    axes.set_xlabel(data.x_label)


WHISKERS = "Box: quartiles, with the median; whiskers: the 10th and the 90th percentile. n: requests."

CLASSES_MIN = 2


def by_place(
    summary: RunSummary,
    of: Callable[[Cell], Sequence[BreakdownSlice]],
    x_label: str,
    name: str = StatusFigure.ACCEPTANCE_LENGTH,
) -> PanelGroup | None:
    """Acceptance length by position or context at the lightest load, one line an arm. `of`: a cell's slices.

    Not drawn where all steps are in one class. Arms whose steps have no known position are named in the caption.
    """
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, lambda cell: is_placed(cell) and bool(of(cell))):
        labels = tuple(dict.fromkeys(each.label for cell in cells for each in of(cell)))
        if len(labels) < CLASSES_MIN:
            continue
        for together in split_into_panels(arms(cells)):
            mine = [cell for cell in cells if cell.arm in together]
            lines = [(cell.arm, looks[cell.arm], cell.valid, of(cell)) for cell in mine]
            panels.append(_panel(title, labels, lines, x_label, name))
            drawn += known(each.figures.get(name) for cell in mine for each in of(cell))
    return PanelGroup(tuple(panels), _caption(summary, drawn)) if drawn else None


def by_length(
    summary: RunSummary,
    of: Callable[[Cell], Sequence[LengthClass]],
    x_label: str,
    name: str = StatusFigure.ACCEPTANCE_LENGTH,
) -> PanelGroup | None:
    """Acceptance length by position, answers of one class of total length a line, an arm a panel, at the lightest load.

    `of`: a cell's classes of answers; at most `SERIES_PER_PANEL_MAX` are drawn.
    """
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, lambda cell: is_placed(cell) and any(each.by_position for each in of(cell))):
        for cell in cells:
            groups = [group for group in of(cell) if group.by_position][:SERIES_PER_PANEL_MAX]
            labels = tuple(dict.fromkeys(each.label for group in groups for each in group.by_position))
            lines = [
                (f"{group.whole.label} tokens", series_style(index), cell.valid, group.by_position)
                for index, group in enumerate(groups)
            ]
            panels.append(_panel(f"{cell.arm}, {title}", labels, lines, x_label, name))
            drawn += known(each.figures.get(name) for group in groups for each in group.by_position)
    return PanelGroup(tuple(panels), _caption(summary, drawn)) if drawn else None


def _caption(summary: RunSummary, drawn: Sequence[Figure]) -> str:
    return " ".join(filter(None, (rests_on(drawn), placement_note(summary), INVALID)))


def by_request(summary: RunSummary, of: Callable[[Cell], RequestDistribution | None]) -> PanelGroup | None:
    """A box an arm, a panel a workload, at the lightest load. `of`: the distribution over a cell's requests."""
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels, definitions = [], []
    for title, cells in lightest(summary, lambda cell: of(cell) is not None):
        spreads = [(cell.arm, spread) for cell in cells if (spread := of(cell)) is not None]
        rows = tuple(_box(arm, looks[arm], spread) for arm, spread in spreads)
        words = ", ".join(f"{row.name} median {row.median:.3g}" for row in rows)
        data = Boxes(rows, "tokens a step of one request", level=1.0)
        panels.append(Panel(partial(draw_boxes, data=data), title, words, boxes_height(len(rows))))
        definitions += [spread.definition for _, spread in spreads]
    return PanelGroup(tuple(panels), f"{definitions[0]}. {WHISKERS}") if panels else None


def _box(arm: str, looks: Style, spread: RequestDistribution) -> Box:
    quartiles = (spread.lower_quartile, spread.median, spread.upper_quartile)
    return Box(arm_label(arm), looks, spread.deciles[0], *quartiles, spread.deciles[-1], spread.n)


Line = tuple[str, Style, bool, Sequence[BreakdownSlice]]
"""Name, style, whether its cell is valid, and its slices."""


def _panel(title: str, labels: Sequence[str], lines: Sequence[Line], x_label: str, name: str) -> Panel:
    drawn = []
    for named, looks, valid, slices in lines:
        found = {each.label: plot_value(each.figures.get(name), valid=valid) for each in slices}
        drawn.append(series_of(named, looks, [found.get(label) for label in labels]))
    data = LoadLines(tuple(labels), tuple(drawn), x_label, "tokens a step", level=1.0)
    return lines_panel(data, title, describe_series(drawn, labels))
