"""The acceptance length at which decoding breaks even is the ratio of step times, whatever is accepted."""

from __future__ import annotations

import pytest

from specbench_api.outcome.crossover import BreakEven, CrossoverKind
from specbench_api.outcome.summary import RunSummary
from specbench_client.report.crossover import (
    break_even_rows,
    crossover_lines,
    crossover_markdown,
    crossover_rows,
    lost_text,
)
from specbench_testing.records import ONE, Lies, World, run_of_world

WORLD = World(prompts=24, categories=ONE)
STEP_RATIO = 12 / 10


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return run_of_world(WORLD)


def only(summary: RunSummary) -> BreakEven:
    assert summary.crossover is not None
    (found,) = summary.crossover.break_even
    return found


@pytest.mark.parametrize("alpha", [0.2, 0.8])
def test_it_is_the_ratio_of_step_times_however_much_is_accepted(alpha: float) -> None:
    found = only(run_of_world(World(prompts=40, categories=ONE, alpha={"ngram": alpha})))
    assert found.needed.value == pytest.approx(STEP_RATIO, rel=0.01)
    assert found.needed.interval is not None
    assert found.needed.interval.low < STEP_RATIO < found.needed.interval.high


def test_measured_over_needed_is_the_speedup_of_decoding(summary: RunSummary) -> None:
    found, cell = only(summary), summary.cells[1]
    assert found.needed.value is not None
    assert found.measured.value is not None
    assert found.margin.value == pytest.approx(found.measured.value / found.needed.value)
    assert cell.tpot_speedup is not None
    assert found.margin.value == pytest.approx(cell.tpot_speedup.value)
    assert found.measured.value == pytest.approx(cell.figures["acceptance_length_emitted_pooled"].value)


def test_an_engine_that_tells_no_steps_leaves_it_missing_and_out_of_the_table() -> None:
    silent = Lies(records=lambda _, frame: frame.assign(steps=None, step_accepted=None, accepted_tokens=None))
    summary = run_of_world(WORLD, silent)
    assert only(summary).needed.value is None
    assert break_even_rows(summary) == []


def test_a_broken_comparison_is_marked(summary: RunSummary) -> None:
    failing = Lies(records=lambda point, frame: frame.assign(error_class="x") if point.repeat == 0 else frame)
    spoilt = run_of_world(WORLD, failing)
    assert not only(spoilt).valid
    assert break_even_rows(spoilt)[0].margin.endswith("invalid")
    assert break_even_rows(summary)[0].margin.endswith("]")


def test_one_load_is_no_curve_and_the_report_says_so(summary: RunSummary) -> None:
    (row,) = crossover_rows(summary)
    assert row.answer == "not told: one place alone (concurrency 1) has a speed-up that can be used"
    assert "## Up to which load it pays" in crossover_markdown(summary)
    assert crossover_lines(summary) == []
    old = summary.model_copy(update={"crossover": None})
    assert (crossover_rows(old), break_even_rows(old), crossover_markdown(old)) == ([], [], [])


def test_invalid_loads_and_too_few_repeats_are_left_out_with_the_reason() -> None:
    world = World(prompts=14, categories=ONE, concurrency=(1, 2, 4))
    failing = Lies(records=lambda at, frame: frame.assign(error_class="x") if at.level.concurrency == 2 else frame)
    spoilt = run_of_world(world, failing)
    found = spoilt.crossover
    assert found is not None
    (told,) = found.by_load
    assert told.crossover.places == [1.0, 4.0]
    lost = f"lost from the smallest load to the largest: {lost_text(told.crossover)}"
    assert crossover_lines(spoilt) == [f"ngram on chat: {told.crossover.message}; {lost}"]
    assert [line.partition(":")[0] for line in told.crossover.left_out] == ["concurrency 2"]
    few = run_of_world(World(prompts=14, categories=ONE, concurrency=(1, 2), repeats=2)).crossover
    assert few is not None
    assert few.by_load[0].crossover.kind is CrossoverKind.NOT_TOLD
    assert "2 repeats: too few to tell" in few.by_load[0].crossover.message
