"""Reuse of the prompt cache: a line for each arm and load, and tables by load, turn and depth."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.reuse import Reuse, ReuseSlice
from specbench_api.outcome.summary import Cell
from specbench_client.report.text.text_table import TextTable, number, with_interval

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
    """Return the split of each valid cell's net speed-up; cells without one are left out."""
    several = len({cell.workload for cell in cells}) > 1
    return [
        f"{cell.arm} at {cell.level.words}{f' on {cell.workload}' if several else ''}: {_split(cell.reuse)}"
        for cell in cells
        if cell.valid and cell.reuse and cell.reuse.reuse.value is not None
    ]


def _split(reuse: Reuse) -> str:
    net, drafting, factor = (number(each.value) for each in (reuse.net, reuse.drafting, reuse.reuse))
    mine, theirs = (f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share))
    cached = f"{mine} of the prompt tokens from the cache, {theirs} of the baseline's"
    return f"Net {net}x = drafting {drafting}x × reuse {factor}x ({cached})"


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
    ratio, lost, _, drafting, factor = map(with_interval, figures)
    net = number(reuse.net.value) + ("" if cell.valid else " invalid")
    return [cell.arm, cell.workload, cell.level.label, *shares, ratio, lost, net, drafting, factor]


def _slice(cell: Cell, each: ReuseSlice) -> list[str]:
    shares = (f"{each.hit_share:.0%}", f"{each.baseline_hit_share:.0%}")
    ratio = with_interval(each.computed_ratio)
    return [cell.arm, cell.workload, cell.level.label, each.label, f"{each.pairs}", *shares, ratio]
