"""Curves of a run, its best draft lengths, and its break-even loads, as tables, Markdown and CSV."""

from __future__ import annotations

import json
import shlex

from specbench_api.api_model import in_words
from specbench_client.analysis.statistics.effects import map_figure
from specbench_client.documents.curves import (
    Crossover,
    CurvePoint,
    Curves,
    DraftLengths,
    DraftLengthTable,
    SpeedupCurve,
)
from specbench_client.documents.explanation import Prediction
from specbench_client.documents.figure import Verdict
from specbench_client.documents.summary import Cell, RunSummary
from specbench_client.report.table_renderers import spreadsheet
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    DASH,
    SIMULATED,
    Report,
    TextTable,
    Topic,
    cell_place,
    csv_fields,
    figure_text,
    mark_simulated,
    with_interval,
)

_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red"}


def curve_table(curves: Curves, curve: SpeedupCurve) -> TextTable:
    """Return one curve as a table."""
    return TextTable(
        mark_simulated(curve.title, simulated=curves.simulated),
        (curves.axis, "Arm", "Workload", "Pairs", f"Speed-up {AT_LEVEL}", f"AL emitted {AT_LEVEL}", "Conclusion"),
        [_row(point) for point in curve.points],
        words=("Arm", "Workload", "Conclusion"),
        styles=[_STYLES.get(point.conclusion, "") for point in curve.points],
    )


def curves_report(curves: Curves) -> Report:
    """Return each curve with the place where the speed-up is 1, and below them what was left out."""
    topics = [
        Topic(each.title, [curve_table(curves, each)], [f"Where the speed-up is 1: {each.crossover.message}"])
        for each in curves.curves
    ]
    notes = Topic("", lines=[*(f"left out: {each}" for each in curves.left_out), curves.limit])
    title = f"specbench: speed-up and acceptance by {curves.axis}"
    return Report([*topics, notes], title=title, simulated=curves.simulated)


def curves_csv(curves: Curves) -> str:
    """Return one row a place; missing values are empty, as are bounds from too few repeats."""
    rows = [_csv_row(curves, number, point) for number, curve in enumerate(curves.curves) for point in curve.points]
    return spreadsheet(rows)


def _row(point: CurvePoint) -> list[str]:
    figures = [with_interval(each) for each in (point.speedup, point.acceptance_length)]
    return [point.label, point.arm, point.workload, f"{point.pairs:,}", *figures, in_words(point.conclusion)]


def _csv_row(curves: Curves, curve: int, point: CurvePoint) -> dict[str, object]:
    return {
        "curve": curve,
        "title": curves.curves[curve].title,
        "axis": curves.axis,
        "place": point.place,
        "arm": point.arm,
        "workload": point.workload,
        "pairs": point.pairs,
        **csv_fields("speedup", point.speedup),
        **csv_fields("acceptance_length", point.acceptance_length),
        "conclusion": str(point.conclusion),
        "simulated": curves.simulated,
    }


LENGTH_TITLES = (
    "Load", "Measured k", "Best k", f"Speed-up {AT_LEVEL}", "Next best k", f"Best / next best {AT_LEVEL}", "Conclusion",
)  # fmt: skip


def draft_lengths_report(found: DraftLengths) -> Report:
    """Return the best draft lengths of each drafter with its schedule, and below them what was left out."""
    topics = [Topic("", [draft_lengths_table(table)], [*schedule_lines(table), ""]) for table in found.tables]
    left_out = Topic("", lines=[f"left out: {each}" for each in found.left_out])
    return Report([*topics, left_out], SIMULATED * found.simulated)


def draft_lengths_table(table: DraftLengthTable) -> TextTable:
    """Return the best draft length at each load."""
    rows = [
        [
            each.load,
            ", ".join(map(str, each.measured)),
            str(each.draft_tokens),
            "baseline" if each.speedup is None else with_interval(each.speedup),
            str(each.next_draft_tokens),
            with_interval(each.ratio),
            in_words(each.conclusion),
        ]
        for each in table.loads
    ]
    title = f"Best draft length: {', '.join(table.arms)} on {table.workload}"
    styles = [_STYLES.get(each.conclusion, "") for each in table.loads]
    return TextTable(title, LENGTH_TITLES, rows, words=("Conclusion",), styles=styles)


