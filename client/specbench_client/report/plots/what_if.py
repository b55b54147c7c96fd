"""The plots of `specbench analyze oracle` and `analyze ngram`: what other draft lengths, or n-grams, would gain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from specbench_api.outcome.figure import Figure
from specbench_client.analysis.what_if.oracle import DrafterDifferences, OracleSubject, drafter_differences
from specbench_client.documents.what_if import (
    DraftCharge,
    DraftPolicy,
    NgramReport,
    OracleReport,
    OracleRow,
    OverlapBin,
)
from specbench_client.report.plots.canvas import Panel, PanelGroup, slanted_height_in
from specbench_client.report.plots.heatmap import HeatMap, heatmap_panel
from specbench_client.report.plots.page import PlotDocument
from specbench_client.report.plots.sections.cells import known, sizes
from specbench_client.report.plots.series import NumberLines, PlotValue, Series, describe_series, draw_number_lines
from specbench_client.report.plots.styles import GREY_LIGHT, PAGE, SERIES_PER_PANEL_MAX, Style, series_style
from specbench_client.report.text.what_if import PREDICTORS, range_of
from specbench_client.trust.checks.prompts import INTERVAL_FROM

ORACLE = Style(PAGE.ink, marker="*")
"""In the page's ink, because it is not an arm."""
COMBINED = Style(GREY_LIGHT, marker="X", dash=(0, (4, 2)))


def oracle_against_fixed(
    batches: Sequence[int],
    fixed: Mapping[int, Sequence[float | None]],
    oracle: Sequence[float | None],
    combined: Sequence[float | None] | None = None,
) -> NumberLines:
    """Speed-ups over the baseline by batch size: of each fixed number of draft tokens, of the oracle, of both oracles.

    batches: 1 and more, in rising order; every sequence has one value for each of them. Raises ValueError where there
    are more fixed lengths than a panel can distinguish, or a sequence is too short or too long.
    """
    if len(fixed) > SERIES_PER_PANEL_MAX:
        raise ValueError(f"{len(fixed)} draft lengths are more than {SERIES_PER_PANEL_MAX}: leave some out")
    lines = [_line(f"k = {k}", series_style(index), values) for index, (k, values) in enumerate(sorted(fixed.items()))]
    lines.append(_line("oracle", ORACLE, oracle))
    if combined is not None:
        lines.append(_line("oracle of both", COMBINED, combined))
    if any(len(line.readings) != len(batches) for line in lines):
        raise ValueError(f"each line needs {len(batches)} values, one a batch size")
    axis = {"x_label": "batch size", "y_label": "speed-up (1 = baseline)"}
    return NumberLines(tuple(map(float, batches)), tuple(lines), level=1.0, **axis)


def differences_map(found: DrafterDifferences, of: str, over: str) -> HeatMap:
    """Where more tokens of the drafter `of` are accepted than of the drafter `over`, and where fewer."""
    values = tuple(tuple(None if math.isnan(each) else float(each) for each in row) for row in found.values)
    rows, columns = ([each.label for each in blocks] for blocks in (found.rows, found.columns))
    return HeatMap(
        tuple(rows), tuple(columns), values, f"position in the output, tokens; {of} − {over}", form="{:+.2f}"
    )


def _line(name: str, looks: Style, values: Sequence[float | None]) -> Series:
    return Series(name, looks, tuple(None if value is None else PlotValue(value) for value in values))


ROWS_MAX, COLUMNS_MAX = 24, 48
"""Cells of the map; neighbours are merged."""
FULL_COLOUR = 95
"""Percent of the cells that have less than the full colour: one of few answers takes it from no other."""
BOUNDS = "What an oracle gains over fixed draft lengths, by batch size"
DIFFERENCE = "Which drafter has more accepted, by position and length of the answer"


def oracle_plots(report: OracleReport, subject: OracleSubject) -> PlotDocument:
    """Return the bounds if there is a step cost, and the difference if two drafters cover the same texts."""
    groups = [(BOUNDS, _bounds(report)), (DIFFERENCE, _difference(subject))]
    return PlotDocument(report.source, [(title, each) for title, each in groups if each is not None], report.simulated)


