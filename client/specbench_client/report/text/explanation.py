"""Tables that explain speed-ups: the factors of each one, and another traffic mix."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_client.documents.explanation import MixPrediction, Prediction, StepCost, StepObservation, StepSplit
from specbench_client.documents.summary import Cell
from specbench_client.report.text.text_table import (
    AT_LEVEL,
    DASH,
    TextTable,
    cell_place,
    figure_text,
    number,
    percent,
    with_interval,
)

FACTOR_TITLES = (
    "Arm", "Workload", "Load", f"Measured {AT_LEVEL}", "= Predicted", "× Prefill", "× Length",
    "Predicted = Ideal", "× Acceptance", "× Step cost",
)  # fmt: skip
FACTORS_SAY = (
    "measured = predicted × prefill × length, predicted = ideal × acceptance × step cost:"
    ' docs, "Explain a speed-up"; computed from the pairs of requests that have all factors on both sides, so the'
    " speed-up can differ from the report's"
)
MIX_TITLES = (
    "Arm",
    "Workload",
    "Load",
    f"Measured mix {AT_LEVEL}",
    f"Your mix {AT_LEVEL}",
    f"AL of your mix {AT_LEVEL}",
)
CATEGORY_TITLES = ("Arm", "Workload", "Load", "Category", "Requests", "Tokens", "Baseline's time", "AL", "Speed-up")


def factors_table(cells: Sequence[Cell]) -> TextTable:
    """Return the factors of each cell with a prediction."""
    found = [(cell, cell.prediction) for cell in cells if cell.prediction]
    rows = [_factors(cell, each) for cell, each in found]
    unknown = [figure for _, each in found for figure in (each.ideal, each.prefill) if figure.value is None]
    reasons = "; ".join(dict.fromkeys(figure.missing for figure in unknown))
    caption = f"{DASH}: {reasons}" if reasons else ""
    return TextTable("Factors", FACTOR_TITLES, rows, words=FACTOR_TITLES[:2], caption=caption)


def mixes_table(mixes: Sequence[MixPrediction]) -> TextTable:
    """Return the predicted speed-up for another traffic mix: one row for each arm and load."""
    rows = [
        [
            each.arm,
            each.workload,
            each.load + ("" if each.valid else " invalid"),
            with_interval(each.measured_speedup),
            with_interval(each.speedup),
            with_interval(each.acceptance_length),
        ]
        for each in mixes
    ]
    return TextTable("Your mix", MIX_TITLES, rows, words=MIX_TITLES[:2])


def categories_table(mixes: Sequence[MixPrediction]) -> TextTable:
    """Return the composition of each prediction: one row for each category."""
    rows = [
        [
            mix.arm,
            mix.workload,
            mix.load + ("" if mix.valid else " invalid"),
            each.category,
            f"{each.requests_share:.0%}",
            f"{each.tokens_share:.0%}",
            f"{each.time_share:.0%}",
            number(each.acceptance_length),
            number(each.speedup),
        ]
        for mix in mixes
        for each in mix.categories
    ]
    return TextTable("Your mix by category", CATEGORY_TITLES, rows, ("Arm", "Workload", "Category"))


def _factors(cell: Cell, found: Prediction) -> list[str]:
    inner = (found.ideal.value, found.acceptance.value, found.step_cost.value)
    measured = with_interval(found.measured)
    outer = [number(found.predicted.value), number(found.prefill.value, 3), number(found.length.value, 3)]
    return [*cell_place(cell), measured, *outer, *(number(each, 3) for each in inner)]


# Tables of step costs: terms of the model with intervals, held-out error, and the parts of each cell's step.


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
    f"Draft pass / target's {AT_LEVEL}",
)
_AT_BOUND = "at its bound: no interval"
TERM_TITLES = ("Term", f"ms {AT_LEVEL}", "Definition")


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
        [str(term), figure_text(figure, "{:.3g}".format, bare=_AT_BOUND), figure.definition.partition(";")[0]]
        for term, figure in cost.coefficients.items()
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
    return [*row, f"{split.rest_ms:+.2f}", figure_text(split.draft_to_target, percent, bare=_AT_BOUND)]
