"""The engine's counters and histograms, independent of any product; a dialect names them.

Counts follow vLLM's semantics: a draft is a step that had draft tokens, and accepted tokens are counted before the last
step is cut. Times are seconds of the real clock, as in a scrape.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial

from specbench_client.openai_server_formats import Histogram
from specbench_client.simulator.batch import BatchStep
from specbench_client.simulator.speculation import StepOutcome

# vLLM's own bucket bounds.
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5,
    7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)


@dataclass(slots=True)
class SimulatorCounters:
    """Totals since ``created_s`` (wall clock); ``accepted_by_position`` is None without a drafter."""

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


MAX_STORED_ITERATIONS = 1000
"""Maximum number of steps stored until they are read; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class IterationStats:
    """Statistics of one step. ``correct``: accepted draft tokens; ``kept``: those that are part of the output."""

    number: int
    duration_ms: float
    prefilling: int
    decoding: int
    waiting: int
    prefill_tokens: int
    kv_tokens: int
    drafting: int
    drafted: int
    correct: int
    kept: int


class IterationStatsBuffer:
    """Stores the last steps until they are read."""

    def __init__(self) -> None:
        self._stored: deque[IterationStats] = deque(maxlen=MAX_STORED_ITERATIONS)
        self._count = 0

    def add(self, step: BatchStep, *, waiting: int) -> None:
        """Store the step that has just ended."""
        self._count += 1
        outcomes = [outcome for _, outcome in step.outcomes]
        drafting = [one for one in outcomes if one.drafted]
        prefilling = sum(one.prefill for one in outcomes)
        self._stored.append(
            IterationStats(
                number=self._count,
                duration_ms=step.duration_ms,
                prefilling=prefilling,
                decoding=len(outcomes) - prefilling,
                waiting=waiting,
                prefill_tokens=step.load.prefill_tokens,
                kv_tokens=step.load.kv_tokens,
                drafting=len(drafting),
                drafted=sum(one.drafted for one in drafting),
                correct=sum(one.accepted for one in drafting),
                kept=sum(one.delivered_accepted for one in drafting),
            )
        )

    def window(self, length: int) -> list[IterationStats]:
        """Return the last complete window of ``length`` steps; empty before there is one."""
        beyond = self._count % length
        stored = list(self._stored)
        return stored[-beyond - length : len(stored) - beyond] if self._count >= length else []

    def drain(self) -> list[IterationStats]:
        """Return the stored steps and remove them."""
        stored = list(self._stored)
        self._stored.clear()
        return stored
