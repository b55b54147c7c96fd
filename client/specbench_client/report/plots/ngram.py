"""The plot of `specbench analyze ngram`: the value of drafting by how much of the answer is in its prompt."""

from __future__ import annotations

from functools import partial

from specbench_api.outcome.figure import Figure
from specbench_client.documents.what_if import NgramReport, OverlapBin
from specbench_client.report.plots.axes import slanted_height_in
from specbench_client.report.plots.canvas import Panel, PanelGroup
from specbench_client.report.plots.heatmap import HeatMap, draw_heatmap, heatmap_height
from specbench_client.report.plots.page import PlotDocument
from specbench_client.report.plots.sections.cells import known, sizes
from specbench_client.report.text.what_if import PREDICTORS, range_of
from specbench_client.trust.checks.too_few_prompts import INTERVAL_FROM

MEASURED = "Measured speed-up by overlap of prompt and answer"
REPLAYED = "Acceptance length of n-gram, replayed, by overlap of prompt and answer"


def overlap_plots(report: NgramReport) -> PlotDocument:
    """A panel a predictor: arms' measured speed-ups where there are some, and n-gram's acceptance length."""
    drawn = [(MEASURED, _drawn(report, "speedups")), (REPLAYED, _drawn(report, "acceptance_lengths"))]
    return PlotDocument(report.source, [(title, each) for title, each in drawn if each is not None], report.simulated)


def _drawn(report: NgramReport, of: str) -> PanelGroup | None:
    panels, figures = [], []
    for by, name in PREDICTORS.items():
        bins = [each for each in report.by_overlap if each.by == by]
        columns = list(dict.fromkeys(column for each in bins for column in _figures(each, of)))
        if not columns:
            continue
        values = tuple(tuple(_value(each, of, column) for column in columns) for each in bins)
        rows = tuple(f"{range_of(each)} ({each.answers:,})" for each in bins)
        data = HeatMap(rows, tuple(columns), values, "arm" if of == "speedups" else "n-gram's knobs", middle=1.0)
        panels.append(
            Panel(
                partial(draw_heatmap, data=data),
                name,
                _words(data),
                heatmap_height(len(rows)) + slanted_height_in(columns),
            )
        )
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
    told = []
    for row, values in zip(data.rows, data.values, strict=True):
        found = [(value, column) for value, column in zip(values, data.columns, strict=True) if value is not None]
        if found:
            told.append(f"{row}: {max(found)[1]} {max(found)[0]:.2f}")
    return "; ".join(told)
