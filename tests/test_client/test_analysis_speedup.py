"""The paired speed-up recovers a known truth, and its interval has about the nominal coverage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from specbench_client.analysis.estimates.speedups import SPEEDUP, TPOT_SPEEDUP, PairedSpeedup, paired_speedup
from specbench_client.metrics.pairing import ARM, BASELINE, Pairs
from specbench_testing.tables import pairs_of_frame

TOKENS = 50
BASE_MS = 10.0
ARM_STEP_MS = 12.0
LENGTHS = (1.4, 2.6)
"""Acceptance lengths are uniform between these over prompts; time per token is step time / acceptance length."""
TRUTH = BASE_MS / (ARM_STEP_MS * np.log(LENGTHS[1] / LENGTHS[0]) / (LENGTHS[1] - LENGTHS[0]))


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
        return pairs_of(prompt, repeat, pace, [f"c{each % self.categories}" for each in prompt])


def pairs_of(prompt: np.ndarray, repeat: np.ndarray, pace: dict[str, np.ndarray], category: list[str]) -> Pairs:
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
    return pairs_of_frame(pd.DataFrame(columns))


def bounds(compared: PairedSpeedup) -> tuple[float, float]:
    assert compared.figure.interval is not None
    return compared.figure.interval.low, compared.figure.interval.high


def coverage(experiment: Experiment, truth: float, experiments: int = 200) -> float:
    covered = 0
    for seed in range(experiments):
        low, high = bounds(paired_speedup(SPEEDUP, experiment.pairs(seed), seed=0))
        covered += low <= truth <= high
    return covered / experiments


@pytest.mark.parametrize("name", [SPEEDUP, TPOT_SPEEDUP])
def test_known_speedup_is_recovered(name: str) -> None:
    found = paired_speedup(name, Experiment(prompts=2000, repeats=1).pairs(3), seed=0)
    assert found.figure.value == pytest.approx(TRUTH, rel=0.01)
    assert found.figure.n == 2000


def test_speedup_is_a_ratio_of_sums() -> None:
    pace = {ARM: np.array([5.0, 10.0]), BASELINE: np.array([10.0, 40.0])}
    found = paired_speedup(SPEEDUP, pairs_of(np.array([0, 1]), np.array([0, 0]), pace, ["c", "c"]), seed=0)
    assert found.figure.value == pytest.approx(50 / 15)


@pytest.mark.draws
@pytest.mark.parametrize(
    "experiment",
    [
        Experiment(repeats=1),
        Experiment(repeats=3),
        Experiment(repeats=3, run_noise=0.05),
        Experiment(repeats=5, run_noise=0.2, prompts=10),
        Experiment(repeats=3, run_noise=0.03, prompts=6),
        Experiment(repeats=3, prompts=15, categories=3),
    ],
    ids=["one run", "quiet runs", "noisy runs", "very noisy runs", "few prompts", "categories"],
)
def test_interval_has_its_nominal_coverage(experiment: Experiment) -> None:
    assert coverage(experiment, TRUTH) >= 0.90


@pytest.mark.draws
@pytest.mark.parametrize(
    "experiment",
    [
        Experiment(repeats=3, run_noise=0.03, prompts=20, spread=False),
        Experiment(repeats=3, run_noise=0.02, prompts=30),
        Experiment(repeats=5, run_noise=0.03, prompts=20),
        Experiment(repeats=8, run_noise=0.1, prompts=10),
    ],
    ids=["three without a difference", "three", "five", "eight noisy ones"],
)
def test_intervals_from_three_repeats_include_run_variation(experiment: Experiment) -> None:
    assert 0.90 <= coverage(experiment, TRUTH if experiment.spread else 1.0, experiments=100) <= 0.99


@pytest.mark.parametrize(("repeats", "words"), [(1, "one repeat: "), (2, "two repeats: ")])
def test_fewer_than_three_repeats_are_stated_as_a_limitation(repeats: int, words: str) -> None:
    few = Experiment(repeats=repeats, run_noise=0.03, spread=False)
    assert coverage(few, 1.0, experiments=50) < 0.8
    compared = paired_speedup(SPEEDUP, few.pairs(1), seed=0)
    assert (compared.repeats, compared.p_value) == (repeats, None)
    assert compared.figure.interval is not None
    assert words in compared.figure.interval.method


@pytest.mark.draws
def test_intervals_are_not_too_wide() -> None:
    assert coverage(Experiment(repeats=1, prompts=40), TRUTH) <= 0.99
    low, high = bounds(paired_speedup(SPEEDUP, Experiment(repeats=1, prompts=40).pairs(1), seed=0))
    assert high / low < 1.25


@pytest.mark.draws
def test_claims_without_a_difference_are_rare() -> None:
    same = Experiment(spread=False, run_noise=0.03, jitter=0.05)
    claims = 0
    for seed in range(200):
        found = paired_speedup(SPEEDUP, same.pairs(seed), seed=0)
        low, high = bounds(found)
        assert found.p_value is not None
        assert (found.p_value < 0.05) == (not low <= 1 <= high)
        claims += not low <= 1 <= high
    assert claims <= 0.08 * 200


def test_noise_between_runs_widens_the_interval() -> None:
    quiet = paired_speedup(SPEEDUP, Experiment(spread=False).pairs(1), seed=0).figure.interval
    noisy = paired_speedup(SPEEDUP, Experiment(spread=False, run_noise=0.1).pairs(1), seed=0).figure.interval
    assert quiet is not None
    assert noisy is not None
    assert noisy.high - noisy.low > 2 * (quiet.high - quiet.low)
    assert noisy.method.startswith("t, unit: repeat")


def test_repeats_do_not_count_as_more_prompts() -> None:
    once = bounds(paired_speedup(SPEEDUP, Experiment(repeats=1, jitter=0.0).pairs(1), seed=0))
    often = bounds(paired_speedup(SPEEDUP, Experiment(repeats=8, jitter=0.0).pairs(1), seed=0))
    assert np.log(often[1] / often[0]) == pytest.approx(np.log(once[1] / once[0]), rel=0.1)


@pytest.mark.parametrize("prompts", [1, 2])
def test_one_or_two_prompts_give_no_interval(prompts: int) -> None:
    found = paired_speedup(SPEEDUP, Experiment(prompts=prompts).pairs(1), seed=0)
    assert found.figure.value is not None
    assert found.figure.interval is None
    assert found.p_value is None


def test_three_prompts_give_a_wide_interval() -> None:
    low, high = bounds(paired_speedup(SPEEDUP, Experiment(prompts=3).pairs(1), seed=0))
    assert high / low > 2


def test_interval_of_one_run_states_its_limitation() -> None:
    interval = paired_speedup(SPEEDUP, Experiment(repeats=1).pairs(1), seed=0).figure.interval
    assert interval is not None
    assert "but not that between runs" in interval.method


def test_interval_is_reproducible_and_hardly_depends_on_the_seed() -> None:
    pairs = Experiment().pairs(1)
    first, again, other = (bounds(paired_speedup(SPEEDUP, pairs, seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first == pytest.approx(other, rel=0.02)


def test_no_pairs_give_no_value_and_unpaired_turns_are_reported() -> None:
    pairs = Experiment().pairs(1)
    none = paired_speedup(SPEEDUP, pairs.among(np.zeros(len(pairs.rows), dtype=bool)), seed=0)
    assert none.figure.value is None
    assert none.figure.n == 0
    with_unpaired = paired_speedup(SPEEDUP, replace(pairs, candidates=50, unpaired_later=5), seed=0)
    assert "5 later turns unpaired" in with_unpaired.figure.definition
    assert "45 pairs" in with_unpaired.figure.definition


def test_pair_with_a_missing_time_is_left_out() -> None:
    pace = {ARM: np.array([np.nan, 1, 1, 1, 1, 1]), BASELINE: np.ones(6)}
    pairs = pairs_of(np.arange(6), np.zeros(6), pace, ["c"] * 6)
    assert paired_speedup(SPEEDUP, pairs, seed=0).figure.n == 5
