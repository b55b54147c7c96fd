"""Tables of step costs: terms of the model with intervals, held-out error, and the parts of each cell's step."""

from __future__ import annotations

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.step_cost import StepCost, StepObservation, StepSplit
from specbench_client.report.text.text_table import DASH, TextTable, number

SPLIT_TITLES = (
    "Arm",
    "Workload",
    "Load",
    "Step ms",
    "Target",
    "Drafting",
    "Verifying drafts",
    "Prefill of others",
    "Not explained",
    "Draft pass / target's [95 %]",
)
TERM_TITLES = ("Term", "ms [95 %]", "Definition")


def profile_line(cost: StepCost) -> str:
    """`linear model, held-out cells predicted within 2.1 %, R² 0.998`, or that none fits."""
    if cost.fits:
        r_squared = cost.r_squared.value if cost.r_squared else None
        square = f", R² {r_squared:.3f}" if r_squared is not None else ""
        return f"linear model, {held_out_text(cost)}{square}"
    return "no linear model predicts held-out cells well enough"


def terms_table(title: str, cost: StepCost) -> TextTable:
    """Return the terms of the model; no rows where there is none."""
    rows = [
        [str(term), _small(figure), figure.definition.partition(";")[0]] for term, figure in cost.coefficients.items()
    ]
    return TextTable(title, TERM_TITLES, rows, words=("Term", "Definition"))


def split_table(cost: StepCost) -> TextTable:
    """Return the parts of each cell's step in ms by the model; no rows where the model is not good enough."""
    rows = [_parts(each, each.split) for each in cost.observations if each.split is not None]
    title = f"A step's time in parts, fitted and not timed ({held_out_text(cost)})"
    return TextTable(title, SPLIT_TITLES, rows, words=SPLIT_TITLES[:2])


def held_out_text(cost: StepCost) -> str:
    """`held-out cells predicted within 2.1%`; empty where there is no model."""
    error = cost.held_out_error
    return "" if error is None or error.value is None else f"held-out cells predicted within {error.value:.1%}"


def _parts(observed: StepObservation, split: StepSplit) -> list[str]:
    parts = (split.target_ms, split.draft_ms, split.verify_ms, split.prefill_ms)
    row = [observed.arm, observed.workload, observed.load, number(observed.step_ms), *(number(each) for each in parts)]
    return [*row, f"{split.rest_ms:+.2f}", _percent(split.draft_to_target)]


def _percent(ratio: Figure | None) -> str:
    if ratio is None or ratio.value is None:
        return DASH
    bounds = ratio.interval
    tail = f" [{bounds.low:.1%}, {bounds.high:.1%}]" if bounds else " (at its bound: no interval)"
    return f"{ratio.value:.1%}{tail}"


def _small(figure: Figure) -> str:
    """Format with significant digits: costs range from milliseconds to nanoseconds a token."""
    if figure.value is None:
        return DASH
    bounds = figure.interval
    tail = f" [{bounds.low:.3g}, {bounds.high:.3g}]" if bounds else " (at its bound: no interval)"
    return f"{figure.value:.3g}{tail}"
