"""Reuse of the prompt cache: a line for each arm and load, and tables by load, turn and depth."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.reuse import Reuse, ReuseSlice
from specbench_api.outcome.summary import Cell
from specbench_client.report.text.text_table import DASH, TextTable, number, with_interval

COST_TITLES = (
    "Arm", "Workload", "Load", "Cached", "Baseline's", "Computed / baseline's [95 %]", "Lost ms a request [95 %]",
    "Net", "= Drafting [95 %]", "× Reuse [95 %]",
)  # fmt: skip
SLICE_TITLES = ("Arm", "Workload", "Load", "{}", "Pairs", "Cached", "Baseline's", "Computed / baseline's [95 %]")
REUSE_SAYS = (
    "net = drafting × reuse, in E2E latency: what the arm would gain with the baseline's reuse of the prompt cache, and"
    " what lost reuse costs"
)


def reuse_lines(cells: Sequence[Cell]) -> list[str]:
    """Return the split of each cell's net speed-up, or why there is none; nothing for cells without reuse."""
    several = len({cell.workload for cell in cells}) > 1
    return [
        f"{cell.arm} at {cell.level.words}{f' on {cell.workload}' if several else ''}: {_split(cell.reuse)}"
        + ("" if cell.valid else ". Invalid: see the findings")
        for cell in cells
        if cell.reuse and cell.reuse.net.value is not None
    ]


def _split(reuse: Reuse) -> str:
    net, drafting, factor = (_times(each) for each in (reuse.net, reuse.drafting, reuse.reuse))
    mine, theirs = (f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share))
    cached = f"{mine} of the prompt tokens from the cache, {theirs} of the baseline's"
    if reuse.reuse.value is None:
        return f"Net {net} ({cached}). Not split: its latencies do not show what a prompt token costs"
    line = f"Net {net} = drafting {drafting} × reuse {factor} ({cached})"
    bounds = reuse.reuse.interval
    return f"{line}. Whether reuse costs or gains is not clear" if bounds and bounds.low <= 1 <= bounds.high else line


def _times(figure: Figure) -> str:
    """Return `1.97x [1.09, 3.56]`."""
    value, bracket, bounds = with_interval(figure).partition(" ")
    return f"{value}x{bracket}{bounds}"


def reuse_tables(cells: Sequence[Cell]) -> list[TextTable]:
    """Return the tables of the cells with reuse: costs, and slices by turn and by depth."""
    found = [(cell, cell.reuse) for cell in cells if cell.reuse]
    costs = [_costs(cell, reuse) for cell, reuse in found]
    turns = [_slice(cell, each) for cell, reuse in found for each in reuse.by_turn]
    depths = [_slice(cell, each) for cell, reuse in found for each in reuse.by_depth]
    return [
        TextTable("Prompt tokens from the cache, and what lost reuse costs", COST_TITLES, costs, words=COST_TITLES[:2]),
        _slices("By turn", "Turn", turns),
        _slices("By depth: the larger number of cached tokens of both sides", "Depth", depths),
    ]


def _slices(title: str, name: str, rows: Sequence[Sequence[str]]) -> TextTable:
    return TextTable(title, [each.format(name) for each in SLICE_TITLES], rows, words=SLICE_TITLES[:2])


def _costs(cell: Cell, reuse: Reuse) -> list[str]:
    shares = [f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share)]
    figures = (reuse.computed_ratio, reuse.lost_ms, reuse.net, reuse.drafting, reuse.reuse)
    ratio, lost, _, *parts = map(with_interval, figures)
    mark = "" if cell.valid else " invalid"
    split = [f"{each}{mark if each != DASH else ''}" for each in (number(reuse.net.value), *parts)]
    return [cell.arm, cell.workload, cell.level.label, *shares, ratio, lost, *split]


def _slice(cell: Cell, each: ReuseSlice) -> list[str]:
    shares = (f"{each.hit_share:.0%}", f"{each.baseline_hit_share:.0%}")
    ratio = with_interval(each.computed_ratio)
    return [cell.arm, cell.workload, cell.level.label, each.label, f"{each.pairs}", *shares, ratio]
