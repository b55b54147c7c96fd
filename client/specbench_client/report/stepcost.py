"""Step costs in words: the model's terms with their intervals, how well held-out cells are met, and each cell."""

from __future__ import annotations

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.stepcost import Basis, StepCost
from specbench_client.report.columns import DASH
from specbench_client.report.sheets import Sheet

TERM_TITLES = ("Term", "ms [95 %]", "What it is")


def profile_line(cost: StepCost) -> str:
    """`step times: linear model, held-out cells met within 2.1 %, R² 0.998`, or why there is none."""
    if cost.basis is Basis.FIT and cost.held_out_error and cost.held_out_error.value is not None:
        told = cost.r_squared.value if cost.r_squared else None
        square = f", R² {told:.3f}" if told is not None else ""
        return f"step times: linear model, held-out cells met within {cost.held_out_error.value:.1%}{square}"
    return "step times: interpolated between cells, and nowhere else"


def terms_sheet(title: str, cost: StepCost) -> Sheet:
    """The terms of the model; no rows where there is none."""
    return Sheet(title, TERM_TITLES, term_rows(cost), words=("Term", "What it is"))


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
