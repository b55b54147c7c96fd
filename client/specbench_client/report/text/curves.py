"""Curves of a run, and its break-even loads, as tables, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.api_model import in_words
from specbench_api.outcome.crossover import BreakEven, Crossover
from specbench_api.outcome.summary import Cell, RunSummary, SpeedupConclusion
from specbench_client.documents.curves import CurvePoint, CurvePrediction, Curves, SpeedupCurve
from specbench_client.report.text.text_table import (
    DASH,
    SIMULATED,
    TextTable,
    compared_text,
    csv_fields,
    escape_markdown,
    markdown_sentence,
    markdown_table,
    number,
    spreadsheet,
    with_interval,
)

_BARE = (SpeedupConclusion.TOO_FEW_REPEATS, SpeedupConclusion.NO_INTERVAL, SpeedupConclusion.NOT_COMPARABLE)
"""Conclusions whose figures are shown without intervals, because those do not cover the variation between runs."""
_STYLES = {SpeedupConclusion.FASTER: "green", SpeedupConclusion.SLOWER: "red"}


def curve_table(curves: Curves, curve: SpeedupCurve) -> TextTable:
    """Return one curve as a table."""
    marked = " (simulated, not a measurement)" if curves.simulated else ""
    return TextTable(
        f"{curve.title}{marked}",
        curve_titles(curves),
        [curve_row(point) for point in curve.points],
        words=("Arm", "Workload", "Conclusion"),
        styles=[_STYLES.get(point.conclusion, "") for point in curve.points],
        caption=curve.crossover.message,
    )


def curve_notes(curves: Curves) -> list[str]:
    """Return the lines below the tables on a terminal."""
    return [
        *(f"at {line}" for line in prediction_lines(curves)),
        *(f"left out: {each}" for each in curves.left_out),
        *curves.limits,
    ]


def curves_markdown(curves: Curves) -> str:
    """Return all curves as Markdown."""
    lines = [f"### specbench: speed-up and acceptance by {escape_markdown(curves.axis)}", ""]
    lines += [f"> **{SIMULATED}**", ""] if curves.simulated else []
    for curve in curves.curves:
        lines += [f"#### {escape_markdown(curve.title)}", "", *markdown_table(curve_table(curves, curve))]
        lines += ["", f"Where the speed-up is 1: {markdown_sentence(curve.crossover.message)}", ""]
    lines += [f"- At {markdown_sentence(line)}" for line in prediction_lines(curves)]
    lines += [f"- Left out: {markdown_sentence(each)}" for each in curves.left_out]
    return "\n".join([*lines, *(f"- {markdown_sentence(limit)}" for limit in curves.limits), ""])


def curves_csv(curves: Curves) -> str:
    """Return one row a place, measured or requested; missing values are empty, as are bounds from too few repeats."""
    rows = [_csv_row(curves, number, point) for number, curve in enumerate(curves.curves) for point in curve.points]
    predicted = [
        _csv_asked(curves, number, each) for number, curve in enumerate(curves.curves) for each in curve.predictions
    ]
    return spreadsheet([*rows, *predicted])


def curve_titles(curves: Curves) -> Sequence[str]:
    """Return the titles of the columns."""
    return (curves.axis, "Arm", "Workload", "Pairs", "Speed-up [95 %]", "AL emitted [95 %]", "Conclusion")


def curve_row(point: CurvePoint) -> list[str]:
    """Return the row of one place."""
    few = point.conclusion in _BARE
    figures = [number(each.value) if few else with_interval(each) for each in (point.speedup, point.acceptance_length)]
    return [point.label, point.arm, point.workload, f"{point.pairs:,}", *figures, in_words(point.conclusion)]


def prediction_lines(curves: Curves) -> list[str]:
    """Return one line for each curve and requested place."""
    return [f"{_asked(curve, each)}" for curve in curves.curves for each in curve.predictions]


def _asked(curve: SpeedupCurve, each: CurvePrediction) -> str:
    figures = [f"speed-up {with_interval(each.speedup)}", f"AL {with_interval(each.acceptance_length)}"]
    values = f": {', '.join(figures)}" if each.speedup is not None else ""
    return f"{each.message}{values} ({curve.title})"


def _csv_row(curves: Curves, curve: int, point: CurvePoint) -> dict[str, object]:
    few = point.conclusion in _BARE
    return {
        "curve": curve,
        "title": curves.curves[curve].title,
        "axis": curves.axis,
        "place": point.place,
        "basis": "measured",
        "arm": point.arm,
        "workload": point.workload,
        "pairs": point.pairs,
        **csv_fields("speedup", point.speedup, bounded=not few),
        **csv_fields("acceptance_length", point.acceptance_length, bounded=not few),
        "conclusion": str(point.conclusion),
        "simulated": curves.simulated,
    }


def _csv_asked(curves: Curves, curve: int, each: CurvePrediction) -> dict[str, object]:
    return {
        "curve": curve,
        "title": curves.curves[curve].title,
        "axis": curves.axis,
        "place": each.place,
        "basis": str(each.basis),
        **csv_fields("speedup", each.speedup),
        **csv_fields("acceptance_length", each.acceptance_length),
        "simulated": curves.simulated,
    }


@dataclass(frozen=True)
class CrossoverRow:
    """The load up to which one arm pays on one workload."""

    arm: str
    workload: str
    axis: str
    answer: str
    lost: str
    """Share of the speed-up lost from the smallest measured load to the largest, in percent."""
    left_out: str


@dataclass(frozen=True)
class BreakEvenRow:
    """The acceptance length that an arm needs to break even at one load, and the measured one."""

    arm: str
    workload: str
    load: str
    needed: str
    measured: str
    margin: str


def crossover_rows(summary: RunSummary) -> list[CrossoverRow]:
    """Return one row for each arm and workload."""
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
    """Return one line for each arm and workload that was measured at several loads."""
    return [
        f"{each.arm} on {each.workload}: {each.crossover.message}{_and_lost(each.crossover)}"
        for each in summary.crossover.by_load
        if len(each.crossover.places) > 1
    ]


def lost_text(crossover: Crossover) -> str:
    """Return `18% [16%, 20%]`; empty where it is unknown."""
    lost = crossover.lost
    if lost is None or lost.value is None:
        return ""
    bounds = f" [{lost.interval.low:.0%}, {lost.interval.high:.0%}]" if lost.interval else ""
    return f"{lost.value:.0%}{bounds}"


def _and_lost(crossover: Crossover) -> str:
    """Return the loss for a line of text if it is significant; tables always have it."""
    lost = crossover.lost
    if lost is None or lost.interval is None or lost.interval.low <= 0:
        return ""
    return f"; {lost_text(crossover)} of the speed-up is lost from the smallest load to the largest"


def break_even_rows(summary: RunSummary) -> list[BreakEvenRow]:
    """Return one row for each arm, workload and load whose steps the engine reports."""
    cells = {(cell.arm, cell.workload, cell.level.label): cell for cell in summary.cells}
    return [
        _break_even(each, cells[each.arm, each.workload, each.load])
        for each in summary.crossover.break_even
        if each.needed.value is not None
    ]


def crossover_markdown(summary: RunSummary) -> list[str]:
    """Return both as lines of Markdown with headings; empty without any."""
    answers, needed = crossover_rows(summary), break_even_rows(summary)
    lines = ["## Break-even load and acceptance length", ""] if answers else []
    lines += [
        f"- **{escape_markdown(row.arm)}** on "
        + markdown_sentence(f"{row.workload}, over {row.axis}: {row.answer}; lost from first to last: {row.lost}")
        for row in answers
    ]
    lines += [""] if answers else []
    if needed:
        lines += ["Acceptance length (emitted, pooled) that decoding needs to break even:", ""]
        lines += [
            f"- **{escape_markdown(row.arm)}** on "
            + markdown_sentence(f"{row.workload} at {row.load}: needs {row.needed}, has {row.measured}:")
            + f" measured / needed {row.margin}"
            for row in needed
        ]
        lines += [""]
    return lines


def _break_even(each: BreakEven, cell: Cell) -> BreakEvenRow:
    bounds = None if cell.too_few_repeats else each.margin.interval
    margin = compared_text(cell, each.margin)
    if bounds and bounds.low <= 1 <= bounds.high:
        margin += " indistinguishable"
    return BreakEvenRow(
        arm=each.arm,
        workload=each.workload,
        load=each.load,
        needed=compared_text(cell, each.needed),
        measured=with_interval(each.measured),
        margin=margin if each.valid else f"{margin} invalid",
    )
