"""The paired speed-ups as ratios of sums by hand, and the coverage of their intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.estimates.speedups import (
    E2E_SPEEDUP,
    SPEEDUP,
    TPOT_SPEEDUP,
    end_to_end,
    figures_by_name,
    pair_layout,
    paired_speedup,
)
from specbench_client.documents.summary import Cell
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_testing.present import present
from specbench_testing.speedup_experiment import TOKENS, pairs_of
from specbench_testing.synthetic_records import SyntheticRun, run_of_world
from specbench_testing.tables import pairs_of_frame

BASE_MS = 10.0
ARM_STEP_MS = 12.0
LENGTHS = (1.4, 2.6)
"""Acceptance lengths are uniform between these over prompts; time per token is step time / acceptance length."""
TRUTH = BASE_MS / (ARM_STEP_MS * np.log(LENGTHS[1] / LENGTHS[0]) / (LENGTHS[1] - LENGTHS[0]))


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


@dataclass(frozen=True)
class Experiment:
    """A small experiment with drawn prompts, run-level noise, and per-request jitter."""

    prompts: int = 15
    repeats: int = 3
    run_noise: float = 0.0
    jitter: float = 0.01
    spread: bool = True
    categories: int = 1

    def pairs(self, seed: int) -> Pairs:
        rng = np.random.default_rng(seed)
        prompt = np.tile(np.arange(self.prompts), self.repeats)
        repeat = np.repeat(np.arange(self.repeats), self.prompts)
        lengths = rng.uniform(*LENGTHS, self.prompts) if self.spread else np.full(self.prompts, ARM_STEP_MS / BASE_MS)
        runs = np.exp(rng.normal(0, self.run_noise, (2, self.repeats)))
        noise = np.exp(rng.normal(0, self.jitter, (2, prompt.size)))
        pace = {
            BASELINE: BASE_MS * runs[0][repeat] * noise[0],
            ARM: ARM_STEP_MS / lengths[prompt] * runs[1][repeat] * noise[1],
        }
        return pairs_of_frame(rows_of(prompt, repeat, pace, [f"c{each % self.categories}" for each in prompt]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("experiment", "most"),
    [
        (Experiment(repeats=1), 1),
        (Experiment(repeats=1, prompts=40), 0.99),
        (Experiment(repeats=3), 1),
        (Experiment(repeats=3, run_noise=0.05), 1),
        (Experiment(repeats=5, run_noise=0.2, prompts=10), 1),
        (Experiment(repeats=3, run_noise=0.03, prompts=6), 1),
        (Experiment(repeats=3, prompts=15, categories=3), 1),
        (Experiment(repeats=3, run_noise=0.03, prompts=20, spread=False), 0.99),
        (Experiment(repeats=3, run_noise=0.02, prompts=30), 0.99),
        (Experiment(repeats=5, run_noise=0.03, prompts=20), 0.99),
        (Experiment(repeats=8, run_noise=0.1, prompts=10), 0.99),
    ],
)
def test_intervals_have_their_nominal_coverage(experiment: Experiment, most: float) -> None:
    """200 experiments each; an interval that excludes 1 has a p-value below 5 %, and no other one."""
    truth, covered = TRUTH if experiment.spread else 1.0, 0
    for seed in range(200):
        found = paired_speedup(SPEEDUP, experiment.pairs(seed), seed=0)
        assert found.figure.interval is not None
        low, high = found.figure.interval.low, found.figure.interval.high
        p_value = present(found.effect).p_value
        assert p_value is None or (p_value < 0.05) == (not low <= 1 <= high)
        covered += low <= truth <= high
    assert 0.90 <= covered / 200 <= most


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


@pytest.mark.parametrize(("alternating", "turns"), [(True, [1, -1, 1]), (False, None)])
def test_only_arms_that_take_turns_have_a_drift_between_turns(alternating: bool, turns: list[float] | None) -> None:
    found = pair_layout(replace(Experiment(repeats=3).pairs(seed=0), alternating=alternating)).turns
    assert (None if found is None else found.tolist()) == turns


def test_median_of_a_run_that_may_stop_early_is_the_mean_over_repeats() -> None:
    """Ratios 1, 2, 8 and 4, 4, 4: the medians 2 and 4 of the repeats count once each, on the log scale."""
    prompt, repeat = np.tile(np.arange(3), 2), np.repeat(np.arange(2), 3)
    pace = {BASELINE: np.array([1.0, 2, 8, 4, 4, 4]) / 100, ARM: np.ones(6) / 100}
    found = end_to_end(replace(pairs_of(prompt, repeat, pace), anytime=True), 1, seed=0).median_speedup
    assert found.value == pytest.approx(2**1.5)


@pytest.mark.parametrize("side", [ARM, BASELINE])
def test_median_is_unknown_if_an_answer_took_no_time(side: str) -> None:
    pace = {ARM: np.array([5.0, 5.0]), BASELINE: np.array([10.0, 10.0])}
    pace[side][0] = 0
    found = end_to_end(pairs_of(np.arange(2), np.zeros(2), pace), 1, seed=0).median_speedup
    assert found.value is None


@pytest.mark.runs
def test_median_of_few_pairs_has_no_interval() -> None:
    assert end_to_end(pairs([100] * 5, [200] * 5), 1, seed=0).median_speedup.interval is None


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
