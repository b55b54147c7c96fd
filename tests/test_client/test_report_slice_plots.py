"""Plots of what only some summaries tell: crossovers, slices by place and length, the spread over requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest

from specbench_api.outcome.figure import Figure, Headline
from specbench_api.outcome.summary import Cell, RunSummary
from specbench_client.report.plots.canvas import Panel
from specbench_client.report.plots.ink import TOGETHER
from specbench_client.report.plots.sections.slices import by_length, by_place, by_request
from specbench_client.report.plots.sections.speedup import CROSSINGS, speedup
from specbench_testing.records import World, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")

WORLD = World(prompts=16, concurrency=(1, 2), drafters=("ngram", "suffix"))
(WORKLOAD,) = (workload.name for workload in WORLD.plan.workloads)


def figure(value: float | None) -> Figure:
    """A figure without an interval."""
    return Figure(value=value, unit="tokens/step", definition="Tokens a step", n=3, source="client")


@dataclass(frozen=True)
class Slice:
    """A class of steps."""

    label: str
    length: float | None

    @property
    def figures(self) -> dict[str, Figure]:
        return {Headline.ACCEPTANCE_LENGTH: figure(self.length)}


@dataclass(frozen=True)
class Group:
    """A class of answers."""

    whole: Slice
    by_position: Sequence[Slice]


@dataclass(frozen=True)
class Spread:
    """A number over requests."""

    definition: str = "Tokens a step of one request"
    n: int = 48
    deciles: Sequence[float] = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9)
    lower_quartile: float = 1.25
    median: float = 1.5
    upper_quartile: float = 1.75


@dataclass(frozen=True)
class Bounds:
    """Of a crossover."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Crossover:
    """A place."""

    at: Figure
    interval: Bounds | None = None


@dataclass(frozen=True)
class ArmCrossover:
    """Of an arm."""

    arm: str
    crossover: Crossover
    workload: str = WORKLOAD


@cache
def summary() -> RunSummary:
    """A run."""
    return run_of_world(WORLD)


def data_of(panel: Panel) -> Any:
    """The plain numbers that a panel is drawn from."""
    assert isinstance(panel.draw, partial)
    return panel.draw.keywords["data"]


@pytest.mark.parametrize(
    ("crossover", "marks"),
    [
        (Crossover(figure(1.5), Bounds(1.2, 1.9)), [(1.5, 1.2, 1.9)]),
        (Crossover(figure(1.5), Bounds(1.2, None)), [(1.5, 1.2, None)]),
        (Crossover(figure(1.5)), [(1.5, 1.5, 1.5)]),
        (Crossover(figure(None), Bounds(1.2, None)), []),
    ],
)
def test_a_crossover_is_marked_where_there_is_one(crossover: Crossover, marks: list[tuple[float, ...]]) -> None:
    drawn = speedup(summary(), lambda _: [ArmCrossover("ngram", crossover), ArmCrossover("another", crossover)])
    assert drawn is not None
    data = data_of(drawn.panels[0])
    assert [(each.at, each.low, each.high) for each in data.crossings] == marks
    assert (CROSSINGS in drawn.caption) == bool(marks)
    assert all(each.style == data.series[0].style for each in data.crossings)


def test_slices_by_place_are_a_line_an_arm_with_a_gap_where_an_arm_has_none() -> None:
    told = {"ngram": [Slice("0–63", 1.4), Slice("64–127", 1.2)], "suffix": [Slice("0–63", 1.8), Slice("128–255", None)]}
    drawn = by_place(summary(), lambda cell: told.get(cell.arm, []), "output position, tokens")
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


def test_slices_of_one_class_alone_are_not_drawn() -> None:
    assert by_place(summary(), lambda _: [Slice("0–255", 1.4)], "prompt and output so far, tokens") is None


def test_answers_of_several_lengths_are_lines_and_an_arm_is_a_panel() -> None:
    groups = [Group(Slice(f"{at}", 2.0), [Slice("0–63", 2.0 + at), Slice("64–127", 1.0 + at)]) for at in range(8)]
    drawn = by_length(summary(), lambda cell: groups if cell.arm == "ngram" else [], "output position, tokens")
    assert drawn is not None
    (panel,) = drawn.panels
    assert panel.title == "ngram, at concurrency 1"
    assert [line.name for line in data_of(panel).series] == [f"{at} tokens" for at in range(TOGETHER)]
    assert [each.value for each in data_of(panel).series[1].readings] == [3.0, 2.0]


def test_a_box_shows_quartiles_and_the_outer_deciles() -> None:
    drawn = by_request(summary(), lambda cell: Spread() if cell.arm == "suffix" else None)
    assert drawn is not None
    (row,) = data_of(drawn.panels[0]).rows
    assert (row.low, row.quarter, row.median, row.three_quarters, row.high, row.n) == (1.1, 1.25, 1.5, 1.75, 1.9, 48)
    assert drawn.panels[0].words == "suffix median 1.5"


def nothing(_: Cell) -> list[Slice]:
    """Of a cell that tells no slices."""
    return []


def test_what_no_cell_tells_is_not_drawn() -> None:
    assert by_place(summary(), nothing, "x") is None
    assert by_place(summary(), lambda _: [Slice("0–63", None)], "x") is None
    assert by_length(summary(), lambda _: [Group(Slice("0", 1.0), [])], "x") is None
    assert by_request(summary(), lambda _: None) is None