def schedule_lines(table: DraftLengthTable) -> list[str]:
    """Return the schedule in the engine's form, and whether an arm ran it; or why there is none."""
    found = table.schedule
    if found is None:
        return [f"No schedule: {table.why_no_schedule}."]
    run = f"Run as a schedule by {found.run_as}: the report has its figures."
    return [
        f"Schedule for {found.engine}: {json.dumps(found.config)}",
        f"  {shlex.join(found.arguments)}",
        *(f"  not usable as is: {problem}" for problem in found.problems),
        run if found.run_as else f"Not run as a schedule. To measure it, add the arm {json.dumps(found.drafter)}",
    ]


CROSSOVER_COLUMNS = ("Arm", "Workload", "Over", "Answer", "Lost from first to last load", "Left out")
BREAK_EVEN_COLUMNS = (
    "Arm", "Workload", "Load", f"AL needed {AT_LEVEL}", f"AL measured {AT_LEVEL}", f"Measured / needed {AT_LEVEL}",
)  # fmt: skip


def crossover_table(summary: RunSummary) -> TextTable:
    """Return the load up to which each arm pays on each workload."""
    rows = [
        [
            each.arm,
            each.workload,
            each.crossover.axis,
            each.crossover.message,
            lost_text(each.crossover),
            "; ".join(each.crossover.left_out) or DASH,
        ]
        for each in summary.crossovers
    ]
    return TextTable("Where the speed-up falls to 1", CROSSOVER_COLUMNS, rows, words=CROSSOVER_COLUMNS)


def crossover_lines(summary: RunSummary) -> list[str]:
    """Return one line for each arm and workload that was measured at several loads."""
    return [
        f"{each.arm} on {each.workload}: {each.crossover.message}{_and_lost(each.crossover)}"
        for each in summary.crossovers
        if len(each.crossover.places) > 1
    ]


def lost_text(crossover: Crossover) -> str:
    """Return the share of the speed-up lost from the smallest measured load to the largest: `18% [16%, 20%]`."""
    return figure_text(crossover.lost, "{:.0%}".format)


def _and_lost(crossover: Crossover) -> str:
    """Return the loss for a line of text if it is significant; tables always have it."""
    lost = crossover.lost
    if lost is None or lost.interval is None or lost.interval.low <= 0:
        return ""
    return f"; {lost_text(crossover)} of the speed-up is lost from the smallest load to the largest"


def break_even_table(summary: RunSummary) -> TextTable:
    """Return the acceptance length needed to break even, and the measured one, where the engine reports its steps.

    A step of the arm takes t_sd and emits AL tokens, one of the baseline takes t_ar and emits one: the speed-up of
    decoding, AL × t_ar / t_sd, is 1 at AL = t_sd / t_ar. It excludes the prefill, which a drafter rarely accelerates.
    """
    rows = [_break_even(cell, cell.prediction) for cell in summary.cells if cell.prediction]
    title = "Acceptance length (emitted, pooled) needed to break even in decoding"
    return TextTable(
        title,
        BREAK_EVEN_COLUMNS,
        rows,
        words=BREAK_EVEN_COLUMNS[:2],
        caption="AL measured: over pairs of requests with all factors on both sides; in the results, over all requests",
    )


def _break_even(cell: Cell, found: Prediction) -> list[str]:
    bounds, ideal = found.predicted.interval, found.ideal.value or 1.0
    margin = with_interval(found.predicted)
    if bounds and bounds.low <= 1 <= bounds.high:
        margin += " indistinguishable"
    needed = map_figure(found.step_cost, lambda cost: 1 / cost, "tokens/step", "t_sd / t_ar")
    measured = map_figure(found.acceptance, lambda share: share * ideal, "tokens/step", "tokens per step")
    lengths = [with_interval(needed), with_interval(measured)]
    return [*cell_place(cell), *lengths, margin]
