"""A two-level experiment: prompts drawn from a population, and repeats that are faster or slower as a whole.

The population contains prompts of four categories; each prompt has its own length, acceptance rate and prefill time. An
experiment samples prompts and sends the same ones to each arm in every repeat. Request noise is sampled per request;
run noise is one factor for all requests of an arm in a repeat. With greedy decoding a prompt has the same steps in
every repeat, but not the same times. Above temperature 0 each answer has its own length and steps, on either arm.

True values are those of the population over many runs. They have no closed form because lengths and acceptances are
clipped, so they are computed from `POPULATION` prompts, each in its own run. Their error is a hundredth of an
interval's width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specbench_client.metrics.rows import Table, join_tables
from specbench_client.numpy_columns import TextCodes

Values = NDArray[np.float64]

CATEGORIES = ("code", "chat", "math", "news")
ALPHAS = (0.75, 0.55, 0.7, 0.5)
"""Centre of the conditional acceptance probability of a draft token, by category."""
POPULATION = 400_000
NS_PER_MS = 1e6
MOST_STEPS = 400


@dataclass(frozen=True)
class Experiment:
    """`run_noise`: standard deviation of the log of a run's factor; `request_noise`: of the log of a request's.

    `length_noise`: of the log of an answer's length around that of its prompt; 0: greedy decoding.
    """

    prompts: int = 20
    repeats: int = 3
    run_noise: float = 0.02
    request_noise: float = 0.05
    length_noise: float = 0.0
    drafts: int = 3
    base_step_ms: float = 10.0
    arm_step_ms: float = 13.0
    population_size: int = POPULATION

    @property
    def name(self) -> str:
        """The experiment's name in tables."""
        text = f"{self.prompts} prompts, {self.repeats} repeats, run noise {self.run_noise:.1%}"
        if self.request_noise != Experiment.request_noise:
            text += f", request noise {self.request_noise:.0%}"
        return text + (f", length noise {self.length_noise:.0%}" if self.length_noise else "")

    def arms(self, seed: int) -> tuple[Table, Table]:
        """Tidy rows of the arm with a drafter, and of its baseline."""
        rng = np.random.default_rng((seed, self.prompts, self.repeats, round(self.run_noise * 1e4)))
        sample = _PromptSample.drawn(rng, self.prompts, self.drafts)
        return self._rows(rng, sample, drafting=True), self._rows(rng, sample, drafting=False)

    def population(self) -> tuple[Table, Table]:
        """The same rows for very many prompts, each in its own run."""
        rng = np.random.default_rng((0, 0xA11))
        parts = [_PromptSample.drawn(rng, self.population_size // 20, self.drafts) for _ in range(20)]
        sides = [
            [self._times(rng, sample, drafting=drafting, runs=self._factors(rng, sample.size)) for sample in parts]
            for drafting in (True, False)
        ]
        arm, baseline = (join_tables(side) for side in sides)
        return arm, baseline

    def _rows(self, rng: np.random.Generator, sample: _PromptSample, *, drafting: bool) -> Table:
        factors = self._factors(rng, self.repeats)
        parts = [
            self._times(rng, sample, drafting=drafting, runs=np.full(sample.size, factors[repeat])).assign(
                repeat=np.full(sample.size, float(repeat))
            )
            for repeat in range(self.repeats)
        ]
        return join_tables(parts)

    def _factors(self, rng: np.random.Generator, runs: int) -> Values:
        return np.exp(rng.normal(0.0, self.run_noise, runs))

    def _times(self, rng: np.random.Generator, sample: _PromptSample, *, drafting: bool, runs: Values) -> Table:
        """One pass over the prompts. `runs`: the factor of each request's run."""
        noise = np.exp(rng.normal(0.0, self.request_noise, (2, sample.size)))
        tokens, drafted_steps = sample.answers(rng, self.length_noise, self.drafts)
        steps = drafted_steps if drafting else tokens - 1
        prefill = sample.prefill_ms * noise[0] * runs * NS_PER_MS
        flow = steps * (self.arm_step_ms if drafting else self.base_step_ms) * noise[1] * runs * NS_PER_MS
        draft_steps = steps if drafting else np.full(sample.size, np.nan)
        zero = np.zeros(sample.size)
        return Table({
            "repeat": zero, "prompt_id": TextCodes.of(sample.names), "category": TextCodes.of(sample.categories),
            "turn": zero, "timing_fault": zero, "intended_ns": zero, "sent_ns": zero, "first_token_ns": prefill,
            "last_token_ns": prefill + flow, "input_tokens": zero + 100.0, "cached_tokens": zero, "tokens": tokens,
            "steps": steps, "draft_steps": draft_steps, "drafted_tokens": draft_steps * self.drafts,
            "accepted_tokens": tokens - 1 - steps if drafting else draft_steps,
            "acceptance_source": TextCodes.of(["per_step"] * sample.size),
        })  # fmt: skip


@dataclass(frozen=True)
class _PromptSample:
    """Sampled prompts with their true values: tokens, acceptance probability, steps with the drafter, prefill time."""

    names: list[str]
    categories: list[str]
    tokens: Values
    alphas: Values
    steps: Values
    prefill_ms: Values

    @property
    def size(self) -> int:
        return len(self.names)

    @classmethod
    def drawn(cls, rng: np.random.Generator, prompts: int, drafts: int) -> _PromptSample:
        kind = np.arange(prompts) % len(CATEGORIES)
        tokens = _whole(np.exp(rng.normal(np.log(80), 0.5, prompts)))
        alphas = np.asarray(np.clip(np.array(ALPHAS)[kind] + rng.normal(0, 0.08, prompts), 0.05, 0.95))
        prefill = np.exp(rng.normal(np.log(40), 0.4, prompts))
        categories = [CATEGORIES[each] for each in kind]
        steps = _steps(rng, tokens - 1, alphas, drafts)
        return cls([f"p{each}" for each in range(prompts)], categories, tokens, alphas, steps, prefill)

    def answers(self, rng: np.random.Generator, length_noise: float, drafts: int) -> tuple[Values, Values]:
        """Tokens and steps of one answer to each prompt; the same for every call if `length_noise` is 0."""
        if not length_noise:
            return self.tokens, self.steps
        tokens = _whole(self.tokens * np.exp(rng.normal(0.0, length_noise, self.size)))
        return tokens, _steps(rng, tokens - 1, self.alphas, drafts)


def _whole(lengths: Values) -> Values:
    """Round and clip lengths to valid numbers of tokens."""
    return np.asarray(np.clip(np.round(lengths), 8, MOST_STEPS), dtype=np.float64)


def _steps(rng: np.random.Generator, later: Values, alphas: Values, drafts: int) -> Values:
    """Steps to generate the later tokens: each step emits its accepted drafts plus one token."""
    tried = rng.random((later.size, MOST_STEPS, drafts), dtype=np.float32) < alphas[:, np.newaxis, np.newaxis]
    emitted = np.cumsum(np.cumprod(tried, axis=2, dtype=np.int32).sum(axis=2) + 1, axis=1)
    return np.asarray((emitted < later[:, np.newaxis]).sum(axis=1) + 1, dtype=np.float64)
