"""Where one drafter's steps emit more tokens than another's: by length of the answer and by position in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from specbench_api.outcome.breakdown import BreakdownSlice
from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import PanelGroup
from specbench_client.report.plots.heatmap import HeatMap, describe_extremes, heatmap_panel
from specbench_client.report.plots.sections.cells import is_placed, known, lightest, placement_note, sizes
from specbench_client.report.plots.series import plot_value
from specbench_client.trust.checks.prompts import INTERVAL_FROM

PAIRS_MAX = 3
"""Pairs of drafters of a workload that are drawn, which is all of three; the first of the run's arms come first."""
EVERY = "all answers"
MEANING = "Acceptance length (emitted, pooled over steps) of the first drafter − of the second, in tokens a step."
DIFFERENCES_NOTE = (
    "Blue: the first emits more; orange: the second does; –: not known of both, or of fewer than"
    f" {INTERVAL_FROM} prompts. No intervals: a difference of two lengths, whose own intervals"
    " specbench analyze breakdown prints."
)
Grid = Mapping[str, Mapping[str, float]]
"""Class of length → class of position → acceptance length."""


def by_difference(summary: RunSummary) -> PanelGroup | None:
    """A panel a pair of drafters, at the lightest load; None unless two of them have acceptance by position."""
    maps: list[tuple[str, HeatMap]] = []
    figures: list[Figure] = []
    left_out = 0
    for title, cells in lightest(summary, lambda cell: cell.valid and is_placed(cell) and cell.breakdown.by_position):
        pairs = list(combinations(cells, 2))
        left_out += max(0, len(pairs) - PAIRS_MAX)
        found = [(f"{one.arm} − {other.arm}, {title}", _difference_map(one, other)) for one, other in pairs[:PAIRS_MAX]]
        figures += known(_length(each) for cell in cells for each in cell.breakdown.by_position)
        maps += [(words, data) for words, data in found if data.rows]
    if not maps:
        return None
    farthest = max(data.reach for _, data in maps)
    words = "{row} tokens, position {column}"
    panels = tuple(
        heatmap_panel(replace(data, farthest=farthest), title, describe_extremes(data, words)) for title, data in maps
    )
    more = f" {left_out} more pairs are not drawn." if left_out else ""
    caption = f"{MEANING} {sizes(figures)} {DIFFERENCES_NOTE}{more} {placement_note(summary)}".rstrip()
    return PanelGroup(panels, caption)


def _difference_map(one: Cell, other: Cell) -> HeatMap:
    """Return the rows and columns that both have; no rows if they share nothing."""
    first, second = _grid(one), _grid(other)
    rows = tuple(row for row in first if row in second and first[row].keys() & second[row].keys())
    columns = tuple(first[EVERY]) if rows else ()
    values = tuple(tuple(_difference(first[row], second[row], column) for column in columns) for row in rows)
    return HeatMap(
        rows, columns, values, "position in the output, tokens; a row a length of the answer", form="{:+.2f}"
    )


def _grid(cell: Cell) -> Grid:
    slices = cell.breakdown
    classes = {group.whole.label: group.by_position for group in slices.by_length if group.by_position}
    return {EVERY: _lengths(slices.by_position), **{name: _lengths(found) for name, found in classes.items()}}


def _lengths(slices: Sequence[BreakdownSlice]) -> dict[str, float]:
    """Return classes that enough prompts reach: a cell of two answers would have the strongest colour."""
    found = {each.label: plot_value(_length(each)) for each in slices if each.prompts >= INTERVAL_FROM}
    return {label: each.value for label, each in found.items() if each is not None}


def _length(each: BreakdownSlice) -> Figure | None:
    return each.figures.get(StatusFigure.ACCEPTANCE_LENGTH)


def _difference(one: Mapping[str, float], other: Mapping[str, float], column: str) -> float | None:
    return one[column] - other[column] if column in one and column in other else None
