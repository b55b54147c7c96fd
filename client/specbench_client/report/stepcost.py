"""Step costs in words: the model's terms with their intervals, how well held-out cells are met, and each cell."""

from __future__ import annotations

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.stepcost import Basis, StepCost, StepObservation, StepSplit
from specbench_client.report.columns import DASH, number
from specbench_client.report.sheets import Sheet

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
TERM_TITLES = ("Term", "ms [95 %]", "What it is")


def profile_line(cost: StepCost) -> str:
    """`step times: linear model, held-out cells met within 2.1 %, R² 0.998`, or why there is none."""
    if cost.basis is Basis.FIT and cost.held_out_error and cost.held_out_error.value is not None:
        told = cost.r_squared.value if cost.r_squared else None
        square = f", R² {told:.3f}" if told is not None else ""
        return f"step times: linear model, {met(cost)}{square}"
    return "step times: interpolated between cells, and nowhere else"


def terms_sheet(title: str, cost: StepCost) -> Sheet:
    """The terms of the model; no rows where there is none."""
    return Sheet(title, TERM_TITLES, term_rows(cost), words=("Term", "What it is"))


def split_sheet(cost: StepCost) -> Sheet:
    """Each cell's step in its parts, ms, by the model; no rows where it is not good enough for that."""
    rows = [_parts(each, each.split) for each in cost.observations if each.split is not None]
    title = f"A step's time in parts, fitted and not timed ({met(cost)})"
    return Sheet(title, SPLIT_TITLES, rows, words=SPLIT_TITLES[:2])


def met(cost: StepCost) -> str:
    """`held-out cells met within 2.1%`; empty where there is no model."""
    error = cost.held_out_error
    return "" if error is None or error.value is None else f"held-out cells met within {error.value:.1%}"


def _parts(seen: StepObservation, split: StepSplit) -> list[str]:
    parts = (split.target_ms, split.draft_ms, split.verify_ms, split.prefill_ms)
    told = [seen.arm, seen.workload, seen.load, number(seen.step_ms), *(number(each) for each in parts)]
    return [*told, f"{split.rest_ms:+.2f}", _percent(split.draft_to_target)]


def _percent(ratio: Figure | None) -> str:
    if ratio is None or ratio.value is None:
        return DASH
    bounds = ratio.interval
    tail = f" [{bounds.low:.1%}, {bounds.high:.1%}]" if bounds else " (at its bound: no interval)"
    return f"{ratio.value:.1%}{tail}"


def term_rows(cost: StepCost) -> list[list[str]]:
    """A row for each term of the model."""
    return [
        [str(term), _small(figure), figure.definition.partition(";")[0]] for term, figure in cost.coefficients.items()
    ]


def _small(figure: Figure) -> str:
    """Costs go from milliseconds down to nanoseconds a token: significant digits, not places."""
    if figure.value is None:
        return DASH
    bounds = figure.interval
    tail = f" [{bounds.low:.3g}, {bounds.high:.3g}]" if bounds else " (at its bound: no interval)"
    return f"{figure.value:.3g}{tail}"
