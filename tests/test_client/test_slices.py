"""Breakdowns compared with a known truth: a simulator whose acceptance depends on the position of a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest

from specbench_client.analysis.breakdown import breakdown
from specbench_client.analysis.breakdown.breakdown import BY_LITERATURE, BY_QUARTILE, breakdown_of_cell
from specbench_client.documents.breakdown import BreakdownSlice
from specbench_client.metrics.rows import Table, join_tables
from specbench_client.metrics.tidy_frame import numbers, tidy
from specbench_client.simulator.speculation import count_accepted
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun as RecordedWorld
from specbench_testing.synthetic_records import frame_of, record, run_of_world
from specbench_testing.tables import filled

LENGTH = "acceptance_length_emitted_pooled"
GOOD, BAD = (0.9, 0.8, 0.7), (0.5, 0.3, 0.1)
Truth = Callable[[int], tuple[float, ...]]
"""Conditional acceptance of each draft, by the output position at which a step starts."""


def length_of(conditional: tuple[float, ...]) -> float:
    """Return AL = 1 + Σ Π."""
    return 1 + sum(accumulate(conditional, lambda product, rate: product * rate))


def simulate_steps(rng: Random, tokens: int, truth: Truth) -> list[int]:
    """Return the delivered drafts of each step of one answer."""
    steps: list[int] = []
    position = 1
    while position < tokens:
        steps.append(min(count_accepted(rng, 3, truth(position)), tokens - position - 1))
        position += steps[-1] + 1
    return steps


def rows_of(prompts: int, tokens: int, truth: Truth, **edits: Any) -> Table:
    """Return one answer per prompt. `edits` change each record; a function receives the prompt's number."""
    found = []
    for prompt in range(prompts):
        accepted = simulate_steps(Random(f"{prompt}"), tokens, truth)
        counts = {"output_tokens": tokens, "steps": len(accepted), "step_accepted": accepted, "input_tokens": 100}
        drafted = {"drafted_tokens": 3 * len(accepted), "accepted_tokens": sum(accepted)}
        named = {"prompt_id": f"p{prompt}", "acceptance_source": "per_step", "chunk_tokens": None}
        mine = {name: value(prompt) if callable(value) else value for name, value in edits.items()}
        found.append(record(**{**counts, **drafted, **named, **mine}))
    return tidy([frame_of(found)])


def lengths(slices: list[BreakdownSlice]) -> dict[str, float | None]:
    return {each.label: each.figures[LENGTH].value for each in slices}


def holds(each: BreakdownSlice, truth: float) -> bool:
    interval = present(each.figures[LENGTH].interval)
    assert interval.high - interval.low < 0.4, "the interval is narrow enough to be meaningful"
    return interval.low <= truth <= interval.high


def test_acceptance_by_position_is_the_simulators() -> None:
    found = breakdown_of_cell(rows_of(40, 1024, lambda at: GOOD if at < 256 else BAD), 1, 3)
    by_label = {each.label: each for each in found.by_position}
    assert list(by_label) == ["1–15", "16–31", "32–63", "64–127", "128–255", "256–511", "512–1,023"]
    truths = {label: length_of(BAD if each.low and each.low >= 256 else GOOD) for label, each in by_label.items()}
    assert [label for label, truth in truths.items() if not holds(by_label[label], truth)] == []
    assert found.placed_share == 1


def test_context_includes_the_prompt() -> None:
    rows = rows_of(40, 512, lambda at: GOOD if at + 500 < 512 else BAD, input_tokens=500)
    by_label = {each.label: each for each in breakdown_of_cell(rows, 1, 3).by_context}
    assert list(by_label) == ["256–511", "512–1,023"]
    assert holds(by_label["512–1,023"], length_of(BAD))
    assert by_label["256–511"].figures[LENGTH].value == pytest.approx(length_of(GOOD), abs=0.4)


def test_reasoning_and_answer_are_separated() -> None:
    rows = rows_of(40, 512, lambda at: GOOD if at < 200 else BAD, reasoning_tokens=200)
    thought, answer = breakdown_of_cell(rows, 1, 3).by_part
    assert (thought.label, answer.label) == ("reasoning", "answer")
    assert holds(thought, length_of(GOOD))
    assert holds(answer, length_of(BAD))


def test_slices_of_a_dimension_contain_every_step_once() -> None:
    rows = rows_of(12, 300, lambda _: GOOD, reasoning_tokens=50)
    steps, tokens = numbers(rows, "steps").sum(), (numbers(rows, "tokens") - 1).sum()
    found = breakdown_of_cell(rows, None, 3)
    for dimension in (found.by_position, found.by_context, found.by_part):
        assert sum(each.steps for each in dimension) == steps
        emitted = sum(each.steps * (each.figures[LENGTH].value or math.nan) for each in dimension)
        assert emitted == pytest.approx(tokens)
        assert all((each.prompts, each.requests) == (12, 12) for each in dimension)
    assert all(each.figures[LENGTH].interval is None for each in found.by_position), "intervals need a seed"


ALL_DIMENSIONS = ("by_position", "by_context", "by_part")


