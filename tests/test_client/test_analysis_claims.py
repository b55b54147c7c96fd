"""Claims: a speed-up gets a conclusion only after correction for multiple comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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

pytestmark = pytest.mark.runs


def figure(value: float, half: float | None = 0.1) -> Figure:
    interval = None if half is None else FigureInterval(low=value - half, high=value + half, method="m")
    return Figure(value=value, unit="ratio", definition="d", n=20, interval=interval, source="both")


def evaluated_cell(
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
        by_category={name: {SPEEDUP: speedup} for name, (speedup, _) in categories.items()},
        valid=valid,
        compared_repeats=repeats,
    )
    return EvaluatedCell(cell, (), p, 20, {name: p for name, (_, p) in categories.items()})


def claims(*cells: EvaluatedCell) -> list[Claims]:
    return [each.cell.claims for each in with_claims(cells) if each.cell.claims is not None]


def test_one_significant_category_among_many_is_unclear() -> None:
    lucky = {"code": (figure(1.12), 0.03), **{f"c{each}": (figure(1.0), 0.8) for each in range(10)}}
    (found,) = claims(evaluated_cell(1, lucky))
    assert found.by_category["code"] is SpeedupConclusion.UNCLEAR
    assert found.by_category["c0"] is SpeedupConclusion.INDISTINGUISHABLE
    assert found.category_comparisons == 11
    (alone,) = claims(evaluated_cell(1, {"code": (figure(1.12), 0.03)}))
    assert alone.by_category["code"] is SpeedupConclusion.FASTER


def test_categories_of_all_cells_are_one_family_of_comparisons() -> None:
    one = {"code": (figure(0.8), 0.02), "chat": (figure(1.0), 0.9)}
    assert claims(evaluated_cell(1, one))[0].by_category["code"] is SpeedupConclusion.SLOWER
    several = claims(*(evaluated_cell(load, one) for load in (1, 2, 4)))
    assert [each.by_category["code"] for each in several] == [SpeedupConclusion.UNCLEAR] * 3
    assert {each.category_comparisons for each in several} == {6}


def test_category_comparisons_do_not_affect_the_cells_claim() -> None:
    many = {f"c{each}": (figure(1.0), 0.8) for each in range(40)}
    clear = EvaluatedCell(evaluated_cell(1, many).cell.model_copy(update={"speedup": figure(1.2)}), (), 0.04, 20, {})
    (found,) = claims(clear)
    assert (found.overall, found.comparisons) == (SpeedupConclusion.FASTER, 1)


@pytest.mark.parametrize(
    ("category", "valid", "repeats", "word"),
    [
        ((figure(1.4), 0.001), False, 3, SpeedupConclusion.NOT_COMPARABLE),
        ((figure(1.4), None), True, 2, SpeedupConclusion.TOO_FEW_REPEATS),
        ((figure(1.4), None), True, 3, SpeedupConclusion.TOO_FEW_REPEATS),
        ((figure(1.4, None), None), True, 3, SpeedupConclusion.NO_INTERVAL),
        ((Figure(unit="ratio", definition="d", n=0, source="both"), None), True, 3, SpeedupConclusion.NOT_COMPARABLE),
    ],
    ids=["invalid", "few repeats", "category in too few repeats", "few prompts", "not paired"],
)
def test_category_without_a_usable_comparison_makes_no_claim(
    category: tuple[Figure, float | None], valid: bool, repeats: int, word: SpeedupConclusion
) -> None:
    (found,) = claims(evaluated_cell(1, {"code": category}, valid=valid, repeats=repeats))
    assert found.by_category["code"] is word


def test_invalid_cells_do_not_count_as_comparisons() -> None:
    by_category = {"code": (figure(1.12), 0.03)}
    found = claims(evaluated_cell(1, by_category), evaluated_cell(2, by_category, valid=False, p=0.0001))
    assert (found[0].category_comparisons, found[0].comparisons) == (1, 1)
    assert found[0].by_category["code"] is SpeedupConclusion.FASTER


def run_with(*cells: EvaluatedCell) -> RunSummary:
    summary = run_of_world(SyntheticRun(prompts=6, repeats=1))
    return summary.model_copy(update={"cells": [each.cell for each in with_claims(cells)]})


def test_best_speedup_text_is_corrected_for_multiple_comparisons() -> None:
    lucky = EvaluatedCell(evaluated_cell(1, {}).cell.model_copy(update={"speedup": figure(1.2)}), (), 0.03, 20, {})
    others = [evaluated_cell(load, {}, p=0.8) for load in range(2, 12)]
    assert best_speedup_text(run_with(lucky)) == "ngram 1.20x at concurrency 1"
    assert best_speedup_text(run_with(lucky, *others)) == "none faster"


def test_an_arm_with_worse_answers_at_one_load_is_the_best_at_none() -> None:
    fast, worse = (
        EvaluatedCell(evaluated_cell(load, {}).cell.model_copy(update={"speedup": figure(1.2)}), (), 0.001, 20, {})
        for load in (1, 8)
    )
    flawed = replace(worse, cell=worse.cell.model_copy(update={"valid": False, "findings": ["AnswersWorse"]}))
    assert best_speedup_text(run_with(fast, worse)) != ""
    assert best_speedup_text(run_with(fast, flawed)) == ""


def test_run_has_a_claim_for_each_category() -> None:
    summary = run_of_world(SyntheticRun(prompts=24, repeats=3))
    found = next(cell.claims for cell in summary.cells if cell.claims)
    assert (found.overall, found.comparisons, found.category_comparisons) == (SpeedupConclusion.FASTER, 1, 2)
    assert found.by_category == {"chat": SpeedupConclusion.FASTER, "code": SpeedupConclusion.FASTER}
    assert summary.cells[0].claims is None
