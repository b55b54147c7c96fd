"""The plots of `specbench oracle`: bounds over fixed lengths by batch size, and where which drafter accepts more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from specbench_api.outcome.oracle import Charge, OracleReport, OracleRow, Policy
from specbench_client.analysis.oracle.differences import differences
from specbench_client.analysis.oracle.report import Subject
from specbench_client.report.plots.along import draw_along
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.data import told
from specbench_client.report.plots.heatmap import draw_heatmap, height_of
from specbench_client.report.plots.ink import TOGETHER
from specbench_client.report.plots.oracle import differences_map, oracle_against_fixed
from specbench_client.report.plots.picture import Picture
from specbench_client.report.plots.sections.cells import sizes
from specbench_client.report.plots.sections.section import Drawn

ROWS_MAX, COLUMNS_MAX = 24, 48
"""Of the map; neighbours are one."""
FULL_COLOUR = 95
"""Percent of the cells that have less than the full colour: one of few answers takes it from no other."""
BOUNDS = "What an oracle gains over fixed draft lengths, by batch size"
DIFFERENCE = "Which drafter has more accepted, by position and length of the answer"


def oracle_picture(report: OracleReport, subject: Subject) -> Picture:
    """Bounds where a step has a cost; the difference where two drafters speak of one text."""
    drawn = [(BOUNDS, _bounds(report)), (DIFFERENCE, _difference(subject))]
    return Picture(report.source, [(title, each) for title, each in drawn if each is not None], report.simulated)


def _bounds(report: OracleReport) -> Drawn | None:
    if not report.rooms:
        return None
    batches = sorted({room.batch for room in report.rooms})
    main = report.drafters[0]
    lengths = {row.drafts: row for row in report.rows if row.policy is Policy.FIXED and row.drafts is not None}
    shown = sorted(lengths)[:TOGETHER]
    whole = next(row for row in report.rows if row.policy is Policy.ORACLE and row.drafter == main)
    combined = next((row for row in report.rows if row.charge is Charge.WINNER), None)
    data = oracle_against_fixed(
        batches,
        {each: _values(lengths[each], batches) for each in shown},
        _values(whole, batches),
        _values(combined, batches) if combined else None,
    )
    words = told(data.series, [str(batch) for batch in batches])
    definition = whole.speedups[str(batches[0])]
    cost = f"Step cost: {report.step_cost.name}." if report.step_cost else ""
    both = "Of both drafters: the winner pays, over the positions that both speak of." if combined else ""
    left = [str(each) for each in sorted(lengths) if each not in shown]
    more = f"Not drawn: k = {', '.join(left)}." if left else ""
    parts = (
        f"Speed-up: {definition.definition}.",
        cost,
        both,
        sizes([definition]),
        "Intervals stand in the table.",
        more,
    )
    return Drawn((Panel(partial(draw_along, data=data), main, words),), " ".join(filter(None, parts)))


def _values(row: OracleRow, batches: list[int]) -> list[float | None]:
    return [row.speedups[str(batch)].value for batch in batches]


def _difference(subject: Subject) -> Drawn | None:
    if subject.both is None or subject.second is None or not subject.both.answers.count:
        return None
    main, second = subject.main.name, subject.second.name
    found = differences(subject.both, ROWS_MAX, COLUMNS_MAX)
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
    panel = Panel(partial(draw_heatmap, data=data), f"{main} − {second}", words, height_of(len(data.rows)))
    return Drawn((panel,), caption)
