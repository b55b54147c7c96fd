"""Continuous batching: which requests a step serves and how long it takes; pure, no clock.

A step serves everything that runs, at most ``max_num_seqs``; the rest waits in order of arrival. A request that is
admitted is prefilled in the same step in which the others decode, and has its first token at the step's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specbench_client.simulator.config import StepCost, StepLoad
from specbench_client.simulator.process import Generation, StepOutcome


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the batch. ``prefill_tokens`` are the prompt tokens to compute: those not cached."""

    prompt_tokens: int
    prefill_tokens: int
    generation: Generation

    @property
    def kv_tokens(self) -> int:
        """Tokens whose keys and values a decode step reads."""
        return self.prompt_tokens + self.generation.produced


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it computed, how long it takes, and what it gives to each request at its end."""

    load: StepLoad
    duration_ms: float
    admitted: tuple[Sequence, ...]
    outcomes: tuple[tuple[Sequence, StepOutcome], ...]


class Batch:
    """Requests running and waiting."""

    def __init__(self, max_num_seqs: int, cost: StepCost, slowdown: Callable[[float], float]) -> None:
        self._max_num_seqs = max_num_seqs
        self._cost = cost
        self._slowdown = slowdown
        self._running: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()
        self.engine_ms = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv_tokens(self) -> int:
        return sum(one.kv_tokens for one in self._running)

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def drop(self, sequence: Sequence) -> None:
        """Forget a request, wherever it is; one already gone is no error: its client left at its last token."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence in self._running:
            self._running.remove(sequence)

    def step(self) -> Step:
        """Admit, compute one step, and say how long it takes; finished requests stay until ``retire``."""
        admitted = self._admit()
        decoding = [one for one in self._running if one.generation.produced]
        kv_tokens = sum(one.kv_tokens for one in decoding)
        outcomes = tuple((one, one.generation.advance()) for one in self._running)
        verified = [outcome for _, outcome in outcomes if not outcome.prefill]
        load = StepLoad(
            batch_tokens=sum(outcome.drafted + 1 for outcome in verified),
            kv_tokens=kv_tokens,
            draft_depth=max((outcome.drafted for outcome in verified), default=0),
            prefill_tokens=sum(one.prefill_tokens for one in admitted),
        )
        duration_ms = self._cost.milliseconds(load) * self._slowdown(self.engine_ms / 1000)
        self.engine_ms += duration_ms
        return Step(load, duration_ms, admitted, outcomes)

    def retire(self) -> None:
        """Let go of the requests that have their last token."""
        self._running = [one for one in self._running if not one.generation.finished]

    def _admit(self) -> tuple[Sequence, ...]:
        admitted = []
        while self._waiting and len(self._running) < self._max_num_seqs:
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            admitted.append(sequence)
        return tuple(admitted)
