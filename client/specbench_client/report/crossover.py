"""Up to which load an arm pays, and which acceptance it needs there: rows of text for every kind of report."""

from __future__ import annotations

from dataclasses import dataclass

from specbench_api.outcome.crossover import BreakEven, Crossover
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.columns import DASH, with_interval


@dataclass(frozen=True)
class CrossoverRow:
    """Up to which load one arm pays on one workload."""

    arm: str
    workload: str
    axis: str
    answer: str
    lost: str
    """From the smallest measured load to the largest, in percent of the speed-up."""
    left_out: str


@dataclass(frozen=True)
class BreakEvenRow:
    """The acceptance length that an arm needs at one load, and has."""

    arm: str
    workload: str
    load: str
    needed: str
    measured: str
    margin: str


def crossover_rows(summary: RunSummary) -> list[CrossoverRow]:
    """One row an arm and workload; none where the summary is older than these answers."""
    if summary.crossover is None:
        return []
    return [
        CrossoverRow(
            each.arm,
            each.workload,
            each.crossover.axis,
            each.crossover.message,
            lost_text(each.crossover) or DASH,
            "; ".join(each.crossover.left_out) or DASH,
        )
        for each in summary.crossover.by_load
    ]


def crossover_lines(summary: RunSummary) -> list[str]:
    """One line an arm and workload that was measured at several loads, for a terminal."""
    told = [] if summary.crossover is None else summary.crossover.by_load
    return [
        f"{each.arm} on {each.workload}: {each.crossover.message}{_and_lost(each.crossover)}"
        for each in told
        if len(each.crossover.places) > 1
    ]


def lost_text(crossover: Crossover) -> str:
    """`18% [16%, 20%]`; empty where it is not known."""
    lost = crossover.lost
    if lost is None or lost.value is None:
        return ""
    bounds = f" [{lost.interval.low:.0%}, {lost.interval.high:.0%}]" if lost.interval else ""
    return f"{lost.value:.0%}{bounds}"


def _and_lost(crossover: Crossover) -> str:
    text = lost_text(crossover)
    return f"; lost from the smallest load to the largest: {text}" if text else ""


def break_even_rows(summary: RunSummary) -> list[BreakEvenRow]:
    """One row an arm, workload and load of which the engine tells its steps."""
    told = [] if summary.crossover is None else summary.crossover.break_even
    return [_break_even(each) for each in told if each.needed.value is not None]


def crossover_markdown(summary: RunSummary) -> list[str]:
    """Both as lines of Markdown with their headings; empty where there is nothing to say."""
    answers, needed = crossover_rows(summary), break_even_rows(summary)
    lines = ["## Up to which load it pays", ""] if answers else []
    lines += [
        f"- **{row.arm}** on {row.workload}, over {row.axis}: {row.answer}; lost from first to last: {row.lost}"
        for row in answers
    ]
    lines += [""] if answers else []
    if needed:
        lines += ["Acceptance length (emitted, pooled) that decoding needs to break even:", ""]
        lines += [
            f"- **{row.arm}** on {row.workload} at {row.load}: needs {row.needed}, has {row.measured}:"
            f" measured / needed {row.margin}"
            for row in needed
        ]
        lines += [""]
    return lines


def _break_even(each: BreakEven) -> BreakEvenRow:
    bounds = each.margin.interval
    margin = with_interval(each.margin)
    if bounds and bounds.low <= 1 <= bounds.high:
        margin += " indistinguishable"
    return BreakEvenRow(
        arm=each.arm,
        workload=each.workload,
        load=each.load,
        needed=with_interval(each.needed),
        measured=with_interval(each.measured),
        margin=margin if each.valid else f"{margin} invalid",
    )
