"""A difference becomes a word in one place, and only after the number of comparisons is paid for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from specbench_api.outcome.figure import Figure, FigureInterval
from specbench_api.outcome.summary import (
    ArrivalPattern,
    Cell,
    Claims,
    RequestCounts,
    RunSummary,
    SpeedupConclusion,
    best_speedup_text,
)
from specbench_api.spec.load import Level
from specbench_client.analysis.estimates.speedups import SPEEDUP
from specbench_client.analysis.summary.cells import EvaluatedCell, with_claims
from specbench_testing.synthetic_records import SyntheticRun, run_of_world

pytestmark = pytest.mark.usefixtures("few_resamples")


def figure(value: float, half: float | None = 0.1) -> Figure:
    interval = None if half is None else FigureInterval(low=value - half, high=value + half, method="m")
    return Figure(value=value, unit="ratio", definition="d", n=20, interval=interval, source="both")


def judged(
    load: int,
    categories: Mapping[str, tuple[Figure, float | None]],
    *,
    p: float | None = 0.9,
    valid: bool = True,
    repeats: int = 3,
) -> EvaluatedCell:
    cell = Cell(
        arm="ngram",
        workload="chat",
        level=Level(concurrency=load),
        arrivals=ArrivalPattern(process="ClosedLoop"),
        points=[],
        counts=RequestCounts(),
        figures={},
        speedup=figure(1.0),
        by_category={name: {SPEEDUP: told} for name, (told, _) in categories.items()},
        valid=valid,
        compared_repeats=repeats,
    )
    return EvaluatedCell(cell, (), p, 20, {name: p for name, (_, p) in categories.items()})


def claims(*cells: EvaluatedCell) -> list[Claims]:
    return [each.cell.claims for each in with_claims(cells) if each.cell.claims is not None]


def test_a_category_is_not_declared_for_being_the_luckiest_of_many() -> None:
    lucky = {"code": (figure(1.12), 0.03), **{f"c{each}": (figure(1.0), 0.8) for each in range(10)}}
    (found,) = claims(judged(1, lucky))
    assert found.by_category["code"] is SpeedupConclusion.UNCLEAR
    assert found.by_category["c0"] is SpeedupConclusion.INDISTINGUISHABLE
    assert found.category_comparisons == 11
    (alone,) = claims(judged(1, {"code": (figure(1.12), 0.03)}))
    assert alone.by_category["code"] is SpeedupConclusion.FASTER


def test_categories_of_all_cells_are_one_family() -> None:
    one = {"code": (figure(0.8), 0.02), "chat": (figure(1.0), 0.9)}
    assert claims(judged(1, one))[0].by_category["code"] is SpeedupConclusion.SLOWER
    several = claims(*(judged(load, one) for load in (1, 2, 4)))
    assert [each.by_category["code"] for each in several] == [SpeedupConclusion.UNCLEAR] * 3
    assert {each.category_comparisons for each in several} == {6}


def test_looking_at_categories_costs_the_cells_nothing() -> None:
    many = {f"c{each}": (figure(1.0), 0.8) for each in range(40)}
    clear = EvaluatedCell(judged(1, many).cell.model_copy(update={"speedup": figure(1.2)}), (), 0.04, 20, {})
    (found,) = claims(clear)
    assert (found.overall, found.comparisons) == (SpeedupConclusion.FASTER, 1)


@pytest.mark.parametrize(
    ("told", "valid", "repeats", "word"),
    [
        ((figure(1.4), 0.001), False, 3, SpeedupConclusion.NOT_COMPARABLE),
        ((figure(1.4), None), True, 2, SpeedupConclusion.TOO_FEW_REPEATS),
        ((figure(1.4), None), True, 3, SpeedupConclusion.TOO_FEW_REPEATS),
        ((figure(1.4, None), None), True, 3, SpeedupConclusion.NO_INTERVAL),
        ((Figure(unit="ratio", definition="d", n=0, source="both"), None), True, 3, SpeedupConclusion.NOT_COMPARABLE),
    ],
    ids=["invalid", "few repeats", "met in fewer repeats", "few prompts", "not paired"],
)
def test_what_cannot_be_told_is_no_claim(
    told: tuple[Figure, float | None], valid: bool, repeats: int, word: SpeedupConclusion
) -> None:
    (found,) = claims(judged(1, {"code": told}, valid=valid, repeats=repeats))
    assert found.by_category["code"] is word


def test_invalid_cells_do_not_count_among_the_comparisons() -> None:
    told = {"code": (figure(1.12), 0.03)}
    found = claims(judged(1, told), judged(2, told, valid=False, p=0.0001))
    assert (found[0].category_comparisons, found[0].comparisons) == (1, 1)
    assert found[0].by_category["code"] is SpeedupConclusion.FASTER


def run_with(*cells: EvaluatedCell) -> RunSummary:
    summary = run_of_world(SyntheticRun(prompts=6, repeats=1))
    return summary.model_copy(update={"cells": [each.cell for each in with_claims(cells)]})


def test_the_best_is_none_that_does_not_hold_among_so_many_comparisons() -> None:
    lucky = EvaluatedCell(judged(1, {}).cell.model_copy(update={"speedup": figure(1.2)}), (), 0.03, 20, {})
    others = [judged(load, {}, p=0.8) for load in range(2, 12)]
    assert best_speedup_text(run_with(lucky)) == "ngram 1.20x at concurrency 1"
    assert best_speedup_text(run_with(lucky, *others)) == "none faster"


def test_a_run_says_it_of_each_category() -> None:
    summary = run_of_world(SyntheticRun(prompts=24, repeats=3))
    found = next(cell.claims for cell in summary.cells if cell.claims)
    assert (found.overall, found.comparisons, found.category_comparisons) == (SpeedupConclusion.FASTER, 1, 2)
    assert found.by_category == {"chat": SpeedupConclusion.FASTER, "code": SpeedupConclusion.FASTER}
    assert summary.cells[0].claims is None
