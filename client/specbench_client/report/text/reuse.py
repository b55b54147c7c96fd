"""Reuse of the prompt cache: a line for each arm and load, and tables by load, turn and depth."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.reuse import Reuse, ReuseSlice, SplitMissing
from specbench_api.outcome.summary import Cell
from specbench_client.report.text.text_table import DASH, TextTable, compared_text, number, with_interval
from specbench_client.trust.checks.answers import OUTPUT_LENGTHS_DIFFER

COST_TITLES = (
    "Arm", "Workload", "Load", "Cached", "Baseline's", "Computed / baseline's [95 %]", "Lost ms a request [95 %]",
    "Net", "= Drafting [95 %]", "× Reuse [95 %]",
)  # fmt: skip
SLICE_TITLES = ("Arm", "Workload", "Load", "{}", "Pairs", "Cached", "Baseline's", "Computed / baseline's [95 %]")
REUSE_SAYS = (
    "Net: the speed-up in E2E latency, drafting × reuse. Drafting: what the arm would gain with the baseline's reuse of"
    " the prompt cache. Reuse: what lost reuse costs"
)
_REPORT_OPTIONS = "vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report"
SPLIT_MISSING = {
    SplitMissing.NOT_REPORTED: f"neither server reports cached tokens ({_REPORT_OPTIONS})",
    SplitMissing.ARM_NOT_REPORTED: f"only the baseline's server reports cached tokens ({_REPORT_OPTIONS})",
    SplitMissing.BASELINE_NOT_REPORTED: f"the baseline's server reports no cached tokens ({_REPORT_OPTIONS})",
    SplitMissing.NO_LATENCIES: "no request was answered with content on both sides: read the findings and the errors",
    SplitMissing.SAME_COMPUTED_TOKENS: (
        "all its requests computed the same number of prompt tokens, so their cost is unknown: use prompts of different"
        " lengths"
    ),
    SplitMissing.TOO_FEW_STEPS: (
        "too few of its answers arrived in several steps: stream longer answers, send more requests, and look for a"
        " proxy that holds answers back"
    ),
    SplitMissing.NO_COST: (
        "its step times do not show what a computed prompt token costs. Use longer prompts or more requests, or a lower"
        " load if every step computes prompts"
    ),
    SplitMissing.REPLAY_DIFFERS: (
        "the model of its steps does not give its latencies: look for another cause of waiting, such as a queue, a"
        " router or the client, or measure at a lower load"
    ),
}
"""Why there is no split, and what to do."""


def reuse_lines(cells: Sequence[Cell]) -> list[str]:
    """Return the split of each cell's net speed-up or why there is none, and a definition below any split.

    Cells whose cached tokens are not reported have one line for each reason. Where reuse is not compared: nothing.
    """
    several = len({cell.workload for cell in cells}) > 1
    lines = [
        f"{cell.arm} at {cell.level.words}{f' on {cell.workload}' if several else ''}: {_split(cell, cell.reuse)}"
        + ("" if cell.valid else ". Invalid: see the findings")
        for cell in cells
        if cell.reuse
    ]
    unknown = [(cell.split_missing, cell.arm) for cell in cells if cell.split_missing and not cell.reuse]
    for reason in dict.fromkeys(reason for reason, _ in unknown):
        arms = ", ".join(dict.fromkeys(arm for each, arm in unknown if each is reason))
        lines.append(f"{arms}: Reuse of the prompt cache is not compared: {SPLIT_MISSING[reason]}")
    split = any(cell.reuse and not _nothing_cached(cell.reuse) and not cell.split_missing for cell in cells)
    return [*lines, REUSE_SAYS] if split else lines


def _nothing_cached(reuse: Reuse) -> bool:
    """Return whether requests were compared, and no prompt token came from a cache on either side."""
    return reuse.net.value is not None and reuse.hit_share.value == reuse.baseline_hit_share.value == 0


def _split(cell: Cell, reuse: Reuse) -> str:
    net, drafting, factor = (_times(cell, each) for each in (reuse.net, reuse.drafting, reuse.reuse))
    mine, theirs = (f"{each.value or 0:.0%}" for each in (reuse.hit_share, reuse.baseline_hit_share))
    few = f"; {cell.too_few_repeats}" if cell.too_few_repeats else ""
    lengths = (
        "; its answers have other lengths, which Net contains" if OUTPUT_LENGTHS_DIFFER.name in cell.findings else ""
    )
    if _nothing_cached(reuse):
        return f"Net {net}{few}{lengths}. No prompt tokens came from a cache on either side"
    cached = f"({mine} of the prompt tokens from the cache, {theirs} of the baseline's{few}{lengths})"
    if cell.split_missing:
        return f"Net {net} {cached}. Not split: {SPLIT_MISSING[cell.split_missing]}"
    line = f"Net {net} = drafting {drafting} × reuse {factor} {cached}"
    bounds = None if cell.too_few_repeats else reuse.reuse.interval
    return f"{line}. Whether reuse costs or gains is not clear" if bounds and bounds.low <= 1 <= bounds.high else line


def _times(cell: Cell, figure: Figure) -> str:
    """Return `1.97x [1.09, 3.56]`; with too few repeats without its interval, as other comparisons."""
    if figure.value is None:
        return DASH
    if cell.too_few_repeats:
        return f"{number(figure.value)}x"
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
    ratio, lost, _, *parts = (compared_text(cell, each) for each in figures)
    mark = "" if cell.valid else " invalid"
    split = [f"{each}{mark if each != DASH else ''}" for each in (number(reuse.net.value), *parts)]
    return [cell.arm, cell.workload, cell.level.label, *shares, ratio, lost, *split]


def _slice(cell: Cell, each: ReuseSlice) -> list[str]:
    shares = (f"{each.hit_share:.0%}", f"{each.baseline_hit_share:.0%}")
    ratio = compared_text(cell, each.computed_ratio)
    return [cell.arm, cell.workload, cell.level.label, each.label, f"{each.pairs}", *shares, ratio]
