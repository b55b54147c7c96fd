"""Simulates continuous batching: which requests a step serves and how long it takes. Pure, without a clock.

A step serves all running requests, at most ``max_num_seqs``; the others wait in order of arrival. An admitted request
is prefilled in the same step in which the others decode, and gets its first token at the end of the step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specbench_client.simulator.speculation import DraftVerifyProcess, StepOutcome
from specbench_client.simulator.step_cost import SimulatedStepCost, StepLoad


@dataclass(slots=True, eq=False)
class ScheduledRequest:
    """A request in the batch. ``prefill_tokens``: prompt tokens to compute, which are those not cached."""

    prompt_tokens: int
    prefill_tokens: int
    generation: DraftVerifyProcess

    @property
    def kv_tokens(self) -> int:
        """Number of tokens whose keys and values a decode step reads."""
        return self.prompt_tokens + self.generation.produced


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One step: its work, its duration, and its outcome for each request."""

    load: StepLoad
    duration_ms: float
    admitted: tuple[ScheduledRequest, ...]
    outcomes: tuple[tuple[ScheduledRequest, StepOutcome], ...]


class ContinuousBatch:
    """The running and waiting requests."""

    def __init__(self, max_num_seqs: int, cost: SimulatedStepCost, slowdown: Callable[[float], float]) -> None:
        self._max_num_seqs = max_num_seqs
        self._cost = cost
        self._slowdown = slowdown
        self._running: list[ScheduledRequest] = []
        self._waiting: deque[ScheduledRequest] = deque()
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

    def add(self, sequence: ScheduledRequest) -> None:
        self._waiting.append(sequence)

    def drop(self, sequence: ScheduledRequest) -> None:
        """Remove a request if it is there; its client may have left after the last token."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence in self._running:
            self._running.remove(sequence)

    def step(self) -> BatchStep:
        """Admit requests and compute one step with its duration; finished requests stay until ``retire``."""
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
        return BatchStep(load, duration_ms, admitted, outcomes)

    def retire(self) -> None:
        """Remove the requests that have their last token."""
        self._running = [one for one in self._running if not one.generation.finished]

    def _admit(self) -> tuple[ScheduledRequest, ...]:
        admitted = []
        while self._waiting and len(self._running) < self._max_num_seqs:
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            admitted.append(sequence)
        return tuple(admitted)
