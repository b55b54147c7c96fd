"""What the engine counts, in no engine's words; a dialect gives them names.

Counts follow vLLM's semantics: a draft is a step that had drafts, and accepted drafts are counted before the last
step is cut. Time is in seconds of the real clock, as a scrape would see it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from specbench_client.simulator.process import StepOutcome

# vLLM's own bucket bounds.
FIRST_TOKEN_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)


@dataclass(slots=True)
class Histogram:
    """Observations in buckets; ``counts`` has one entry more than ``bounds``, for what lies above the last."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Counters:
    """Totals since ``created_s`` (wall clock); ``accepted_by_position`` is None where nothing speculates."""

    created_s: float
    accepted_by_position: list[int] | None = None
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    first_token_s: Histogram = field(default_factory=partial(Histogram, FIRST_TOKEN_S))
    between_steps_s: Histogram = field(default_factory=partial(Histogram, TOKEN_S))
    per_token_s: Histogram = field(default_factory=partial(Histogram, TOKEN_S))
    request_s: Histogram = field(default_factory=partial(Histogram, REQUEST_S))
    queue_s: Histogram = field(default_factory=partial(Histogram, REQUEST_S))
    step_tokens: Histogram = field(default_factory=partial(Histogram, STEP_TOKENS))
    request_prompt_tokens: Histogram = field(default_factory=partial(Histogram, REQUEST_TOKENS))
    request_output_tokens: Histogram = field(default_factory=partial(Histogram, REQUEST_TOKENS))

    def admitted(self, prompt_tokens: int, cached_tokens: int) -> None:
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def stepped(self, outcome: StepOutcome) -> None:
        self.output_tokens += outcome.tokens
        if not outcome.drafted or self.accepted_by_position is None:
            return
        self.drafts += 1
        self.drafted += outcome.drafted
        self.accepted += outcome.accepted
        for position in range(outcome.accepted):
            self.accepted_by_position[position] += 1
