"""Tables that explain speed-ups: the factors of each one, and another traffic mix."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import MixPrediction, Prediction
from specbench_api.outcome.summary import Cell
from specbench_client.report.text.text_table import DASH, TextTable, compared_text, number, with_interval

FACTOR_TITLES = (
    "Arm", "Workload", "Load", "Measured [95 %]", "= Predicted", "× Prefill", "× Length",
    "Predicted = Ideal", "× Acceptance", "× Step cost",
)  # fmt: skip
FACTORS_SAY = (
    "measured = predicted × prefill × length, predicted = ideal × acceptance × step cost:"
    " docs/research/explain.md; computed from the pairs of requests that have all factors on both sides, so the"
    " speed-up can differ from the report's"
)
MIX_TITLES = ("Arm", "Workload", "Load", "Measured mix [95 %]", "Your mix [95 %]", "AL of your mix [95 %]", "Note")
CATEGORY_TITLES = ("Arm", "Workload", "Load", "Category", "Requests", "Tokens", "Baseline's time", "AL", "Speed-up")


def factors_table(cells: Sequence[Cell]) -> TextTable:
    """Return the factors of each cell with a prediction."""
    rows = [_factors(cell, cell.prediction) for cell in cells if cell.prediction]
    return TextTable("Factors", FACTOR_TITLES, rows, words=FACTOR_TITLES[:2])


def mixes_table(mixes: Sequence[MixPrediction]) -> TextTable:
    """Return the predicted speed-up for another traffic mix: one row for each arm and load."""
    rows = [
        [
            each.arm,
            each.workload,
            each.load,
            with_interval(each.measured_speedup),
            with_interval(each.speedup),
            with_interval(each.acceptance_length),
            "" if each.valid else "invalid",
        ]
        for each in mixes
    ]
    return TextTable("Your mix", MIX_TITLES, rows, words=(*MIX_TITLES[:2], "Note"))


def categories_table(mixes: Sequence[MixPrediction]) -> TextTable:
    """Return the composition of each prediction: one row for each category."""
    rows = [
        [
            mix.arm,
            mix.workload,
            mix.load,
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
    inner = (found.ideal, found.acceptance, found.step_cost)
    measured = compared_text(cell, found.measured) + ("" if cell.valid else " invalid")
    outer = [_bare(found.predicted), _bare(found.prefill, 3), _bare(found.length, 3)]
    return [cell.arm, cell.workload, cell.level.label, measured, *outer, *(_bare(each, 3) for each in inner)]


def _bare(figure: Figure, digits: int = 2) -> str:
    return DASH if figure.value is None else number(figure.value, digits)