def _bounds(report: OracleReport) -> PanelGroup | None:
    if not report.rooms:
        return None
    batches = sorted({room.batch for room in report.rooms})
    main = report.drafters[0]
    lengths = {row.drafts: row for row in report.rows if row.policy is DraftPolicy.FIXED and row.drafts is not None}
    shown = sorted(lengths)[:SERIES_PER_PANEL_MAX]
    whole = next(row for row in report.rows if row.policy is DraftPolicy.ORACLE and row.drafter == main)
    combined = next((row for row in report.rows if row.charge is DraftCharge.WINNER), None)
    data = oracle_against_fixed(
        batches,
        {each: _values(lengths[each], batches) for each in shown},
        _values(whole, batches),
        _values(combined, batches) if combined else None,
    )
    words = describe_series(data.series, [str(batch) for batch in batches])
    definition = whole.speedups[str(batches[0])]
    cost = f"Step cost: {report.step_cost.name}." if report.step_cost else ""
    both = "Of both drafters: only the winner is charged, over the positions that both cover." if combined else ""
    left = [str(each) for each in sorted(lengths) if each not in shown]
    more = f"Not drawn: k = {', '.join(left)}." if left else ""
    parts = (
        f"Speed-up: {definition.definition}.",
        cost,
        both,
        sizes([definition]),
        "Intervals are in the table.",
        more,
    )
    return PanelGroup((Panel(partial(draw_number_lines, data=data), main, words),), " ".join(filter(None, parts)))


def _values(row: OracleRow, batches: list[int]) -> list[float | None]:
    return [row.speedups[str(batch)].value for batch in batches]


def _difference(subject: OracleSubject) -> PanelGroup | None:
    if subject.both is None or subject.second is None or not subject.both.answers.count:
        return None
    main, second = subject.main.name, subject.second.name
    found = drafter_differences(subject.both, ROWS_MAX, COLUMNS_MAX)
    farthest = float(np.nanpercentile(np.abs(found.values), FULL_COLOUR))
    data = replace(differences_map(found, main, second), farthest=farthest)
    mean = float((subject.both.second.accepted - subject.both.first.accepted).mean())
    words = f"{main} has {mean:+.2f} drafts more accepted than {second}, mean over positions"
    caption = (
        f"Drafts of {main} that a step has accepted − those of {second}, mean over the positions of a cell; a row is"
        " answers of so many output tokens, a column positions. Blue:"
        f" {main} has more; orange: {second}; empty: no answer is as long. Compared by: {subject.both.compared_by}."
        f" {subject.both.answers.count:,} answers."
    )
    return PanelGroup((heatmap_panel(data, f"{main} − {second}", words),), caption)


# The plot of `specbench analyze ngram`: the value of drafting by how much of the answer is in its prompt.

MEASURED = "Measured speed-up by overlap of prompt and answer"
REPLAYED = "Acceptance length of n-gram, replayed, by overlap of prompt and answer"


def overlap_plots(report: NgramReport) -> PlotDocument:
    """Return one panel per predictor: the measured speed-ups of arms, if any, and the acceptance length of n-gram."""
    groups = [(MEASURED, _overlap_maps(report, "speedups")), (REPLAYED, _overlap_maps(report, "acceptance_lengths"))]
    return PlotDocument(report.source, [(title, each) for title, each in groups if each is not None], report.simulated)


def _overlap_maps(report: NgramReport, of: str) -> PanelGroup | None:
    panels, figures = [], []
    for by, name in PREDICTORS.items():
        bins = [each for each in report.by_overlap if each.by == by]
        columns = list(dict.fromkeys(column for each in bins for column in _figures(each, of)))
        if not columns:
            continue
        values = tuple(tuple(_value(each, of, column) for column in columns) for each in bins)
        rows = tuple(f"{range_of(each)} ({each.answers:,})" for each in bins)
        data = HeatMap(rows, tuple(columns), values, "arm" if of == "speedups" else "n-gram's knobs", middle=1.0)
        panels.append(heatmap_panel(data, name, _words(data), names_in=slanted_height_in(columns)))
        figures += known(figure for each in bins for figure in _figures(each, of).values())
    if not figures:
        return None
    definition = figures[0].definition.partition(";")[0]
    note = (
        f"Blue: more than 1; orange: less; –: not known, or of fewer than {INTERVAL_FROM} answers, which the table has."
        " A row is a range of overlap, in brackets its answers."
    )
    return PanelGroup(tuple(panels), f"{definition}. {sizes(figures)} {note} Intervals: the table.")


def _figures(each: OverlapBin, of: str) -> dict[str, Figure]:
    return each.speedups if of == "speedups" else each.acceptance_lengths


def _value(each: OverlapBin, of: str, column: str) -> float | None:
    """Return the value; None if it rests on few answers, which would have the strongest colour."""
    if each.answers < INTERVAL_FROM:
        return None
    figure = _figures(each, of).get(column)
    return figure.value if figure else None


def _words(data: HeatMap) -> str:
    """Describe the best column of each row for screen readers."""
    best = []
    for row, values in zip(data.rows, data.values, strict=True):
        found = [(value, column) for value, column in zip(values, data.columns, strict=True) if value is not None]
        if found:
            best.append(f"{row}: {max(found)[1]} {max(found)[0]:.2f}")
    return "; ".join(best)
