"""A speed-up over load with a known truth: its logarithm is linear between the loads, and so is its crossing of 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from specbench_client.analysis.curves.crossover import MeasuredPlace
from specbench_client.analysis.estimates.speedups import SPEEDUP, paired_speedup
from specbench_client.analysis.statistics.effects import Effect
from specbench_client.metrics.pairing import Pairs
from specbench_testing.tables import pairs_of_frame

TOKENS = 50
BASE_MS = 10.0


@dataclass(frozen=True)
class SpeedupExperiment:
    """Prompts keep their pace at every load; a launch is fast or slow at all its loads.

    `speedups`: the true speed-up of the prompts' population by load. `spread`: of the prompts' log speed-ups.
    `launch_noise`: noise that a repeat shares between all loads; `run_noise`: noise of a repeat at each load.
    """

    speedups: dict[float, float]
    prompts: int = 20
    repeats: int = 3
    spread: float = 0.1
    launch_noise: float = 0.0
    run_noise: float = 0.01
    jitter: float = 0.02

    def measured_places(self, seed: int) -> list[MeasuredPlace]:
        """One experiment with newly drawn prompts."""
        rng = np.random.default_rng(seed)
        character = rng.normal(0, self.spread, self.prompts)
        launches = rng.normal(0, self.launch_noise, self.repeats) if self.launch_noise else np.zeros(self.repeats)
        return [
            MeasuredPlace(load, self._effect(rng, np.log(true), character, launches))
            for load, true in self.speedups.items()
        ]

    def _effect(self, rng: np.random.Generator, true: float, character: np.ndarray, launches: np.ndarray) -> Effect:
        """Times are divided by the speed-up, and their mean over prompts by the population's speed-up."""
        prompt = np.tile(np.arange(self.prompts), self.repeats)
        repeat = np.repeat(np.arange(self.repeats), self.prompts)
        runs = launches + rng.normal(0, self.run_noise, self.repeats)
        noise = rng.normal(0, self.jitter, (2, prompt.size))
        middle = self.spread**2 / 2  # of exp(−character): the mean time of the population equals the truth
        base = BASE_MS * np.exp(noise[0])
        arm = BASE_MS * np.exp(noise[1] - true - character[prompt] - middle + runs[repeat])
        found = paired_speedup(SPEEDUP, pairs_of(prompt, repeat, {"baseline": base, "arm": arm}), seed=0).effect
        assert found is not None
        return found


def pairs_of(prompt: np.ndarray, repeat: np.ndarray, pace_ms: dict[str, np.ndarray]) -> Pairs:
    """Pairs of one turn each; pace in ms per token."""
    names = np.array([f"p{each}" for each in prompt], dtype=object)
    columns: dict[str, object] = {"repeat": repeat.astype(float), "prompt_id": names, "turn": 0.0}
    for side, ms in pace_ms.items():
        values = {"category": "c", "input_tokens": 100.0, "tokens": float(TOKENS), "steps": float(TOKENS - 1)}
        values |= {
            "timing_fault": 0,
            "intended_ns": 0.0,
            "first_token_ns": ms * 1e6,
            "last_token_ns": ms * 1e6 * TOKENS,
        }
        values |= {"finish_reason": "stop", "output_sha256": "x"}
        columns |= {f"{name}_{side}": value for name, value in values.items()}
    return pairs_of_frame(pd.DataFrame(columns))
