"""Decides which conclusion each comparison of a run allows.

A cell is `faster` or `slower` only if the interval excludes 1 and still does after Holm's correction for the number of
comparisons: among twenty, one excludes 1 by chance. If the interval contains 1, it is `indistinguishable`; an invalid
cell is not compared at all. With fewer than three repeats there is no conclusion, only the ratio and the number of
repeats: with a run-to-run noise of 3 % the interval of one run excludes 1 in two of three runs without any difference.

Cells are one family of comparisons and the categories of all cells another, so that looking at categories does not
weaken the conclusions about cells, and the luckiest of eleven categories at five loads is not declared a winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell, Claims, SpeedupConclusion
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.estimates.speedups import SPEEDUP, conclusion
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.holm import holm_rejections
from specbench_client.analysis.summary.cell import EvaluatedCell


def with_claims(judged: Sequence[EvaluatedCell]) -> list[EvaluatedCell]:
    """Return the cells in their order, those of all arms but the baseline with their claims."""
    compared = [each for each in judged if each.cell.arm != BASELINE_NAME]
    p_values = [each.p_value if each.cell.valid else None for each in compared]
    clear = holm_rejections(p_values, 1 - LEVEL)
    by_category = _of_categories(compared)
    count = sum(value is not None for value in p_values)
    category_count = sum(
        each.category_p_values[name] is not None for each in compared for name in _compared_categories(each)
    )
    found = (
        Claims(
            overall=_of_cell(each.cell, each.cell.speedup, p_values[index], clear=clear[index]),
            comparisons=count,
            by_category=by_category[index],
            category_comparisons=category_count,
        )
        for index, each in enumerate(compared)
    )
    return [each if each.cell.arm == BASELINE_NAME else _claiming(each, next(found)) for each in judged]


def _of_cell(cell: Cell, figure: Figure | None, p_value: float | None, *, clear: bool) -> SpeedupConclusion:
    """Return the conclusion about a cell, or about one of its categories."""
    if not cell.valid or figure is None or figure.value is None:
        return SpeedupConclusion.NOT_COMPARABLE
    return SpeedupConclusion.TOO_FEW_REPEATS if cell.too_few_repeats else conclusion(figure, p_value, clear=clear)


def _of_categories(compared: Sequence[EvaluatedCell]) -> list[dict[str, SpeedupConclusion]]:
    """Return the conclusions of every cell by category, corrected over the categories of all cells."""
    places = [(index, name) for index, each in enumerate(compared) for name in each.category_p_values]
    p_values = [
        compared[index].category_p_values[name] if compared[index].cell.valid else None for index, name in places
    ]
    clear = holm_rejections(p_values, 1 - LEVEL)
    found: list[dict[str, SpeedupConclusion]] = [{} for _ in compared]
    for (index, name), p_value, is_clear in zip(places, p_values, clear, strict=True):
        cell = compared[index].cell
        found[index][name] = _of_cell(cell, cell.by_category[name][SPEEDUP], p_value, clear=is_clear)
    return found


def _compared_categories(judged: EvaluatedCell) -> Sequence[str]:
    """Return the categories of a cell that count as comparisons."""
    return list(judged.category_p_values) if judged.cell.valid else []


def _claiming(judged: EvaluatedCell, claims: Claims) -> EvaluatedCell:
    return replace(judged, cell=judged.cell.model_copy(update={"claims": claims}))
