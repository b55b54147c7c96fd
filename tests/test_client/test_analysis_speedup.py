"""The paired speed-ups as ratios of sums by hand, and the coverage of their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.estimates.speedups import (
    E2E_SPEEDUP,
    SPEEDUP,
    TPOT_SPEEDUP,
    end_to_end,
    figures_by_name,
    paired_speedup,
)
from specbench_client.documents.summary import Cell
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_testing.present import present
from specbench_testing.speedup_experiment import TOKENS, pairs_of
from specbench_testing.synthetic_records import SyntheticRun, run_of_world
from specbench_testing.tables import pairs_of_frame


def rows_of(prompt: np.ndarray, repeat: np.ndarray, pace: dict[str, np.ndarray], category: list[str]) -> pd.DataFrame:
    columns: dict[str, object] = {"repeat": repeat.astype(float), "prompt_id": [f"p{each}" for each in prompt]}
    columns |= {"pass": 0, "turn": 0.0}
    for side, ms in pace.items():
        columns_of_side = {
            "category": category,
            "input_tokens": 100.0,
            "tokens": float(TOKENS),
            "steps": float(TOKENS - 1),
            "intended_ns": 0.0,
            "first_token_ns": ms * 1e6,
        }
        columns_of_side |= {"last_token_ns": ms * 1e6 * TOKENS, "finish_reason": "stop", "output_sha256": "x"}
        columns |= {f"{name}{side}": value for name, value in columns_of_side.items()}
    return pd.DataFrame(columns)


def two_pairs() -> pd.DataFrame:
    """10 and 40 ms per token on the baseline, 5 and 10 ms on the arm."""
    pace = {ARM: np.array([5.0, 10.0]), BASELINE: np.array([10.0, 40.0])}
    return rows_of(np.array([0, 1]), np.array([0, 0]), pace, ["c", "c"])


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        (SPEEDUP, TOKENS, 50 / 15),
        (TPOT_SPEEDUP, TOKENS, 50 / 15),
        (E2E_SPEEDUP, TOKENS, 50 / 15),
        (SPEEDUP, 99, (149 / 15) / (100 / 50)),  # the arm's first answer has 99 tokens in the same time
        (TPOT_SPEEDUP, 99, (50 / 98) / (15 / 147)),
        (E2E_SPEEDUP, 99, 50 / 15),
    ],
)
def test_speedups_are_ratios_of_sums(name: str, tokens: int, expected: float) -> None:
    rows = two_pairs()
    rows.loc[0, "tokens" + ARM] = tokens
    found = paired_speedup(name, pairs_of_frame(rows), seed=0)
    assert found.figure.value == pytest.approx(expected)
    assert (found.figure.n, present(found.effect).repeats, found.figure.interval) == (2, 1, None)


def test_pairs_that_are_missing_or_incomplete_are_left_out_and_counted() -> None:
    rows = two_pairs()
    none = paired_speedup(SPEEDUP, pairs_of_frame(rows[:0]), seed=0)
    assert (none.figure.value, none.figure.n, none.effect) == (None, 0, None)
    rows.loc[0, "last_token_ns" + ARM] = np.nan
    found = paired_speedup(SPEEDUP, replace(pairs_of_frame(rows), unpaired_later=5), seed=0).figure
    assert (found.value, found.n) == pytest.approx((4, 1))
    assert found.definition.endswith("; 1 pairs, 5 later turns unpaired because earlier replies differ")


# End-to-end figures: closed-form values of speed-ups, requests per hour and cost saved.


PROMPTS = 40


def pairs(arm_ms: list[float], baseline_ms: list[float]) -> Pairs:
    prompt = np.arange(len(arm_ms))
    pace = {ARM: np.array(arm_ms) / TOKENS, BASELINE: np.array(baseline_ms) / TOKENS}
    return pairs_of(prompt, np.zeros_like(prompt), pace)


@pytest.mark.runs
def test_ratio_of_means_differs_from_the_median_of_ratios() -> None:
    found = end_to_end(pairs([100, 100, 1000], [300, 200, 1000]), 4, seed=0)
    assert found.speedup.value == pytest.approx(1500 / 1200)
    assert found.median_speedup.value == pytest.approx(2.0)


@pytest.mark.runs
def test_requests_per_hour_are_streams_over_mean_e2e_latency() -> None:
    found = end_to_end(pairs([100, 100, 1000], [300, 200, 1000]), 4, seed=0)
    assert found.requests_per_hour.value == pytest.approx(4 * 3600 / 0.4)
    assert found.baseline_requests_per_hour.value == pytest.approx(4 * 3600 / 0.5)
    assert found.cost_saved.value == pytest.approx(1 - 0.4 / 0.5)
    assert found.requests_per_hour.unit == "requests/h"


@pytest.mark.runs
def test_bounds_of_cost_saved_follow_from_the_speedup() -> None:
    rng = np.random.default_rng(1)
    baseline = rng.uniform(200, 400, PROMPTS)
    found = end_to_end(pairs(list(baseline / rng.uniform(1.2, 1.6, PROMPTS)), list(baseline)), 1, seed=0)
    speedup, cost = found.speedup.interval, found.cost_saved.interval
    assert speedup is not None
    assert cost is not None
    assert (cost.low, cost.high) == pytest.approx((1 - 1 / speedup.low, 1 - 1 / speedup.high))
    assert cost.low < 1 - 1 / 1.4 < cost.high
    assert present(found.median_speedup.interval).low < 1.4 < present(found.median_speedup.interval).high


@pytest.mark.runs
def test_open_loop_has_speedups_but_no_requests_per_hour() -> None:
    found = end_to_end(pairs([100] * 5, [200] * 5), None, seed=0)
    assert found.speedup.value == pytest.approx(2)
    for figure in (found.requests_per_hour, found.baseline_requests_per_hour, found.cost_saved):
        assert (figure.value, figure.interval, figure.n) == (None, None, 0)


@pytest.mark.runs
def test_streams_that_wait_have_no_requests_per_hour_by_the_law_of_little() -> None:
    summary = run_of_world(SyntheticRun(edits={"spec.workloads[0].thinkTime": {"seconds": 2}}))
    (found,) = (cell.end_to_end for cell in summary.cells if cell.end_to_end is not None)
    assert found.speedup.value is not None
    assert {figure.value for figure in (found.requests_per_hour, found.cost_saved)} == {None}


@pytest.mark.runs
def test_no_pairs_give_no_figures() -> None:
    found = end_to_end(pairs([], []), 4, seed=0)
    assert {figure.value for figure in figures_by_name(found).values()} == {None}


@pytest.fixture(scope="module")
def drafted() -> Cell:
    summary = run_of_world(SyntheticRun(prompts=PROMPTS))
    return next(cell for cell in summary.cells if cell.arm == "ngram")


@pytest.mark.runs
def test_cells_and_categories_have_end_to_end_figures_except_the_baseline(drafted: Cell) -> None:
    assert drafted.end_to_end is not None
    assert drafted.end_to_end.speedup.value == pytest.approx(present(drafted.speedup).value), (
        "answers have equal lengths on both sides"
    )
    for figures in drafted.by_category.values():
        assert figures.keys() >= figures_by_name(drafted.end_to_end).keys()
        assert figures["e2e_speedup"].interval is not None
    hours = [figures["requests_per_hour"].value for figures in drafted.by_category.values()]
    assert min(hour for hour in hours if hour) <= present(drafted.end_to_end.requests_per_hour.value)
