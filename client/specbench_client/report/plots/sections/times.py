"""The parts of the time of a decode step and of a request, one panel a load."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specbench_api.outcome.step_cost import StepCost, StepObservation, StepSplit
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.report.plots.bars import Bar, Bars, Part, bars_panel
from specbench_client.report.plots.canvas import PanelGroup
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
from specbench_client.report.plots.styles import GREY_LIGHT, LIGHT, Style
from specbench_client.report.text import step_costs

STEP, TTFT, E2E = "step_ms_p50", "ttft_ms_mean", "e2e_ms_mean"
PREFILL = Style(LIGHT[1], hatch="///")
DECODE = Style(LIGHT[0])
OWN = Style(GREY_LIGHT)
ADDED = Style(LIGHT[1], hatch="///")
MEASURED = Style(LIGHT[0])
ADDED_NOTE = (
    "Added: this arm's step time minus the baseline's at the same load. It estimates the cost of drafting and of the"
    " wider verification, and includes every other difference between the two engines at that load."
)
REQUEST_NOTE = "Prefill: to the first token, queueing included; decode: from there to the last. Means, which add up."

FITTED = (
    ("target's own pass", Style(GREY_LIGHT)),
    ("drafting", Style(LIGHT[1], hatch="///")),
    ("verifying drafts", Style(LIGHT[0], hatch="||")),
    ("prefill of others", Style(LIGHT[2], hatch="xx")),
    ("not explained", Style(LIGHT[4], hatch="--")),
)
FITTED_NOTE = (
    "Fitted, not timed: the parts of the linear step-cost model of each drafter and the baseline at this batch, draft"
    " length and context. Sampling and scheduling are in the target's own pass. Behind each bar the measured step, and"
    " in brackets one draft pass over one pass of the target without drafts. Where the model predicts more than was"
    " measured, the bar shows the prediction."
)

Parts = Callable[[Sequence[Cell], str, Level], Bar | None]


def step_time(summary: RunSummary) -> PanelGroup | None:
    """The median step: the baseline's part and what was added; undivided without a valid baseline."""
    legend = (("the baseline's step", OWN), ("added", ADDED), ("not compared", MEASURED))
    levels = _levels(summary, _step, "ms a decode step (median)", legend)
    figures = known(cell.figures.get(STEP) for cell in summary.cells)
    return _drawn(levels, f"{rests_on(figures, bounds=False)} {ADDED_NOTE} {INVALID}")


def step_split(summary: RunSummary) -> PanelGroup | None:
    """The step of each cell in the parts of the fitted model; None if no model predicts held-out cells."""
    splits = {
        (each.arm, each.workload, each.load): each
        for cost in summary.step_costs
        for each in cost.observations
        if each.split is not None and each.arm != BASELINE_NAME
    }

    def bar(cells: Sequence[Cell], arm: str, level: Level) -> Bar | None:
        cell = cell_of(cells, arm, level)
        seen = splits.get((arm, cell.workload, level.label)) if cell else None
        return _split(seen, seen.split) if seen and seen.split else None

    levels = _levels(summary, bar, "ms a decode step (median)", FITTED)
    fits = [cost for cost in summary.step_costs if cost.fits]
    notes = (f"{_drafters(cost)}: n {len(cost.observations)} cells, {step_costs.held_out_text(cost)}" for cost in fits)
    return _drawn(levels, f"{FITTED_NOTE} {'; '.join(notes)}.")


def request_time(summary: RunSummary) -> PanelGroup | None:
    """The mean request: time to the first token, and from there to the last."""
    levels = _levels(summary, _request, "ms a request (mean)", (("prefill (TTFT)", PREFILL), ("decode", DECODE)))
    figures = known(cell.figures.get(E2E) for cell in summary.cells)
    return _drawn(levels, f"{rests_on(figures, bounds=False)} {REQUEST_NOTE} {INVALID}")


def _step(cells: Sequence[Cell], arm: str, level: Level) -> Bar | None:
    cell, baseline = cell_of(cells, arm, level), cell_of(cells, BASELINE_NAME, level)
    mine, under = _value(cell, STEP), _value(baseline if baseline and baseline.valid else None, STEP)
    if cell is None or mine is None:
        return None
    if arm == BASELINE_NAME:
        return Bar(arm_label(arm), (Part(mine, OWN),), amount(mine), cell.valid)
    if under is None:
        return Bar(arm_label(arm), (Part(mine, MEASURED),), amount(mine), cell.valid)
    parts = (Part(min(mine, under), OWN), *([Part(mine - under, ADDED)] if mine > under else []))
    return Bar(arm_label(arm), parts, f"{amount(mine)} ({mine - under:+.1f})", cell.valid)


def _drafters(cost: StepCost) -> str:
    return ", ".join(arm for arm in cost.arms if arm != BASELINE_NAME)


def _split(seen: StepObservation, split: StepSplit) -> Bar:
    sizes = (split.target_ms, split.draft_ms, split.verify_ms, split.prefill_ms, split.rest_ms)
    parts = tuple(Part(size, style) for size, (_, style) in zip(sizes, FITTED, strict=True) if size > 0)
    ratio = split.draft_to_target.value if split.draft_to_target else None
    text = amount(seen.step_ms) + (f" ({ratio:.0%})" if ratio is not None else "")
    return Bar(arm_label(seen.arm), parts, text)


def _request(cells: Sequence[Cell], arm: str, level: Level) -> Bar | None:
    cell = cell_of(cells, arm, level)
    first, last = _value(cell, TTFT), _value(cell, E2E)
    if cell is None or first is None or last is None or last < first:
        return None
    text = f"{amount(last)} ({first / last:.0%} prefill)" if last else amount(last)
    return Bar(arm_label(arm), (Part(first, PREFILL), Part(last - first, DECODE)), text, cell.valid)


def _levels(
    summary: RunSummary, bar: Parts, x_label: str, legend: Sequence[tuple[str, Style]]
) -> list[tuple[str, Bars]]:
    """Return the bars of each workload and load, with one scale a workload and a legend of what is drawn."""
    found = []
    for workload, cells in workloads(summary):
        names = list(dict.fromkeys(cell.arm for cell in cells))
        levels = {level: [row for arm in names if (row := bar(cells, arm, level))] for level in loads(cells)}
        longest = max((row.length for rows in levels.values() for row in rows), default=0.0)
        for level, rows in levels.items():
            used = {part.style for row in rows for part in row.parts}
            named = tuple(each for each in legend if each[1] in used)
            if rows:
                found.append((at_load(level, workload), Bars(tuple(rows), x_label, named, longest)))
    return found


def _drawn(levels: Sequence[tuple[str, Bars]], caption: str) -> PanelGroup | None:
    panels = tuple(bars_panel(data, title) for title, data in levels)
    return PanelGroup(panels, caption) if panels else None


def _value(cell: Cell | None, name: str) -> float | None:
    figure = figure_of(cell, name)
    return figure.value if figure else None
