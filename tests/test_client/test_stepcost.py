"""Step costs: a linear engine is recovered, and inseparable terms and poor fits are reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.plan.plan import Arm
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.load import Level
from specbench_client.analysis.breakdown import breakdown
from specbench_client.analysis.breakdown.breakdown import BY_LITERATURE, BY_QUARTILE, breakdown_of_cell
from specbench_client.analysis.stepcost.model import (
    choose_terms,
    drafter_family,
    fit_step_cost,
    fit_terms,
    observe_cell,
    step_costs,
    with_splits,
)
from specbench_client.documents.breakdown import BreakdownSlice
from specbench_client.documents.explanation import Coefficient, StepCost, StepObservation, StepSplit
from specbench_client.metrics.rows import Table, join_tables
from specbench_client.metrics.tidy_frame import numbers, tidy
from specbench_client.report.text.explanation import split_table
from specbench_client.simulator.speculation import count_accepted
from specbench_client.simulator.step_cost import SimulatedStepCost as TrueCost
from specbench_client.simulator.step_cost import StepLoad
from specbench_testing.present import present
from specbench_testing.synthetic_records import SyntheticRun as RecordedWorld
from specbench_testing.synthetic_records import frame_of, record, run_of_world, tidy_frames
from specbench_testing.tables import filled
from specbench_testing.virtual_engine import VirtualEngine

TRUE = TrueCost(base_ms=4.8, per_token_ms=0.1, per_kv_ms=0.0005, per_draft_ms=0.3, per_prefill_ms=0.0)
TRUTH = {
    Coefficient.BASE: TRUE.base_ms,
    Coefficient.VERIFIED: TRUE.per_token_ms,
    Coefficient.CONTEXT: TRUE.per_kv_ms,
    Coefficient.DRAFT: TRUE.per_draft_ms,
}
BATCHES, LENGTHS, CONTEXTS = (1, 8, 32), (0, 1, 3, 5), (200, 2000)


def arm(tokens: int, name: str = "eagle3") -> Arm:
    if not tokens:
        return Arm(name="none")
    drafter = Drafter(name=f"{name}-{tokens}", method="eagle3", model=name, num_speculative_tokens=tokens)
    return Arm(name=drafter.name, drafter=drafter)


def cell(batch: float, tokens: int, step_ms: float, *, context: int = 200, workload: str = "chat") -> StepObservation:
    return StepObservation(
        arm=arm(tokens).name,
        workload=workload,
        load=f"concurrency {batch}",
        configured_draft_tokens=tokens,
        draft_tokens=tokens,
        batch=batch,
        context_tokens=batch * context,
        prefill_tokens=0.0,
        step_ms=step_ms,
        requests=50,
    )


def true_ms(batch: int, tokens: int, context: int) -> float:
    load = StepLoad(batch_tokens=batch * (tokens + 1), kv_tokens=batch * context, draft_depth=tokens, prefill_tokens=0)
    return TRUE.milliseconds(load)


def grid(
    batches: Sequence[int] = BATCHES,
    lengths: Sequence[int] = LENGTHS,
    contexts: Sequence[int] = CONTEXTS,
    time: Callable[[int, int, int], float] = true_ms,
) -> list[StepObservation]:
    return [
        cell(batch, tokens, time(batch, tokens, context), context=context, workload=f"context {context}")
        for context in contexts
        for tokens in lengths
        for batch in batches
    ]


def test_costs_of_a_linear_engine_are_recovered_exactly() -> None:
    found = fit_step_cost(["none", "eagle3"], grid())
    assert found.fits
    for term, truth in TRUTH.items():
        assert found.coefficients[term].value == pytest.approx(truth, rel=1e-6)
    assert found.coefficients[Coefficient.DRAFTING].value == pytest.approx(0, abs=1e-6)
    assert present(found.held_out_error).value == pytest.approx(0, abs=1e-6)
    assert present(found.r_squared).value == pytest.approx(1)


@pytest.mark.draws
def test_cost_intervals_cover_the_truth_at_their_nominal_rate() -> None:
    rng, covered, draws = np.random.default_rng(1), dict.fromkeys(TRUTH, 0), 400
    plain, terms = grid(), (*TRUTH,)
    for _ in range(draws):
        noisy = [
            each.model_copy(update={"step_ms": each.step_ms * float(np.exp(rng.normal(0, 0.01)))}) for each in plain
        ]
        found = fit_terms(noisy, terms)
        for term, value, half in zip(found.terms, found.values, found.half_widths, strict=True):
            covered[term] += bool(abs(value - TRUTH[term]) <= half)
    assert all(0.92 < count / draws < 0.98 for count in covered.values()), covered


@pytest.mark.parametrize(
    ("observations", "reason"),
    [
        (grid(batches=(8,)), "one batch size alone"),
        (grid(batches=(8, 9)), "one batch size alone"),
        (grid(lengths=(0,)), "one draft length alone (0)"),
        (grid(lengths=(3,)), "one draft length alone (3)"),
        (grid(batches=(1, 8), lengths=(0, 3), contexts=(200,)), "4 cells, but 3 terms need at least 5"),
        (
            [cell(batch, batch - 1, 5.0) for batch in (1, 2)] * 3,
            "batch size and draft length change together",
        ),
        ([], "no cell has a step time"),
    ],
)
def test_inseparable_terms_are_reported_and_not_fitted(observations: list[StepObservation], reason: str) -> None:
    found = fit_step_cost(["none"], observations)
    assert not found.coefficients
    assert not found.fits
    assert reason in found.notes[0]


def test_collinear_term_is_left_out_with_a_note() -> None:
    same = [each.model_copy(update={"context_tokens": each.batch * (each.draft_tokens + 1)}) for each in grid()]
    design = choose_terms(same)
    assert Coefficient.CONTEXT not in design.terms
    assert any(note.startswith("per_context_token: not separable") for note in design.notes)
    found = fit_step_cost(["none"], same)
    assert Coefficient.CONTEXT not in found.coefficients


def staircase(batch: int, tokens: int, context: int) -> float:
    """Return step times that jump when a batch needs one more tile, which is far from linear."""
    return float(5.0 * 2 ** np.ceil(np.log2(batch * (tokens + 1)) / 2) * (1 + (tokens == 3)) + context * 0)


def test_poor_fit_is_reported() -> None:
    found = fit_step_cost(["none", "e"], grid(time=staircase, contexts=(200,)))
    assert not found.fits
    assert any(note.startswith("poor fit: held-out cells are missed by") for note in found.notes)


@settings(max_examples=25)
@given(st.lists(st.floats(1, 1000), min_size=12, max_size=12))
def test_costs_are_never_negative(times: list[float]) -> None:
    plain = grid(contexts=(200,))
    seen = [each.model_copy(update={"step_ms": time}) for each, time in zip(plain, times, strict=True)]
    found = fit_step_cost(["none", "e"], seen)
    assert all((figure.value or 0) >= 0 for figure in found.coefficients.values())


def test_drafter_family_covers_all_lengths_but_no_trees_or_schedules() -> None:
    assert drafter_family(arm(1)) == drafter_family(arm(5)) != drafter_family(arm(1, "other"))
    drafter = present(arm(3).drafter)
    tree = Arm(name="t", drafter=drafter.model_copy(update={"eagle_topk": 4}))
    scheduled = Drafter.model_validate({**drafter.to_dict(), "draftLengths": [{"batchSize": 8, "tokens": 3}]})
    others = (arm(0), tree, Arm(name="s", drafter=scheduled))
    assert [drafter_family(each) for each in others] == [None] * 3


def test_each_drafter_has_its_own_profile_that_includes_the_baseline() -> None:
    seen = [
        (arm(tokens, name), each) for name in ("one", "two") for tokens in (1, 3) for each in grid(lengths=(tokens,))
    ]
    found = step_costs([*((arm(0), each) for each in grid(lengths=(0,))), *seen])
    assert [each.arms for each in found] == [["none", "one-1", "one-3"], ["none", "two-1", "two-3"]]
    assert StepCost.from_json(found[0].to_json()) == found[0]


def test_cell_without_reported_steps_is_not_an_observation() -> None:
    rows = tidy_frames([VirtualEngine(requests_per_stream=8).records(2, 3)], "point")
    place = (arm(3), "w", Level(concurrency=2))
    assert observe_cell(*place, rows) is not None
    lacking = (filled(rows, steps=np.nan), filled(rows, input_tokens=np.nan), rows.at(np.arange(3)))
    assert [observe_cell(*place, each) for each in lacking] == [None] * 3


def test_single_stream_has_batch_size_1_and_no_prefill_in_its_steps() -> None:
    rows = tidy_frames([VirtualEngine(requests_per_stream=20).records(1, 3)], "point")
    found = present(observe_cell(arm(3), "w", Level(concurrency=1), rows))
    assert (found.batch, found.prefill_tokens, found.draft_tokens) == (1.0, 0.0, 3.0)


# Split of a step time: the parts of a known engine add up, and a poor fit gives no split.


BASE_MS, TOKEN_MS, CONTEXT_MS, DRAFT_MS, PREFILL_MS = 8.0, 0.1, 0.0005, 0.3, 0.02
PREFILLS = (0.0, 10.0)


def parts_of(batch: float, tokens: int, prefill: float) -> tuple[float, float, float, float]:
    """Return the true times: target, drafts, verification, prefill."""
    target = BASE_MS + TOKEN_MS * batch + CONTEXT_MS * batch * 200
    return target, DRAFT_MS * tokens, TOKEN_MS * batch * tokens, PREFILL_MS * prefill


def cells(noise: Callable[[], float] = lambda: 0.0) -> list[StepObservation]:
    return [
        StepObservation(
            arm=f"eagle3-{tokens}" if tokens else "none",
            workload=f"prefill {prefill:g}",
            load=str(batch),
            configured_draft_tokens=tokens,
            draft_tokens=tokens,
            batch=batch,
            context_tokens=batch * 200,
            prefill_tokens=prefill * batch,
            step_ms=sum(parts_of(batch, tokens, prefill * batch)) * float(np.exp(noise())),
            requests=50,
        )
        for batch in BATCHES
        for tokens in LENGTHS
        for prefill in PREFILLS
    ]


def profile(seen: Sequence[StepObservation]) -> StepCost:
    return with_splits(fit_step_cost(["none", "eagle3"], seen))


def split_of(seen: StepObservation) -> StepSplit:
    return present(seen.split)


def test_parts_of_a_linear_engine_are_found_in_each_cell() -> None:
    for seen in profile(cells()).observations:
        split = split_of(seen)
        found = (split.target_ms, split.draft_ms, split.verify_ms, split.prefill_ms)
        assert found == pytest.approx(
            parts_of(seen.batch, seen.configured_draft_tokens, seen.prefill_tokens), rel=1e-3, abs=1e-3
        )
        assert split.rest_ms == pytest.approx(0, abs=1e-6)


def test_draft_to_target_ratio_has_an_interval_and_is_missing_without_drafts() -> None:
    rng = np.random.default_rng(2)
    for seen in profile(cells(lambda: rng.normal(0, 0.005))).observations:
        ratio = split_of(seen).draft_to_target
        if not seen.configured_draft_tokens:
            assert ratio is None
            continue
        assert ratio is not None
        target = parts_of(seen.batch, seen.configured_draft_tokens, 0.0)[0]
        assert present(ratio.interval).low < DRAFT_MS / target < present(ratio.interval).high


@settings(max_examples=25)
@given(st.lists(st.floats(-0.08, 0.08), min_size=24, max_size=24))
def test_parts_add_up_to_the_measured_time_and_only_the_rest_can_be_negative(noise: list[float]) -> None:
    drawn = iter(noise)
    for seen in profile(cells(lambda: next(drawn))).observations:
        if seen.split is not None:
            costs = (seen.split.target_ms, seen.split.draft_ms, seen.split.verify_ms, seen.split.prefill_ms)
            assert sum(costs) + seen.split.rest_ms == pytest.approx(seen.step_ms)
            assert all(cost >= 0 for cost in costs)


def test_poor_fit_removes_all_splits() -> None:
    rng = np.random.default_rng(3)
    poor = [each.model_copy(update={"step_ms": each.step_ms * float(rng.uniform(0.4, 2))}) for each in cells()]
    assert all(each.split is not None for each in profile(cells()).observations)
    assert all(each.split is None for each in profile(poor).observations)
    assert split_table(profile(poor)).rows == []


@pytest.mark.draws
def test_simulators_costs_are_recovered_within_their_intervals() -> None:
    true = TrueCost(per_draft_ms=0.3)
    seen = []
    for workload, (prompt, answer) in {"short": ((50, 150), (40, 120)), "long": ((800, 1600), (60, 180))}.items():
        engine = VirtualEngine(cost=true, input_tokens=prompt, output_tokens=answer, requests_per_stream=8)
        for tokens in (0, 1, 3, 5):
            for streams in (1, 8, 24):
                place = (arm(tokens), workload, Level(concurrency=streams))
                found = present(observe_cell(*place, tidy_frames([engine.records(streams, tokens)], "point")))
                seen.append((arm(tokens), found))
    (cost,) = step_costs(seen)
    truth = {
        Coefficient.BASE: true.base_ms,
        Coefficient.VERIFIED: true.per_token_ms,
        Coefficient.CONTEXT: true.per_kv_ms,
        Coefficient.PREFILL: true.per_prefill_ms,
        Coefficient.DRAFT: true.per_draft_ms,
    }
    assert cost.fits
    for term, value in truth.items():
        figure = cost.coefficients[term]
        assert present(figure.interval).low <= value <= present(figure.interval).high, term
        assert figure.value == pytest.approx(value, rel=0.1), term


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
    return tidy_frames([frame_of(found)])


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
    rows = tidy_frames([frame_of([record(output_tokens=1 + 10 * ten, steps=10) for ten in range(1, 12)])])
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
