"""Output tokens a second of the whole engine, each load a panel, with the gap over the baseline beside each bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.report.plots.bars import Bar, Bars, Part, draw_bars, height_of
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.data import reading
from specbench_client.report.plots.ink import Style, styles_of
from specbench_client.report.plots.sections.cells import (
    INVALID,
    amount,
    arm_label,
    at_load,
    cell_of,
    figure_of,
    known,
    loads,
    rests_on,
    workloads,
)
from specbench_client.report.plots.sections.section import Drawn

OUTPUT_TPS = "output_tps"
NOTE = (
    "The percentage is the gap over the baseline's bar at the same load, between valid cells; the paired comparison is"
    " the speed-up. Each load has a scale of its own."
)


def throughput(summary: RunSummary) -> Drawn | None:
    """A panel a workload and load, each with a scale of its own: a heavy load gives many times more."""
    looks = styles_of(cell.arm for cell in summary.cells)
    panels = []
    for workload, cells in workloads(summary):
        names = list(dict.fromkeys(cell.arm for cell in cells))
        for level in loads(cells):
            rows = tuple(_bar(cells, arm, level, looks) for arm in names)
            if any(row.parts for row in rows):
                data = Bars(rows, "output tokens a second")
                words = ", ".join(f"{row.name} {row.text}" for row in rows)
                panels.append(Panel(partial(draw_bars, data=data), at_load(level, workload), words, height_of(rows)))
    figures = known(cell.figures.get(OUTPUT_TPS) for cell in summary.cells)
    caption = f"{rests_on(figures)} {NOTE} {INVALID}"
    return Drawn(tuple(panels), caption) if panels else None


def _bar(cells: Sequence[Cell], arm: str, level: Level, looks: Mapping[str, Style]) -> Bar:
    cell = cell_of(cells, arm, level)
    shown = reading(figure_of(cell, OUTPUT_TPS), valid=bool(cell and cell.valid))
    if shown is None:
        return Bar(arm_label(arm), (), "not measured" if cell is None else "not told")
    part = Part(shown.value, looks[arm])
    text = " ".join((amount(shown.value), *_gap(shown.value, cell_of(cells, BASELINE_NAME, level), cell)))
    return Bar(arm_label(arm), (part,), text, shown.valid, shown.low, shown.high)


def _gap(value: float, baseline: Cell | None, cell: Cell | None) -> list[str]:
    """The gap in percent, where both sides are valid."""
    under = figure_of(baseline, OUTPUT_TPS)
    if baseline is None or cell is None or cell.arm == BASELINE_NAME or under is None or not under.value:
        return []
    return [f"({value / under.value - 1:+.0%})"] if baseline.valid and cell.valid else []
