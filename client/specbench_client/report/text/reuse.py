"""Reuse of the prompt cache: a line for each arm and load, and tables by load, turn and depth."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.breakdown import Reuse, ReuseMissing, ReuseSlice
from specbench_client.documents.summary import Cell
from specbench_client.report.text.text_table import DASH, TextTable, cell_place, compared_text
from specbench_client.trust.checks.answers import OUTPUT_LENGTHS_DIFFER

SHARE_TITLES = ("Arm", "Workload", "Load", "Cached", "Baseline's", "Computed / baseline's [95 %]", "Net [95 %]")
SLICE_TITLES = ("Arm", "Workload", "Load", "{}", "Pairs", "Cached", "Baseline's", "Computed / baseline's [95 %]")
REUSE_SAYS = (
    "Net: the speed-up in E2E latency, with what each arm reuses from the prompt cache. To see what drafting alone"
    " gains, measure with the cache switched off and compare both runs: docs/how-to/as-served.md"
)
_REPORT_OPTIONS = "vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report"
REUSE_MISSING = {
    ReuseMissing.NOT_REPORTED: f"neither server reports cached tokens ({_REPORT_OPTIONS})",
    ReuseMissing.ARM_NOT_REPORTED: f"only the baseline's server reports cached tokens ({_REPORT_OPTIONS})",
    ReuseMissing.BASELINE_NOT_REPORTED: f"the baseline's server reports no cached tokens ({_REPORT_OPTIONS})",
}
"""Why reuse is not compared, and what to do."""


def reuse_lines(cells: Sequence[Cell]) -> list[str]:
    """Return the net speed-up of each cell with the hit shares, and a definition below them.

    Cells whose cached tokens are not reported have one line for each reason. Where reuse is not compared: nothing.
    """
    several = len({cell.workload for cell in cells}) > 1
    compared = [
        f"{cell.arm} at {cell.level.words}{f' on {cell.workload}' if several else ''}: {_net_and_shares(cell, reuse)}"
        + ("" if cell.valid else ". Invalid: see the findings")
        for cell, reuse in _compared(cells)
    ]
    unknown = [(cell.reuse_missing, cell.arm) for cell in cells if cell.reuse_missing]
    missing = []
    for reason in dict.fromkeys(reason for reason, _ in unknown):
        arms = ", ".join(dict.fromkeys(arm for each, arm in unknown if each is reason))
        missing.append(f"{arms}: Reuse of the prompt cache is not compared: {REUSE_MISSING[reason]}")
    return [*compared, *missing, *([REUSE_SAYS] if compared else [])]


def reuse_tables(cells: Sequence[Cell]) -> list[TextTable]:
    """Return the tables of the cells with reuse: shares, and slices by turn and by depth."""
    found = list(_compared(cells))
    turns = [_slice(cell, each) for cell, reuse in found for each in reuse.by_turn]
    depths = [_slice(cell, each) for cell, reuse in found for each in reuse.by_depth]
    shares = [_shares(cell, reuse) for cell, reuse in found]
    return [
        TextTable("Prompt tokens from the cache", SHARE_TITLES, shares, words=SHARE_TITLES[:2]),
        _slices("By turn", "Turn", turns),
        _slices("By depth: the larger number of cached tokens of both sides", "Depth", depths),
    ]


def _compared(cells: Sequence[Cell]) -> list[tuple[Cell, Reuse]]:
    return [(cell, cell.reuse) for cell in cells if cell.reuse]


def _net_and_shares(cell: Cell, reuse: Reuse) -> str:
    speedup = cell.end_to_end.speedup if cell.end_to_end else None
    if speedup and cell.too_few_repeats:  # its interval does not cover run-to-run variation
        speedup = speedup.model_copy(update={"interval": None})
    net = (speedup.factor if speedup else "") or DASH
    few = f"; {cell.too_few_repeats}" if cell.too_few_repeats else ""
    lengths = (
        "; its answers have other lengths, which Net contains" if OUTPUT_LENGTHS_DIFFER.name in cell.findings else ""
    )
    if reuse.hit_share.value == reuse.baseline_hit_share.value == 0:
        return f"Net {net}{few}{lengths}. No prompt tokens came from a cache on either side"
    mine, theirs = (f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share))
    return f"Net {net} ({mine} of the prompt tokens from the cache, {theirs} of the baseline's{few}{lengths})"


def _slices(title: str, name: str, rows: Sequence[Sequence[str]]) -> TextTable:
    return TextTable(title, [each.format(name) for each in SLICE_TITLES], rows, words=SLICE_TITLES[:2])


def _shares(cell: Cell, reuse: Reuse) -> list[str]:
    shares = [f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share)]
    net = compared_text(cell, cell.end_to_end.speedup if cell.end_to_end else None)
    ratio = compared_text(cell, reuse.computed_ratio)
    return [*cell_place(cell), *shares, ratio, net]


def _slice(cell: Cell, each: ReuseSlice) -> list[str]:
    shares = (f"{each.hit_share:.0%}", f"{each.baseline_hit_share:.0%}")
    ratio = compared_text(cell, each.computed_ratio)
    return [*cell_place(cell), each.label, f"{each.pairs}", *shares, ratio]
