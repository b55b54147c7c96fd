"""Where one drafter's steps emit more tokens than another's: by length of the answer and by position in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.slices import Slice, Slices
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.data import reading
from specbench_client.report.plots.heatmap import HeatMap, draw_heatmap, height_of
from specbench_client.report.plots.sections.cells import known, lightest, sizes
from specbench_client.report.plots.sections.section import Drawn
from specbench_client.trust.checks.few_prompts import INTERVAL_FROM

PAIRS_MAX = 3
"""Pairs of drafters of a workload that are drawn, which is all of three; the first of the run's arms come first."""
EVERY = "all answers"
MEANING = "Acceptance length (emitted, pooled over steps) of the first drafter − of the second, in tokens a step."
NOTE = (
    "Blue: the first emits more; orange: the second does; –: not known of both, or of fewer than"
    f" {INTERVAL_FROM} prompts. No intervals: a difference of two lengths, whose own intervals specbench slices tells."
)
Grid = Mapping[str, Mapping[str, float]]
"""Class of length → class of position → acceptance length."""


def by_difference(summary: RunSummary) -> Drawn | None:
    """A panel a pair of drafters, at the lightest load; None where no two of them tell acceptance by position."""
    maps: list[tuple[str, HeatMap]] = []
    figures: list[Figure] = []
    left_out = 0
    for title, cells in lightest(summary, lambda cell: cell.valid and _slices(cell).by_position):
        pairs = list(combinations(cells, 2))
        left_out += max(0, len(pairs) - PAIRS_MAX)
        found = [(f"{one.arm} − {other.arm}, {title}", _map(one, other)) for one, other in pairs[:PAIRS_MAX]]
        figures += known(_length(each) for cell in cells for each in _slices(cell).by_position)
        maps += [(words, data) for words, data in found if data.rows]
    if not maps:
        return None
    farthest = max(data.reach for _, data in maps)
    panels = tuple(_panel(title, replace(data, farthest=farthest)) for title, data in maps)
    more = f" {left_out} more pairs are not drawn." if left_out else ""
    caption = f"{MEANING} {sizes(figures)} {NOTE}{more}"
    return Drawn(panels, caption)


def _panel(title: str, data: HeatMap) -> Panel:
    return Panel(partial(draw_heatmap, data=data), title, told(data), height_of(len(data.rows)))


def told(data: HeatMap) -> str:
    """The least and the greatest of its values in words, for who cannot see them; empty where none is known."""
    found = [
        (value, f"{row} tokens, position {column}")
        for row, values in zip(data.rows, data.values, strict=True)
        for value, column in zip(values, data.columns, strict=True)
        if value is not None
    ]
    if not found:
        return ""
    (low, least), (high, most) = min(found), max(found)
    return f"from {low:+.2f} ({least}) to {high:+.2f} ({most})"


def _map(one: Cell, other: Cell) -> HeatMap:
    """Rows and columns that both have; no rows where they share nothing."""
    first, second = _grid(one), _grid(other)
    rows = tuple(row for row in first if row in second and first[row].keys() & second[row].keys())
    columns = tuple(first[EVERY]) if rows else ()
    values = tuple(tuple(_difference(first[row], second[row], column) for column in columns) for row in rows)
    return HeatMap(
        rows, columns, values, "position in the output, tokens; a row a length of the answer", form="{:+.2f}"
    )


def _grid(cell: Cell) -> Grid:
    slices = _slices(cell)
    classes = {group.whole.label: group.by_position for group in slices.by_length if group.by_position}
    return {EVERY: _lengths(slices.by_position), **{name: _lengths(found) for name, found in classes.items()}}


def _lengths(slices: Sequence[Slice]) -> dict[str, float]:
    """Of classes that enough prompts reach: a cell of two answers would have the fullest colour of all."""
    found = {each.label: reading(_length(each)) for each in slices if each.prompts >= INTERVAL_FROM}
    return {label: each.value for label, each in found.items() if each is not None}


def _slices(cell: Cell) -> Slices:
    """An older summary has none."""
    return cell.slices or Slices()


def _length(each: Slice) -> Figure | None:
    return each.figures.get(Headline.ACCEPTANCE_LENGTH)


def _difference(one: Mapping[str, float], other: Mapping[str, float], column: str) -> float | None:
    return one[column] - other[column] if column in one and column in other else None
