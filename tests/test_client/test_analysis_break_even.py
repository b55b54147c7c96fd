"""The break-even acceptance length is the ratio of step times, independent of acceptance."""

from __future__ import annotations

import pytest

from specbench_api.outcome.crossover import BreakEven, CrossoverKind, Crossovers
from specbench_api.outcome.figure import FigureInterval
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.text.curves import break_even_table, crossover_lines, crossover_table
from specbench_testing.present import present
from specbench_testing.synthetic_records import ONE, Corruptions, SyntheticRun, run_of_world

pytestmark = pytest.mark.runs

WORLD = SyntheticRun(prompts=24, categories=ONE)
STEP_RATIO = 12 / 10


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return run_of_world(WORLD)


def only_break_even(summary: RunSummary) -> BreakEven:
    (found,) = present(summary.crossover).break_even
    return found


@pytest.mark.parametrize("alpha", [0.2, 0.8])
def test_break_even_is_the_ratio_of_step_times(alpha: float) -> None:
    found = only_break_even(run_of_world(SyntheticRun(prompts=40, categories=ONE, alpha={"ngram": alpha})))
    assert found.needed.value == pytest.approx(STEP_RATIO, rel=0.01)
    assert present(found.needed.interval).low < STEP_RATIO < present(found.needed.interval).high


def test_margin_equals_the_decode_speedup(summary: RunSummary) -> None:
    found, cell = only_break_even(summary), summary.cells[1]
    assert found.margin.value == pytest.approx(present(found.measured.value) / present(found.needed.value))
    assert found.margin.value == pytest.approx(present(cell.tpot_speedup).value)
    assert present(found.measured.value) == pytest.approx(cell.figures["acceptance_length_emitted_pooled"].value)


def test_break_even_is_missing_without_steps() -> None:
    without_steps = Corruptions(
        records=lambda _, frame: frame.assign(steps=None, step_accepted=None, accepted_tokens=None)
    )
    summary = run_of_world(WORLD, without_steps)
    assert only_break_even(summary).needed.value is None
    assert break_even_table(summary).rows == []


@pytest.fixture(scope="module")
def three_loads() -> RunSummary:
    """Return a run with an invalid second load."""
    failing = Corruptions(
        records=lambda at, frame: frame.assign(error_class="x") if at.level.concurrency == 2 else frame
    )
    return run_of_world(SyntheticRun(prompts=14, categories=ONE, concurrency=(1, 2, 4)), failing)


def test_invalid_comparison_is_marked(summary: RunSummary) -> None:
    failing = Corruptions(records=lambda point, frame: frame.assign(error_class="x") if point.repeat == 0 else frame)
    invalid_run = run_of_world(WORLD, failing)
    assert not only_break_even(invalid_run).valid
    assert break_even_table(invalid_run).rows[0][-1].endswith("invalid")
    assert break_even_table(summary).rows[0][-1].endswith("]")


def test_one_load_gives_no_crossover(summary: RunSummary) -> None:
    (row,) = crossover_table(summary).rows
    assert row[3] == "no crossover: only concurrency 1 has a usable speed-up"
    assert crossover_lines(summary) == []
    empty = summary.model_copy(update={"crossover": Crossovers()})
    assert (crossover_table(empty).rows, break_even_table(empty).rows) == ([], [])


@pytest.mark.parametrize(
    ("low", "suffix"),
    [(0.16, "; 18% [16%, 20%] of the speed-up is lost from the smallest load to the largest"), (-0.01, "")],
)
def test_significant_loss_is_reported(low: float, suffix: str, three_loads: RunSummary) -> None:
    (by_load,) = three_loads.crossover.by_load
    interval = FigureInterval(low=low, high=0.2, level=0.95, method="")
    lost = present(by_load.crossover.lost).model_copy(update={"value": 0.18, "interval": interval})
    crossover = by_load.crossover.model_copy(update={"lost": lost})
    found = Crossovers(by_load=[by_load.model_copy(update={"crossover": crossover})])
    (line,) = crossover_lines(three_loads.model_copy(update={"crossover": found}))
    assert line == f"ngram on chat: {crossover.message}{suffix}"


def test_invalid_loads_and_too_few_repeats_are_left_out_with_a_reason(three_loads: RunSummary) -> None:
    (by_load,) = three_loads.crossover.by_load
    assert by_load.crossover.places == [1.0, 4.0]
    assert by_load.crossover.left_out == ["concurrency 2: invalid (BaselineInvalid, RequestsFailed, NoSteadyState)"]
    (few,) = run_of_world(SyntheticRun(prompts=14, categories=ONE, concurrency=(1, 2), repeats=2)).crossover.by_load
    assert few.crossover.kind is CrossoverKind.INSUFFICIENT_DATA
    assert "2 repeats: too few to tell" in few.crossover.message
