"""Acceptance along each answer: a line a request, the shortest first; a panel an arm."""

from __future__ import annotations

from functools import partial

from specbench_api.outcome.slices import AcceptedMap, TokenRange
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.heatmap import HeatMap, draw_heatmap, height_of
from specbench_client.report.plots.sections.cells import lightest
from specbench_client.report.plots.sections.section import Drawn

ARMS_MAX = 2
"""Arms of a workload that are drawn: a map is heavy, and the others may be asked for one by one."""
ROW_IN = 0.13
NOTE = (
    "A line is one request, or the mean of neighbours where they are more than lines, named by its output tokens, the"
    " shortest answer first; a column positions in the output. The deeper the blue, the more tokens a step emitted;"
    " empty: no step began there, or no answer is as long."
)


def by_request(summary: RunSummary) -> Drawn | None:
    """A panel an arm, at the lightest load; None where no arm's steps can be placed."""
    maps, left_out = list[tuple[str, AcceptedMap]](), 0
    for title, cells in lightest(summary, _map):
        left_out += max(0, len(cells) - ARMS_MAX)
        maps += [(f"{cell.arm}, {title}", drawn) for cell in cells[:ARMS_MAX] if (drawn := _map(cell)) is not None]
    if not maps:
        return None
    found = [drawn for _, drawn in maps]
    farthest = max(_reach(drawn) for drawn in found)
    panels = [_panel(title, drawn, farthest) for title, drawn in maps]
    counts = [drawn.requests for drawn in found]
    requests = " to ".join(dict.fromkeys(f"{count:,}" for count in (min(counts), max(counts))))
    more = f" {left_out} more arms are not drawn: specbench slices --arm NAME --plot FILE." if left_out else ""
    return Drawn(tuple(panels), f"{found[0].definition}. n {requests} requests of one repeat. {NOTE}{more}")


def _panel(title: str, drawn: AcceptedMap, farthest: float) -> Panel:
    """farthest: the distance from 1 that has the full colour, of all maps alike."""
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
    return Panel(partial(draw_heatmap, data=data), title, _words(drawn), height_of(len(rows), ROW_IN))


def _words(drawn: AcceptedMap) -> str:
    known = [value for row in drawn.emitted for value in row if value is not None]
    answers = f"answers of {drawn.rows[0].first:,} to {drawn.rows[-1].last:,} tokens"
    return f"{answers}: from {min(known):.2f} to {max(known):.2f} tokens a step"


def _label(each: TokenRange) -> str:
    return f"{each.first:,}" if each.first == each.last else f"{each.first:,}–{each.last:,}"


def _map(cell: Cell) -> AcceptedMap | None:
    """An older summary has none."""
    return cell.slices.accepted_map if cell.slices else None


def _reach(drawn: AcceptedMap) -> float:
    return max(value - 1 for row in drawn.emitted for value in row if value is not None)
