"""The rows of results in status, from summary.json."""

from __future__ import annotations

import pytest

from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import Objective, Recommendation
from specbench_api.outcome.summary import Cell, EndToEnd, Goodput, RunSummary, best_speedup_text
from specbench_api.plan.expansion import expand
from specbench_api.spec.load import Level
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.slo import Slo
from specbench_operator.run.status.run_status import ROWS_MAX, SENTENCE_BYTES, arms_of, recommendation_of
from specbench_testing.operator_builders import figure, operator_run, summary_of

SUMMARY = summary_of(expand(parse_run(operator_run())), 2)


def with_cells(*cells: Cell) -> RunSummary:
    return SUMMARY.model_copy(update={"cells": list(cells)})


def cell(speedup: Figure | None, **changes: object) -> Cell:
    return SUMMARY.cells[1].model_copy(update={"speedup": speedup, **changes})


def test_a_missing_figure_stays_missing() -> None:
    row = arms_of(with_cells(cell(None)))[0]
    assert (row.speedup, row.speedup_text, row.e2e_ms, row.acceptance_rate) == (None, "", None, None)
    assert arms_of(with_cells(cell(figure(None))))[0].speedup is None
    assert arms_of(with_cells(cell(figure(1.5))))[0].speedup is None, "a speed-up without an interval is not shown"


@pytest.mark.parametrize(
    ("speedup", "valid", "text"),
    [
        (figure(1.834, 1.76, 1.9), True, "1.83 [1.76, 1.90]"),
        (figure(1.1, 0.9, 1.3), True, "indistinguishable"),
        (figure(0.5, 0.4, 0.6), True, "0.50 [0.40, 0.60]"),
        (figure(1.834, 1.76, 1.9), False, "1.83 [1.76, 1.90] invalid"),
    ],
)
def test_a_speedup_is_shown_with_its_interval(speedup: Figure, valid: bool, text: str) -> None:
    assert arms_of(with_cells(cell(speedup, valid=valid)))[0].speedup_text == text


@pytest.mark.parametrize(
    ("repeats", "valid", "text"),
    [
        (1, True, "1.83 (1 repeat: too few to tell)"),
        (2, True, "1.83 (2 repeats: too few to tell)"),
        (2, False, "1.83 (2 repeats: too few to tell) invalid"),
        (3, True, "1.83 [1.76, 1.90]"),
    ],
)
def test_a_speedup_from_too_few_repeats_has_no_interval(repeats: int, valid: bool, text: str) -> None:
    with_repeats = cell(
        figure(1.834, 1.76, 1.9), tpot_speedup=figure(2.0, 1.9, 2.1), compared_repeats=repeats, valid=valid
    )
    row = arms_of(with_cells(with_repeats))[0]
    assert row.speedup_text == text
    assert (row.speedup is None) == (row.tpot_speedup is None) == (repeats < 3)
    assert bool(best_speedup_text(with_cells(with_repeats))) == (repeats >= 3)


def test_best_is_none_faster_and_names_the_largest_loss() -> None:
    unclear, slower = cell(figure(1.1, 0.9, 1.3)), cell(figure(0.7, 0.6, 0.8))
    slowest = cell(figure(0.5, 0.4, 0.6), level=Level(concurrency=8))
    assert best_speedup_text(with_cells(unclear, slower, slowest)) == "none faster; ngram 0.50x at concurrency 8"
    assert best_speedup_text(with_cells(unclear)) == "none faster"


def test_best_is_the_largest_valid_speedup_above_1() -> None:
    good = cell(figure(1.4, 1.2, 1.6), level=Level(concurrency=8))
    broken = cell(figure(9.0, 8.0, 10.0), valid=False)
    unclear = cell(figure(3.0, 0.5, 9.0))
    slower = cell(figure(0.7, 0.6, 0.8))
    assert best_speedup_text(with_cells(broken, unclear, slower, good, cell(None))) == "ngram 1.40x at concurrency 8"
    assert best_speedup_text(with_cells(broken, cell(None))) == ""
    other = cell(figure(1.2, 1.1, 1.3), workload="code")
    rated = cell(figure(1.4, 1.2, 1.6), level=Level(rate=2.5))
    assert best_speedup_text(with_cells(rated)) == "ngram 1.40x at 2.5/s"
    assert best_speedup_text(with_cells(good, other)) == "ngram 1.40x at concurrency 8 chat"


@pytest.mark.parametrize(
    ("level", "load"),
    [(Level(concurrency=8), "8"), (Level(rate=2.5), "2.5/s"), (Level(), "trace")],
)
def test_a_row_contains_its_load_as_a_number_and_as_text(level: Level, load: str) -> None:
    row = arms_of(with_cells(cell(None, level=level)))[0]
    assert (row.load, row.concurrency, row.rate) == (load, level.concurrency, level.rate)


def test_status_has_at_most_the_maximum_number_of_rows() -> None:
    assert len(arms_of(with_cells(*[cell(None)] * (ROWS_MAX + 5)))) == ROWS_MAX


def test_end_to_end_speedup_and_goodput_have_columns() -> None:
    end_to_end = EndToEnd(
        speedup=figure(1.41, 1.3, 1.5), median_speedup=figure(9.0), requests_per_hour=figure(9.0),
        baseline_requests_per_hour=figure(9.0), cost_saved=figure(9.0),
    )  # fmt: skip
    goodput = Goodput(slo=Slo(ttft_ms=200), rate=figure(7.25), slo_attainment=figure(0.925), by_target={})
    row = arms_of(with_cells(cell(None, end_to_end=end_to_end, goodput=goodput)))[0].to_dict()
    assert row["e2eSpeedup"] == {"value": 1.41, "low": 1.3, "high": 1.5}
    assert (row["goodput"], row["sloAttainment"]) == (7.25, 0.925)
    bare = arms_of(with_cells(cell(None)))[0]
    assert (bare.e2e_speedup, bare.goodput, bare.slo_attainment) == (None, None, None)


def test_the_recommendation_is_truncated_to_the_byte_limit() -> None:
    recommendation = Recommendation(
        objective=Objective.THROUGHPUT, worth=1.0, simulated=True, trustworthy=True,
        sentence="use ngram ü" + "x" * 2000, choices=[], candidates=[], limits=[],
    )  # fmt: skip
    sentence = recommendation_of(SUMMARY.model_copy(update={"recommendation": recommendation}))
    assert sentence.startswith("use ngram ü")
    assert len(sentence.encode()) <= SENTENCE_BYTES
    assert not recommendation_of(SUMMARY), "the summary has no recommendation"
