"""Acceptance along each answer: one line a request, the shortest first, and one panel an arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from specbench_api.outcome.breakdown import AcceptedMap, BreakdownSlice, TokenRange
from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel, PanelGroup
from specbench_client.report.plots.heatmap import HeatMap, describe_extremes, heatmap_panel
from specbench_client.report.plots.sections.cells import is_placed, known, lightest, placement_note, sizes
from specbench_client.report.plots.series import plot_value
from specbench_client.trust.checks.prompts import INTERVAL_FROM

ARMS_MAX = 2
"""Arms of a workload that are drawn: a map is large, and `analyze breakdown --arm` draws the others."""
ROW_IN = 0.13
REQUESTS_NOTE = (
    "Each line is one request, labelled with its output tokens, the shortest answer first. If there are more requests"
    " than lines, a line is the mean of neighbouring requests. Columns are positions in the output. A deeper blue means"
    " more tokens per step. Empty: no step began there, or the answer is shorter."
)


def by_request(summary: RunSummary) -> PanelGroup | None:
    """A panel an arm, at the lightest load; None where no arm's steps can be placed."""
    maps, left_out = list[tuple[str, AcceptedMap]](), 0
    for title, cells in lightest(summary, lambda cell: is_placed(cell) and cell.breakdown.accepted_map):
        left_out += max(0, len(cells) - ARMS_MAX)
        maps += [
            (f"{cell.arm}, {title}", cell.breakdown.accepted_map)
            for cell in cells[:ARMS_MAX]
            if cell.breakdown.accepted_map is not None
        ]
    if not maps:
        return None
    found = [drawn for _, drawn in maps]
    farthest = max(_reach(drawn) for drawn in found)
    panels = [_panel(title, drawn, farthest) for title, drawn in maps]
    counts = [drawn.requests for drawn in found]
    requests = " to ".join(dict.fromkeys(f"{count:,}" for count in (min(counts), max(counts))))
    more = (
        f" {left_out} more arms are not drawn: specbench analyze breakdown --arm NAME --plot FILE." if left_out else ""
    )
    caption = f"{found[0].definition}. n {requests} requests of one repeat. {REQUESTS_NOTE}{more}"
    return PanelGroup(tuple(panels), f"{caption} {placement_note(summary)}".rstrip())


def _panel(title: str, drawn: AcceptedMap, farthest: float) -> Panel:
    """`farthest`: the distance from 1 that has the full colour in all maps."""
    rows, columns = ([_label(each) for each in places] for places in (drawn.rows, drawn.columns))
    values = tuple(tuple(row) for row in drawn.emitted)
    data = HeatMap(
        tuple(rows),
        tuple(columns),
        values,
        "position in the output, tokens",
        middle=1.0,
        farthest=farthest,
        row_in=ROW_IN,
    )
    return heatmap_panel(data, title, _words(drawn))


def _words(drawn: AcceptedMap) -> str:
    known = [value for row in drawn.emitted for value in row if value is not None]
    answers = f"answers of {drawn.rows[0].first:,} to {drawn.rows[-1].last:,} tokens"
    return f"{answers}: from {min(known):.2f} to {max(known):.2f} tokens a step"


def _label(each: TokenRange) -> str:
    return f"{each.first:,}" if each.first == each.last else f"{each.first:,}–{each.last:,}"


def _reach(drawn: AcceptedMap) -> float:
    return max(value - 1 for row in drawn.emitted for value in row if value is not None)


# Where one drafter's steps emit more tokens than another's: by length of the answer and by position in it.

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
