"""Output tokens a second of the engine, one panel a load, with the difference from the baseline next to each bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.report.plots.bars import Bar, Bars, Part, bars_height, draw_bars
from specbench_client.report.plots.canvas import Panel, PanelGroup
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
from specbench_client.report.plots.series import plot_value
from specbench_client.report.plots.styles import Style, arm_styles

OUTPUT_TPS = "output_tps"
NOTE = (
    "The percentage is the gap over the baseline's bar at the same load, between valid cells; the paired comparison is"
    " the speed-up. Each load has a scale of its own."
)


def throughput(summary: RunSummary) -> PanelGroup | None:
    """One panel a workload and load, each with its own scale, because throughput grows many times with load."""
    looks = arm_styles(cell.arm for cell in summary.cells)
    panels = []
    for workload, cells in workloads(summary):
        names = list(dict.fromkeys(cell.arm for cell in cells))
        for level in loads(cells):
            rows = tuple(_bar(cells, arm, level, looks) for arm in names)
            if any(row.parts for row in rows):
                data = Bars(rows, "output tokens a second")
                words = ", ".join(f"{row.name} {row.text}" for row in rows)
                panels.append(Panel(partial(draw_bars, data=data), at_load(level, workload), words, bars_height(rows)))
    figures = known(cell.figures.get(OUTPUT_TPS) for cell in summary.cells)
    caption = f"{rests_on(figures)} {NOTE} {INVALID}"
    return PanelGroup(tuple(panels), caption) if panels else None


def _bar(cells: Sequence[Cell], arm: str, level: Level, looks: Mapping[str, Style]) -> Bar:
    cell = cell_of(cells, arm, level)
    shown = plot_value(figure_of(cell, OUTPUT_TPS), valid=bool(cell and cell.valid))
    if shown is None:
        return Bar(arm_label(arm), (), "not measured" if cell is None else "not told")
    part = Part(shown.value, looks[arm])
    text = " ".join((amount(shown.value), *_gap(shown.value, cell_of(cells, BASELINE_NAME, level), cell)))
    return Bar(arm_label(arm), (part,), text, shown.valid, shown.low, shown.high)


def _gap(value: float, baseline: Cell | None, cell: Cell | None) -> list[str]:
    """Return the difference from the baseline in percent; empty unless both are valid."""
    under = figure_of(baseline, OUTPUT_TPS)
    if baseline is None or cell is None or cell.arm == BASELINE_NAME or under is None or not under.value:
        return []
    return [f"({value / under.value - 1:+.0%})"] if baseline.valid and cell.valid else []
