"""Tables of a cell's breakdown: acceptance and speed by position, context, length, part and turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specbench_client.documents.breakdown import Breakdown, BreakdownSlice, RequestDistribution
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.text.text_table import TextTable, Topic, cell_place, number, with_interval

DIMENSIONS = {
    "position": "Steps by output position",
    "context": "Steps by context (prompt and output so far)",
    "part": "Steps by part of the answer (reasoning or final)",
    "length": "Requests by length of the answer",
    "length-position": "Steps by output position, grouped by length of the answer",
    "turn": "Requests by turn",
    "request": "Acceptance length from request to request",
}
"""Name of each dimension → title of its table."""

_HEADS = {"length": "Output tokens", "length-position": "Output tokens: position"}
_KEYS = {"request": "acceptance_by_request", "length-position": "by_length"}
"""Name of a dimension in `Breakdown.missing`, where it differs."""

_FIGURES = {
    "AL emitted [95 %]": "acceptance_length_emitted_pooled",
    "AL verified [95 %]": "acceptance_length_verified_pooled",
    "Accepted [95 %]": "acceptance_rate",
    "TPOT ms [95 %]": "tpot_ms_pooled",
    "TTFT ms [95 %]": "ttft_ms_mean",
}


Line = tuple[str, ...]
"""The texts of one row, or the titles above them."""


def breakdown_topics(summary: RunSummary, dimensions: Sequence[str] = tuple(DIMENSIONS)) -> list[Topic]:
    """Return one topic a dimension, over all cells that have it; its lines state why other cells do not."""
    cells = [(cell, cell.breakdown) for cell in summary.cells]
    return [_topic(name, cells) for name in dimensions]


def _topic(name: str, cells: Sequence[tuple[Cell, Breakdown]]) -> Topic:
    """Return one dimension; cells that lack it for the same reason are listed together."""
    head, rows = _spreads(cells) if name == "request" else _classes(name, cells)
    columns = ("Arm", "Workload", "Load", *head)
    table = TextTable(DIMENSIONS[name], columns, rows, words=columns[: 3 if name == "request" else 4])
    return Topic(table.title, [table], list(_missing(name, cells)))


def _spreads(cells: Sequence[tuple[Cell, Breakdown]]) -> tuple[Line, tuple[Line, ...]]:
    """Titles and rows of the distributions over requests."""
    spreads = [(cell, kept.acceptance_by_request) for cell, kept in cells if kept.acceptance_by_request]
    head = ("Requests", "Prompts", "Least", "p10", "p25", "p50", "p75", "p90", "Most")
    return head, tuple((*cell_place(cell), *_spread(spread)) for cell, spread in spreads)


def _classes(name: str, cells: Sequence[tuple[Cell, Breakdown]]) -> tuple[Line, tuple[Line, ...]]:
    """Titles and rows of the classes of a dimension, with the figures that any of them has."""
    found = [(cell, label, each) for cell, kept in cells for label, each in _labelled(name, kept)]
    shown = {each for _, _, one in found for each in one.figures}
    figures = tuple(title for title, figure in _FIGURES.items() if figure in shown)
    head = (_HEADS.get(name, name.capitalize()), "Steps", "Requests", "Prompts", *figures)
    return head, tuple((*cell_place(cell), label, *_slice(each, figures)) for cell, label, each in found)


def _labelled(name: str, kept: Breakdown) -> Iterator[tuple[str, BreakdownSlice]]:
    """The slices of a dimension, each with its label."""
    if name == "length-position":
        yield from (
            (f"{group.whole.label}: {each.label}", each) for group in kept.by_length for each in group.by_position
        )
        return
    by_name = {
        "position": kept.by_position,
        "context": kept.by_context,
        "part": kept.by_part,
        "length": [group.whole for group in kept.by_length],
        "turn": kept.by_turn,
    }
    yield from ((each.label, each) for each in by_name[name])


def _slice(each: BreakdownSlice, figures: Sequence[str]) -> tuple[str, ...]:
    counts = (f"{each.steps:,}", f"{each.requests:,}", f"{each.prompts:,}")
    values = (each.figures.get(_FIGURES[title]) for title in figures)
    return (*counts, *(with_interval(figure) for figure in values))


def _spread(spread: RequestDistribution) -> tuple[str, ...]:
    low, high = spread.deciles[0], spread.deciles[-1]
    values = (spread.minimum, low, spread.lower_quartile, spread.median, spread.upper_quartile, high, spread.maximum)
    return (f"{spread.n:,}", f"{spread.prompts:,}", *(number(value) for value in values))


def _missing(name: str, cells: Sequence[tuple[Cell, Breakdown]]) -> Iterator[str]:
    key = _KEYS.get(name, f"by_{name}")
    whys: dict[str, list[str]] = {}
    for cell, kept in cells:
        if key in kept.missing:
            whys.setdefault(kept.missing[key], []).append(f"{cell.arm} at {cell.level.label}")
    yield from (f"Missing for {', '.join(dict.fromkeys(where))}: {why}" for why, where in whys.items())
    if name in ("length", "length-position"):
        yield from dict.fromkeys(f"Classes: {kept.length_classes}" for _, kept in cells if kept.length_classes)
    if name in ("position", "context", "part"):
        yield from (
            f"{cell.arm} at {cell.level.label}: steps of {kept.placed_share:.0%} of the requests could be placed"
            for cell, kept in cells
            if kept.placed_share is not None and 0 < kept.placed_share < 1
        )
