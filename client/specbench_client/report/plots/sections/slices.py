"""Acceptance by place in the output, and its spread over requests: of cells that tell slices of themselves.

Slices are asked for by form: whatever has a label and figures is one. Sections are made by handing over where a cell
has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.boxes import Box, Boxes, draw_boxes, height_of
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.data import reading, told
from specbench_client.report.plots.ink import TOGETHER, Style, companies, style, styles_of
from specbench_client.report.plots.loads import OverLoads, draw_over_loads
from specbench_client.report.plots.sections.cells import (
    INVALID,
    arm_label,
    arms,
    known,
    lightest,
    rests_on,
    series_of,
)
from specbench_client.report.plots.sections.section import Drawn

WHISKERS = "Box: quartiles, with the median; whiskers: the 10th and the 90th percentile. n: requests."

CLASSES_MIN = 2


class Slice(Protocol):
    """One class of steps or of requests."""

    @property
    def label(self) -> str: ...
    @property
    def figures(self) -> Mapping[str, Figure]: ...


class Group(Protocol):
    """One class of answers, and their steps by position."""

    @property
    def whole(self) -> Slice: ...
    @property
    def by_position(self) -> Sequence[Slice]: ...


class Spread(Protocol):
    """How one number differs from request to request."""

    @property
    def definition(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def deciles(self) -> Sequence[float]: ...
    @property
    def lower_quartile(self) -> float: ...
    @property
    def median(self) -> float: ...
    @property
    def upper_quartile(self) -> float: ...


def by_place(
    summary: RunSummary, of: Callable[[Cell], Sequence[Slice]], x_label: str, name: str = Headline.ACCEPTANCE_LENGTH
) -> Drawn | None:
    """Acceptance length by slice, an arm a line, at the lightest load. of: a cell's slices, in their order.

    Left out where all steps are of one class: a line of one point says nothing of a course.
    """
    looks = styles_of(cell.arm for cell in summary.cells)
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, lambda cell: bool(of(cell))):
        labels = tuple(dict.fromkeys(each.label for cell in cells for each in of(cell)))
        if len(labels) < CLASSES_MIN:
            continue
        for together in companies(arms(cells)):
            mine = [cell for cell in cells if cell.arm in together]
            lines = [(cell.arm, looks[cell.arm], cell.valid, of(cell)) for cell in mine]
            panels.append(_panel(title, labels, lines, x_label, name))
            drawn += known(each.figures.get(name) for cell in mine for each in of(cell))
    return Drawn(tuple(panels), f"{rests_on(drawn)} {INVALID}") if drawn else None


def by_length(
    summary: RunSummary, of: Callable[[Cell], Sequence[Group]], x_label: str, name: str = Headline.ACCEPTANCE_LENGTH
) -> Drawn | None:
    """Acceptance length by position, answers of one class of total length a line, an arm a panel, at the lightest load.

    of: a cell's classes of answers; more than `TOGETHER` are not drawn.
    """
    panels, drawn = [], list[Figure]()
    for title, cells in lightest(summary, lambda cell: any(group.by_position for group in of(cell))):
        for cell in cells:
            groups = [group for group in of(cell) if group.by_position][:TOGETHER]
            labels = tuple(dict.fromkeys(each.label for group in groups for each in group.by_position))
            lines = [
                (f"{group.whole.label} tokens", style(index), cell.valid, group.by_position)
                for index, group in enumerate(groups)
            ]
            panels.append(_panel(f"{cell.arm}, {title}", labels, lines, x_label, name))
            drawn += known(each.figures.get(name) for group in groups for each in group.by_position)
    return Drawn(tuple(panels), f"{rests_on(drawn)} {INVALID}") if drawn else None


def by_request(summary: RunSummary, of: Callable[[Cell], Spread | None]) -> Drawn | None:
    """A box an arm, a panel a workload, at the lightest load. of: how acceptance is spread over a cell's requests."""
    looks = styles_of(cell.arm for cell in summary.cells)
    panels, definitions = [], []
    for title, cells in lightest(summary, lambda cell: of(cell) is not None):
        spreads = [(cell.arm, spread) for cell in cells if (spread := of(cell)) is not None]
        rows = tuple(_box(arm, looks[arm], spread) for arm, spread in spreads)
        words = ", ".join(f"{row.name} median {row.median:.3g}" for row in rows)
        data = Boxes(rows, "tokens a step of one request", level=1.0)
        panels.append(Panel(partial(draw_boxes, data=data), title, words, height_of(len(rows))))
        definitions += [spread.definition for _, spread in spreads]
    return Drawn(tuple(panels), f"{definitions[0]}. {WHISKERS}") if panels else None


def _box(arm: str, looks: Style, spread: Spread) -> Box:
    quartiles = (spread.lower_quartile, spread.median, spread.upper_quartile)
    return Box(arm_label(arm), looks, spread.deciles[0], *quartiles, spread.deciles[-1], spread.n)


Line = tuple[str, Style, bool, Sequence[Slice]]
"""Name, style, whether its cell is valid, and its slices."""


def _panel(title: str, labels: Sequence[str], lines: Sequence[Line], x_label: str, name: str) -> Panel:
    drawn = []
    for named, looks, valid, slices in lines:
        found = {each.label: reading(each.figures.get(name), valid=valid) for each in slices}
        drawn.append(series_of(named, looks, [found.get(label) for label in labels]))
    data = OverLoads(tuple(labels), tuple(drawn), x_label, "tokens a step", level=1.0)
    return Panel(partial(draw_over_loads, data=data), title, told(drawn, labels))
