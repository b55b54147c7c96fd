"""Plots of data that only some summaries contain: crossovers, breakdowns, and the spread over requests."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest

from specbench_api.outcome.breakdown import Breakdown, BreakdownSlice, LengthClass, RequestDistribution
from specbench_api.outcome.crossover import ArmCrossover, Crossover, CrossoverInterval, CrossoverKind
from specbench_api.outcome.figure import Figure, StatusFigure
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.sections.breakdown import by_length, by_place, by_request
from specbench_client.report.plots.sections.cells import PLACED_MIN
from specbench_client.report.plots.sections.speedup import CROSSINGS, speedup
from specbench_client.report.plots.styles import SERIES_PER_PANEL_MAX
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
(WORKLOAD,) = (workload.name for workload in WORLD.plan.workloads)


def figure(value: float | None) -> Figure:
    """Return a figure without an interval."""
    return Figure(value=value, unit="tokens/step", definition="Tokens a step", n=3, source="client")


def sliced(label: str, length: float | None) -> BreakdownSlice:
    """Return a class of steps with one figure."""
    figures = {StatusFigure.ACCEPTANCE_LENGTH: figure(length)}
    return BreakdownSlice(label=label, steps=9, requests=3, prompts=3, figures=dict(figures))


def crossing(arm: str, at: float | None, *bounds: float | None) -> ArmCrossover:
    """Return the crossover of an arm."""
    interval = CrossoverInterval(low=bounds[0], high=bounds[1], method="m") if bounds else None
    kind = CrossoverKind.NOT_REACHED if at is None else CrossoverKind.REACHED
    found = Crossover(axis="concurrency", kind=kind, at=figure(at), interval=interval, message="m")
    return ArmCrossover(arm=arm, workload=WORKLOAD, crossover=found)


SPREAD = RequestDistribution(
    unit="tokens/step",
    definition="Tokens a step of one request",
    n=48,
    prompts=16,
    source="client",
    minimum=1.0,
    lower_quartile=1.25,
    median=1.5,
    upper_quartile=1.75,
    maximum=2.0,
    deciles=[1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9],
)


@cache
def summary() -> RunSummary:
    """Return the summary of the synthetic run."""
    return run_of_world(WORLD)


def data_of(panel: Panel) -> Any:
    """Return the data a panel is drawn from."""
    assert isinstance(panel.draw, partial)
    return panel.draw.keywords["data"]


@pytest.mark.parametrize(
    ("crossover", "marks"),
    [
        ((1.5, 1.2, 1.9), [(1.5, 1.2, 1.9)]),
        ((1.5, 1.2, None), [(1.5, 1.2, None)]),
        ((1.5,), [(1.5, 1.5, 1.5)]),
        ((None, 1.2, None), []),
    ],
)
def test_crossover_is_marked_if_reached(crossover: tuple[float | None, ...], marks: list[tuple[float, ...]]) -> None:
    drawn = speedup(summary(), [crossing("ngram", *crossover), crossing("another", *crossover)])
    assert drawn is not None
    data = data_of(drawn.panels[0])
    assert [(each.at, each.low, each.high) for each in data.crossings] == marks
    assert (CROSSINGS in drawn.caption) == bool(marks)
    assert all(each.style == data.series[0].style for each in data.crossings)


def test_position_classes_are_one_line_per_arm_with_gaps() -> None:
    slices = {
        "ngram": [sliced("0–63", 1.4), sliced("64–127", 1.2)],
        "suffix": [sliced("0–63", 1.8), sliced("128–255", None)],
    }
    drawn = by_place(summary(), lambda cell: slices.get(cell.arm, []), "output position, tokens")
    assert drawn is not None
    (panel,) = drawn.panels
    data = data_of(panel)
    assert data.labels == ("0–63", "64–127", "128–255")
    assert [[each and each.value for each in line.readings] for line in data.series] == [
        [1.4, 1.2, None],
        [1.8, None, None],
    ]
    assert panel.title == "at concurrency 1"
    assert drawn.caption.startswith("Tokens a step. n 3.")


def test_single_class_is_not_drawn() -> None:
    assert by_place(summary(), lambda _: [sliced("0–255", 1.4)], "prompt and output so far, tokens") is None


def test_answer_lengths_are_lines_in_one_panel_per_arm() -> None:
    groups = [
        LengthClass(whole=sliced(f"{at}", 2.0), by_position=[sliced("0–63", 2.0 + at), sliced("64–127", 1.0 + at)])
        for at in range(8)
    ]
    drawn = by_length(summary(), lambda cell: groups if cell.arm == "ngram" else [], "output position, tokens")
    assert drawn is not None
    (panel,) = drawn.panels
    assert panel.title == "ngram, at concurrency 1"
    assert [line.name for line in data_of(panel).series] == [f"{at} tokens" for at in range(SERIES_PER_PANEL_MAX)]
    assert [each.value for each in data_of(panel).series[1].readings] == [3.0, 2.0]


def test_box_shows_quartiles_and_outer_deciles() -> None:
    drawn = by_request(summary(), lambda cell: SPREAD if cell.arm == "suffix" else None)
    assert drawn is not None
    (row,) = data_of(drawn.panels[0]).rows
    assert (row.low, row.quarter, row.median, row.three_quarters, row.high, row.n) == (1.1, 1.25, 1.5, 1.75, 1.9, 48)
    assert drawn.panels[0].words == "suffix median 1.5"


def nothing(_: Cell) -> list[BreakdownSlice]:
    """Return no slices for any cell."""
    return []


def test_breakdowns_without_data_are_not_drawn() -> None:
    assert by_place(summary(), nothing, "x") is None
    assert by_place(summary(), lambda _: [sliced("0–63", None)], "x") is None
    assert by_length(summary(), lambda _: [LengthClass(whole=sliced("0", 1.0))], "x") is None
    assert by_request(summary(), lambda _: None) is None


@pytest.mark.parametrize(("share", "drawn_arms"), [(0.4, ["suffix"]), (0.97, ["ngram", "suffix"])])
def test_arm_with_unlocated_requests_is_left_out_or_noted(share: float, drawn_arms: list[str]) -> None:
    found = [sliced("0–63", 1.0), sliced("64–127", 1.0)]
    placed = {"ngram": share, "suffix": 1.0}
    cells = [
        cell.model_copy(
            update={"breakdown": Breakdown(by_position=found, placed_share=placed[cell.arm])}
            if cell.arm in placed
            else {}
        )
        for cell in summary().cells
    ]
    partly = summary().model_copy(update={"cells": cells})
    drawn = by_place(partly, lambda cell: cell.breakdown.by_position if cell.breakdown else [], "x")
    assert drawn is not None
    assert [line.name for line in data_of(drawn.panels[0]).series] == drawn_arms
    assert f"only {share:.0%} of its requests" in drawn.caption
    assert ("ngram is not drawn" in drawn.caption) == (share < PLACED_MIN)