def test_short_answers_are_grouped_by_quartiles_and_then_by_position() -> None:
    rows = rows_of(40, 200, lambda _: GOOD)
    rows = join_tables([rows, rows_of(40, 40, lambda _: BAD, prompt_id=lambda prompt: f"s{prompt}")])
    found = breakdown_of_cell(rows, 1, 3)
    assert found.length_classes == BY_QUARTILE
    short, long = found.by_length
    assert [each.whole.label for each in (short, long)] == ["1–40", "121–200"], "classes without answers are left out"
    assert lengths(short.by_position).keys() == {"1–15", "16–31", "32–63"}
    assert long.whole.figures[LENGTH].value == pytest.approx(length_of(GOOD), abs=0.1)
    assert short.whole.figures["acceptance_rate"].value == pytest.approx((length_of(BAD) - 1) / 3, abs=0.05)
    assert short.whole.requests + long.whole.requests == 80


def test_long_answers_are_grouped_as_in_the_literature() -> None:
    parts = [rows_of(3, tokens, lambda _: GOOD, prompt_id=lambda p, t=tokens: f"{t}-{p}") for tokens in (3999, 4000)]
    found = breakdown_of_cell(join_tables(parts), 1, 3)
    assert found.length_classes == BY_LITERATURE
    assert [each.whole.label for each in found.by_length] == ["1–3,999", "4,000–7,999"]


def test_each_turn_has_a_slice() -> None:
    rows = rows_of(20, 60, lambda _: GOOD, turn=lambda prompt: prompt % 2)
    first, second = breakdown_of_cell(rows, 1, 3).by_turn
    assert (first.label, second.label) == ("turn 1", "turn 2")
    assert (first.requests, first.prompts) == (10, 10)
    others = {"acceptance_length_verified_pooled", "acceptance_rate", "tpot_ms_pooled", "ttft_ms_mean"}
    assert set(first.figures) == {LENGTH, *others}


def test_distribution_over_requests_matches_a_calculation_by_hand() -> None:
    rows = tidy([frame_of([record(output_tokens=1 + 10 * ten, steps=10) for ten in range(1, 12)])])
    spread = present(breakdown_of_cell(rows, 1, 0).acceptance_by_request)
    assert (spread.minimum, spread.median, spread.maximum, spread.n) == (1, 6, 11, 11)
    assert (spread.lower_quartile, spread.upper_quartile) == (3.5, 8.5)
    assert spread.deciles == pytest.approx([2, 3, 4, 5, 6, 7, 8, 9, 10])


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"acceptance_source": None}, dict.fromkeys(ALL_DIMENSIONS, breakdown.NO_DRAFTS)),
        ({"step_accepted": None}, dict.fromkeys(ALL_DIMENSIONS, breakdown.NOT_LOCATED)),
        ({"input_tokens": None}, {"by_context": breakdown.NO_PROMPT_TOKENS, "by_part": breakdown.NO_REASONING}),
    ],
)
def test_missing_breakdowns_have_a_reason(edits: dict[str, Any], expected: dict[str, str]) -> None:
    found = breakdown_of_cell(rows_of(3, 20, lambda _: GOOD, **edits), 1, 3).missing
    assert {name: reason for name, reason in found.items() if name in ALL_DIMENSIONS} == expected
    assert (found["by_turn"], found["by_length"]) == (breakdown.NO_TURNS, breakdown.ONE_LENGTH)
    assert breakdown_of_cell(tidy([]), 1, 3).missing["by_length"] == breakdown.NO_TOKENS


def test_steps_removed_by_a_check_are_in_no_slice_and_the_share_of_located_ones_is_reported() -> None:
    rows = rows_of(4, 20, lambda _: GOOD)
    found = breakdown_of_cell(filled(rows, steps=np.nan, acceptance_source=None), 1, 3)
    assert (found.by_position, found.placed_share, found.acceptance_by_request) == ([], None, None)
    unplaced = rows_of(1, 20, lambda _: GOOD, step_accepted=None)
    assert breakdown_of_cell(unplaced, 1, 3).placed_share == 0
    assert breakdown_of_cell(join_tables([rows_of(3, 20, lambda _: GOOD), unplaced]), 1, 3).placed_share == 0.75


@pytest.mark.runs
def test_every_cell_has_its_breakdown_in_the_summary() -> None:
    summary = run_of_world(RecordedWorld(prompts=20, repeats=3))
    baseline, ngram = summary.cells
    assert present(baseline.breakdown).by_position == []
    assert present(baseline.breakdown).missing["by_position"] == breakdown.NO_DRAFTS
    (whole,) = {
        sum(each.steps for each in dimension)
        for dimension in (present(ngram.breakdown).by_position, present(ngram.breakdown).by_context)
    }
    assert whole > 1000
    assert type(summary).from_json(summary.to_json()) == summary


@pytest.mark.parametrize(("few", "method"), [(2, None), (5, "5 prompts")])
def test_class_interval_uses_the_number_of_its_own_prompts(few: int, method: str | None) -> None:
    long = rows_of(few, 200, lambda _: GOOD, prompt_id=lambda prompt: f"long{prompt}")
    rows = join_tables([rows_of(30, 60, lambda _: GOOD), long])
    by_label = {each.label: each for each in breakdown_of_cell(rows, 1, 3).by_position}
    assert by_label["64–127"].prompts == by_label["64–127"].figures[LENGTH].n == few
    interval = by_label["64–127"].figures[LENGTH].interval
    assert (interval is None) == (method is None)
    assert interval is None or "5 prompts" in interval.method
    assert by_label["1–15"].figures[LENGTH].interval is not None
