"""Step costs: a linear engine is recovered, and inseparable terms and poor fits are reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.plan.plan import Arm
from specbench_api.spec.drafter import Drafter
from specbench_api.spec.load import Level
from specbench_client.analysis.stepcost.model import (
    ObservedCell,
    choose_terms,
    drafter_family,
    fit_step_cost,
    fit_terms,
    observe_cell,
    step_costs,
    with_splits,
)
from specbench_client.documents.explanation import Coefficient, StepCost, StepObservation, StepSplit
from specbench_client.metrics.tidy_frame import tidy
from specbench_client.report.text.explanation import split_table
from specbench_client.simulator.config import SimulatedStepCost as TrueCost
from specbench_client.simulator.config import StepLoad
from specbench_testing.present import present
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
    rows = tidy([VirtualEngine(requests_per_stream=8).records(2, 3)], "point")
    place = ObservedCell(arm(3), "w", Level(concurrency=2))
    assert observe_cell(place, rows) is not None
    lacking = (filled(rows, steps=np.nan), filled(rows, input_tokens=np.nan), rows.at(np.arange(3)))
    assert [observe_cell(place, each) for each in lacking] == [None] * 3


def test_single_stream_has_batch_size_1_and_no_prefill_in_its_steps() -> None:
    rows = tidy([VirtualEngine(requests_per_stream=20).records(1, 3)], "point")
    found = present(observe_cell(ObservedCell(arm(3), "w", Level(concurrency=1)), rows))
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
