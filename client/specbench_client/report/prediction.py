"""Predictions beside measurements in words: the factors of each speed-up, the formula, and other traffic."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.prediction import DomainPrediction, MixPrediction, Prediction
from specbench_api.outcome.summary import Cell
from specbench_client.report.columns import DASH, number, with_interval
from specbench_client.report.sheets import Sheet

FACTOR_TITLES = (
    "Arm", "Workload", "Load", "Measured [95 %]", "= Predicted", "× Prefill", "× Length",
    "Predicted = Ideal", "× Acceptance", "× Step cost", "× Occupancy",
)  # fmt: skip
FACTORS_SAY = (
    "measured = predicted × prefill × length, predicted = ideal × acceptance × step cost × occupancy:"
    " docs/prediction.md; over the pairs in which both sides have every part, so that it can differ from the"
    " report's speed-up"
)
MIX_TITLES = ("Arm", "Workload", "Load", "Measured mix [95 %]", "Your mix [95 %]", "AL of your mix [95 %]", "Note")
DOMAIN_TITLES = (
    "Arm", "Workload", "Load", "Category", "AL [95 %]", "Predicted [95 %]", "Measured TPOT speed-up [95 %]",
    "Measured / predicted [95 %]",
)  # fmt: skip
CATEGORY_TITLES = ("Arm", "Workload", "Load", "Category", "Requests", "Tokens", "Baseline's time", "AL", "Speed-up")


def factors_sheet(cells: Sequence[Cell]) -> Sheet:
    """The factors of each cell with a prediction."""
    return Sheet("Factors", FACTOR_TITLES, factor_rows(cells), words=FACTOR_TITLES[:2])


def mixes_sheet(mixes: Sequence[MixPrediction]) -> Sheet:
    """What other traffic would give: each arm at each load."""
    return Sheet("Your mix", MIX_TITLES, mix_rows(mixes), words=(*MIX_TITLES[:2], "Note"))


def categories_sheet(mixes: Sequence[MixPrediction]) -> Sheet:
    """What it is made of: each category of each prediction."""
    words = ("Arm", "Workload", "Category")
    return Sheet("Your mix by category", CATEGORY_TITLES, category_rows(mixes), words)


def domains_sheet(domains: Sequence[DomainPrediction]) -> Sheet:
    """Each category from its acceptance and the cell's step times, beside what was measured."""
    rows = [
        [each.arm, each.workload, each.load, each.category, *map(with_interval, _figures(each))] for each in domains
    ]
    title = "Decoding by category: acceptance length / (step time / baseline's step time)"
    return Sheet(title, DOMAIN_TITLES, rows, words=("Arm", "Workload", "Category"))


def _figures(each: DomainPrediction) -> tuple[Figure | None, ...]:
    return each.acceptance_length, each.predicted, each.measured, each.ratio


def factor_rows(cells: Sequence[Cell]) -> list[list[str]]:
    """A row for each cell with a prediction."""
    return [_factors(cell, cell.prediction) for cell in cells if cell.prediction]


def formula_lines(cells: Sequence[Cell]) -> list[str]:
    """What one acceptance rate for all positions would give, and whether that holds; loads that tell the same once."""
    loads: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        constant = cell.prediction.constant if cell.prediction else None
        if constant is not None:
            told = f"alpha {number(constant.alpha.value)} gives {number(constant.predicted.value)} tokens a step"
            line = f"{told} with drafts, measured {number(constant.measured.value)}; {constant.says}"
            loads.setdefault((f"{cell.arm} on {cell.workload}", line), []).append(cell.level.label)
    return [f"{where} at {', '.join(labels)}: {line}" for (where, line), labels in loads.items()]


def mix_rows(mixes: Sequence[MixPrediction]) -> list[list[str]]:
    """A row for each arm at each load."""
    return [
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


def category_rows(mixes: Sequence[MixPrediction]) -> list[list[str]]:
    """A row for each category of each prediction."""
    return [
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


def _factors(cell: Cell, found: Prediction) -> list[str]:
    told = (found.ideal, found.acceptance, found.step_cost, found.occupancy)
    measured = with_interval(found.measured) + ("" if cell.valid else " invalid")
    outer = [_bare(found.predicted), _bare(found.prefill, 3), _bare(found.length, 3)]
    return [cell.arm, cell.workload, cell.level.label, measured, *outer, *(_bare(each, 3) for each in told)]


def _bare(figure: Figure, digits: int = 2) -> str:
    return DASH if figure.value is None else number(figure.value, digits)
