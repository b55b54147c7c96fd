"""The simulator's pure core in virtual time: a closed loop against its batch, and the records of a client.

No clock, no socket: the step costs are exactly those configured, so that the results of an estimator can be compared
with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pandas as pd

from specbench_api.plan.plan import Point
from specbench_client.documents.record import Record, RecordPhase
from specbench_client.simulator.batch import ContinuousBatch, ScheduledRequest
from specbench_client.simulator.speculation import DraftVerifyProcess, SimulatedDrafter, SimulatedMethod
from specbench_client.simulator.step_cost import SimulatedStepCost
from specbench_testing.synthetic_records import SyntheticRun, frame_of

NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class VirtualEngine:
    """One launch: its costs, its acceptance, and its traffic."""

    cost: SimulatedStepCost = field(default_factory=SimulatedStepCost)
    conditional: tuple[float, ...] = (0.8, 0.7, 0.6, 0.5, 0.4, 0.4, 0.4, 0.4)
    input_tokens: tuple[int, int] = (100, 300)
    output_tokens: tuple[int, int] = (40, 120)
    requests_per_stream: int = 12
    seed: int = 1

    def records(self, streams: int, draft_tokens: int, repeat: int = 0) -> pd.DataFrame:
        """The records of a closed loop with these streams; steady once all have been served."""
        return frame_of(_Loop(self, streams, draft_tokens, repeat).records())


@dataclass
class _Loop:
    engine: VirtualEngine
    streams: int
    draft_tokens: int
    repeat: int

    def __post_init__(self) -> None:
        method = SimulatedMethod.EAGLE3 if self.draft_tokens else SimulatedMethod.NONE
        self.drafter = SimulatedDrafter(method, self.draft_tokens, 1.0 if self.draft_tokens else 0.0)
        self.batch = ContinuousBatch(4096, self.engine.cost, lambda _: 1.0)
        self.now_ms, self.sent = 0.0, 0
        self.flights: dict[ScheduledRequest, _InFlight] = {}

    def records(self) -> list[Record]:
        total = self.streams * self.engine.requests_per_stream
        found: list[Record] = []
        for stream in range(self.streams):
            self._send(stream)
        while self.flights:
            step = self.batch.step()
            self.now_ms += step.duration_ms
            for sequence, outcome in step.outcomes:
                flight = self.flights[sequence]
                flight.arrived.append((self.now_ms, outcome.tokens))
                if not outcome.prefill:
                    flight.accepted.append(outcome.delivered_accepted)
                    flight.drafted += outcome.drafted
                if sequence.generation.finished:
                    last = self.sent >= total
                    found.append(self._record(self.flights.pop(sequence), drain=last))
                    if not last:
                        self._send(flight.stream)
            self.batch.retire()
        return found

    def _send(self, stream: int) -> None:
        engine, number = self.engine, self.sent
        rng = Random(f"{engine.seed}/{number}")
        prompt, answer = rng.randint(*engine.input_tokens), rng.randint(*engine.output_tokens)
        accept = Random(f"{engine.seed}/{number}/{self.draft_tokens}/{self.repeat}")
        generation = DraftVerifyProcess(answer, self.drafter, engine.conditional, accept)
        sequence = ScheduledRequest(prompt, prompt, generation)
        self.flights[sequence] = _InFlight(number, stream, self.now_ms, prompt)
        self.batch.add(sequence)
        self.sent += 1

    def _record(self, flight: _InFlight, *, drain: bool) -> Record:
        at = [int(ms * NS_PER_MS) for ms, _ in flight.arrived]
        begun, drafting = int(flight.begun_ms * NS_PER_MS), self.draft_tokens > 0
        phase = RecordPhase.DRAIN if drain else RecordPhase.RAMP if flight.number < self.streams else RecordPhase.STEADY
        tokens = sum(count for _, count in flight.arrived)
        return Record(
            request_id=f"{flight.number}", prompt_id=f"p{flight.number}", category=f"c{flight.number % 2}",
            conversation_id=f"{self.repeat}-{flight.number}", turn=0, repeat=self.repeat, phase=phase.value,
            stream_index=flight.stream, intended_ns=begun, connect_ns=begun, sent_ns=begun, first_byte_ns=at[0],
            first_token_ns=at[0], last_token_ns=at[-1], chunk_ns=at,
            chunk_tokens=[count for _, count in flight.arrived], chunk_coalesced=[False] * len(at),
            timestamp_source="kernel",
            input_tokens=flight.prompt, output_tokens=tokens,
            output_tokens_client=tokens, steps=len(flight.accepted),
            draft_steps=len(flight.accepted) if drafting else None, drafted_tokens=flight.drafted if drafting else None,
            accepted_tokens=sum(flight.accepted) if drafting else None,
            step_accepted=flight.accepted if drafting else None,
            acceptance_source="per_step" if drafting else None, cached_tokens=0, finish_reason="stop",
            error_class=None, error=None, output_sha256=f"{flight.number}",
        )  # fmt: skip


@dataclass
class _InFlight:
    """A request in flight."""

    number: int
    stream: int
    begun_ms: float
    prompt: int
    arrived: list[tuple[float, int]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    drafted: int = 0


@dataclass(frozen=True)
class VirtualWorld(SyntheticRun):
    """A world whose points are served by the simulator's pure core, so that the expected results are known."""

    engine: VirtualEngine = field(default_factory=VirtualEngine)

    def records(self, point: Point) -> pd.DataFrame:
        """All records of one point."""
        if point.hash not in self._made:
            drafter = self.plan.arm(point.arm).drafter
            draft_tokens = drafter.num_speculative_tokens if drafter else 0
            self._made[point.hash] = self.engine.records(point.level.concurrency or 1, draft_tokens, point.repeat)
        return self._made[point.hash].copy()
