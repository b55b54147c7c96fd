"""Split of a step time: the parts of a known engine add up, and a poor fit gives no split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.outcome.step_cost import StepCost, StepObservation, StepSplit
from specbench_client.analysis.stepcost.model import fit_step_cost, with_splits
from specbench_client.report.text.step_costs import SPLIT_TITLES, split_table
from specbench_testing.present import present

BASE_MS, TOKEN_MS, CONTEXT_MS, DRAFT_MS, PREFILL_MS = 8.0, 0.1, 0.0005, 0.3, 0.02
BATCHES, LENGTHS, PREFILLS = (1, 8, 32), (0, 1, 3, 5), (0.0, 10.0)


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


def test_split_table_has_a_row_per_cell_and_a_dash_for_the_baselines_ratio() -> None:
    sheet = split_table(profile(cells()))
    assert "fitted and not timed (held-out cells predicted within 0.0%)" in sheet.title
    rows = {(row[0], row[1], row[2]): row for row in sheet.rows}
    assert len(rows) == len(BATCHES) * len(LENGTHS) * len(PREFILLS)
    assert all(len(row) == len(SPLIT_TITLES) for row in sheet.rows)
    assert rows["none", "prefill 0", "1"][-1] == "–"
    assert rows["eagle3-3", "prefill 0", "1"][-1].startswith("3.7% [")
