"""What may be said of every comparison of a run: the one place in which a difference becomes a word.

`faster` and `slower` are said only where the interval excludes 1, and where this still holds after Holm's correction
for the number of comparisons: among twenty, one excludes 1 by chance. Where the interval holds 1, the word is
`indistinguishable`; an invalid cell is not compared at all. From fewer than three repeats none of these words is said,
only the ratio and how few they were: under a run noise of 3 % the interval of one run excludes 1 in two of three runs
without any difference.

Cells are one family and the categories of all cells another: what a run was asked is told as surely as if nobody had
looked at categories, and among eleven categories at five loads none is declared for being the luckiest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specbench_api.outcome.claims import Claims, Standing
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.summary import Cell
from specbench_api.spec.drafter import BASELINE_NAME
from specbench_client.analysis.estimates.speedup import SPEEDUP
from specbench_client.analysis.statistics.bootstrap import LEVEL
from specbench_client.analysis.statistics.holm import rejected
from specbench_client.analysis.summary.cell import Judged


def with_claims(judged: Sequence[Judged]) -> list[Judged]:
    """The same in their order, the cells of all arms but the baseline with what may be said of them."""
    compared = [each for each in judged if each.cell.arm != BASELINE_NAME]
    p_values = [each.p_value if each.cell.valid else None for each in compared]
    clear = rejected(p_values, 1 - LEVEL)
    by_category = _of_categories(compared)
    count = sum(value is not None for value in p_values)
    category_count = sum(each.category_p_values[name] is not None for each in compared for name in _told(each))
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


def standing(figure: Figure | None, p_value: float | None, *, clear: bool) -> Standing:
    """What can be said of a speed-up that no check broke. `clear`: whether it holds after the correction."""
    if figure is None or figure.value is None:
        return Standing.NOT_COMPARABLE
    if figure.interval is None:
        return Standing.NO_INTERVAL
    if p_value is None:
        return Standing.TOO_FEW_REPEATS
    if figure.interval.low <= 1 <= figure.interval.high:
        return Standing.INDISTINGUISHABLE
    if not clear:
        return Standing.UNCLEAR
    return Standing.FASTER if figure.value > 1 else Standing.SLOWER


def _of_cell(cell: Cell, figure: Figure | None, p_value: float | None, *, clear: bool) -> Standing:
    """The same of a cell, or of one of its categories."""
    if not cell.valid or figure is None or figure.value is None:
        return Standing.NOT_COMPARABLE
    return Standing.TOO_FEW_REPEATS if cell.too_few_repeats else standing(figure, p_value, clear=clear)


def _of_categories(compared: Sequence[Judged]) -> list[dict[str, Standing]]:
    """Of every cell, by category, corrected over the categories of all of them."""
    places = [(index, name) for index, each in enumerate(compared) for name in each.category_p_values]
    p_values = [
        compared[index].category_p_values[name] if compared[index].cell.valid else None for index, name in places
    ]
    clear = rejected(p_values, 1 - LEVEL)
    found: list[dict[str, Standing]] = [{} for _ in compared]
    for (index, name), p_value, is_clear in zip(places, p_values, clear, strict=True):
        cell = compared[index].cell
        found[index][name] = _of_cell(cell, cell.by_category[name][SPEEDUP], p_value, clear=is_clear)
    return found


def _told(judged: Judged) -> Sequence[str]:
    """Categories of a cell that count among the comparisons."""
    return list(judged.category_p_values) if judged.cell.valid else []


def _claiming(judged: Judged, claims: Claims) -> Judged:
    return replace(judged, cell=judged.cell.model_copy(update={"claims": claims}))
