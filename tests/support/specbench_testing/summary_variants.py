"""Summaries with sizes or gaps that small synthetic runs do not have, derived from a measured one."""

from __future__ import annotations

from collections.abc import Callable

from specbench_api.spec.drafter import BASELINE_NAME
from specbench_api.spec.load import Level
from specbench_client.documents.figure import Figure
from specbench_client.documents.summary import Cell, RunSummary


def many_cells(
    summary: RunSummary, arms: int, loads: int, name: Callable[[int], str] = "drafter-{}".format
) -> RunSummary:
    """A number of arms at a number of loads (1, 2, 4, …) with spread values, from the first of each in the summary."""
    baseline = next(cell for cell in summary.cells if cell.arm == BASELINE_NAME)
    drafter = next(cell for cell in summary.cells if cell.arm != BASELINE_NAME)
    cells = []
    for load in range(loads):
        level = Level(concurrency=2**load)
        cells.append(scaled(baseline, level=level, factor=1 + load))
        for arm in range(arms):
            factor = (1 + load) * (1 + 0.04 * arm) / (1 + 0.08 * load)
            cells.append(scaled(drafter, level=level, factor=factor).model_copy(update={"arm": name(arm)}))
    return with_cells(summary, cells)


def with_cells(summary: RunSummary, cells: list[Cell]) -> RunSummary:
    """The summary with other cells."""
    return summary.model_copy(update={"cells": cells})


def scaled(cell: Cell, *, level: Level, factor: float) -> Cell:
    """The cell at another load, with throughput and speed-ups multiplied by a factor."""
    figures = {name: _times(each, factor) if name == "output_tps" else each for name, each in cell.figures.items()}
    speedup = cell.speedup and _times(cell.speedup, factor / (1 + level.order / 10))
    return cell.model_copy(update={"level": level, "figures": figures, "speedup": speedup})


def without(summary: RunSummary, *names: str) -> RunSummary:
    """The summary without these figures, as from an engine that does not report them."""
    cells = [
        cell.model_copy(update={"figures": {name: each for name, each in cell.figures.items() if name not in names}})
        for cell in summary.cells
    ]
    return with_cells(summary, cells)


def invalid(summary: RunSummary) -> RunSummary:
    """The summary with every cell invalid."""
    return with_cells(summary, [cell.model_copy(update={"valid": False}) for cell in summary.cells])


def with_long_recommendation(summary: RunSummary) -> RunSummary:
    """The summary with a recommendation with long reasons, as for many arms with several findings each."""
    recommendation = summary.recommendation
    assert recommendation is not None
    reason = "; ".join(
        f"drafter-{arm} cannot be chosen: invalid (ClientSaturated, ChunksCoalesced)" for arm in range(6)
    )
    choices = [choice.model_copy(update={"reason": reason}) for choice in recommendation.choices]
    return summary.model_copy(update={"recommendation": recommendation.model_copy(update={"choices": choices})})


def without_baseline(summary: RunSummary) -> RunSummary:
    """The summary as of a run without its baseline."""
    nothing = {"speedup": None, "tpot_speedup": None}
    cells = [cell.model_copy(update=nothing) for cell in summary.cells if cell.arm != BASELINE_NAME]
    dropped = ("speedup", "tpot_speedup")
    return with_cells(
        summary,
        [
            cell.model_copy(
                update={
                    "by_category": {
                        category: {name: each for name, each in figures.items() if name not in dropped}
                        for category, figures in cell.by_category.items()
                    }
                }
            )
            for cell in cells
        ],
    )


def _times(figure: Figure, factor: float) -> Figure:
    held = figure.interval
    interval = held and held.model_copy(update={"low": held.low * factor, "high": held.high * factor})
    value = None if figure.value is None else figure.value * factor
    return figure.model_copy(update={"value": value, "interval": interval})
