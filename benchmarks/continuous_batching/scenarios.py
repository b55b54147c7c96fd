"""Scenarios whose factor of lost reuse is known, because the same engine also serves them with nothing lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from continuous_batching.engine import EngineRequest, Loop, ServedRequest, StepCosts, serve
from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.outcome.reuse import Reuse, SplitMissing
from specbench_client.analysis.breakdown.reuse import reuse_of
from specbench_client.column_buffers import MemoryColumnStore
from specbench_client.metrics.pairing import Pairs, pair_requests
from specbench_client.metrics.rows import Rows, TextVocabulary, store_rows
from specbench_client.metrics.tidy_frame import iter_tidy, without_point_columns

NS_PER_MS = 1e6
BLOCK_TOKENS = 16
PREFIXES = (256, 768, 1536)
"""Lengths of the prefixes that prompts share, in tokens; each is cached from its second request on."""
TRUTH_RUNS = 5
"""Runs of which the truth is the mean, with other noise than the measured one and the same on both sides."""
DRAFTS = 3


@dataclass(frozen=True)
class Scenario:
    """`lost`: share of its hits that the arm loses. `own_tokens`, `answer_tokens`: ranges of lengths."""

    words: str
    costs: StepCosts = field(default_factory=StepCosts)
    streams: int = 8
    interval_ms: float = 0.0
    """Mean time between arrivals of an open loop; 0: a closed loop."""
    lost: float = 0.6
    prompts: int = 66
    """Steady ones, in each of `repeats`."""
    repeats: int = 3
    own_tokens: tuple[int, int] = (20, 200)
    answer_tokens: tuple[int, int] = (20, 160)
    acceptance: float = 0.65
    run_noise: float = 0.01


_PAUSES, _SHORT = StepCosts(pause_share=0.02, pause=10.0), (8, 8)
SCENARIOS: Mapping[str, Scenario] = {
    "plain": Scenario("8 streams, prompts computed in one step"),
    "one-stream": Scenario("one stream", streams=1),
    "many-streams": Scenario("32 streams", streams=32),
    "open-loop": Scenario("Poisson arrivals", interval_ms=70.0),
    "chunked": Scenario("at most 512 tokens a step", StepCosts(budget=512)),
    "chunked-busy": Scenario("the same, 24 streams", StepCosts(budget=512), streams=24),
    "pauses": Scenario("2 % of the steps take ten times as long", _PAUSES),
    "superlinear": Scenario("a token costs more the more are before it", StepCosts(token=0.02, depth=1.5e-5)),
    "eager": Scenario("a step that computes prompts takes 20 ms longer", StepCosts(eager=20.0)),
    "eager-open-loop": Scenario("the same, Poisson arrivals", StepCosts(eager=20.0), interval_ms=90.0),
    "exclusive": Scenario("requests that decode wait for prompts", StepCosts(exclusive=True)),
    "exclusive-busy": Scenario("the same, 24 streams", StepCosts(exclusive=True), streams=24),
    "exclusive-open-loop": Scenario("the same, Poisson arrivals", StepCosts(exclusive=True), interval_ms=70.0),
    "exclusive-chunked": Scenario("both", StepCosts(exclusive=True, budget=512)),
    "two-tokens": Scenario("answers of 2 tokens", answer_tokens=(2, 2)),
    "short": Scenario("answers of 8 tokens", answer_tokens=_SHORT),
    "short-chunked": Scenario("both", StepCosts(budget=512), answer_tokens=_SHORT),
}  # fmt: skip


@dataclass(frozen=True)
class SplitRun:
    """One run of a scenario: the estimate and the truth."""

    scenario: Scenario
    seed: int

    @cached_property
    def estimate(self) -> tuple[Reuse | None, SplitMissing | None]:
        """What the analysis finds in the records."""
        closed = not self.scenario.interval_ms
        return reuse_of(self._pairs, self._arm, self.seed, closed=closed)

    @cached_property
    def truth(self) -> float:
        """Σ E2E of the pairs' requests with nothing lost ÷ the same as they were, each the mean over noise."""
        sums = [0.0, 0.0]
        for number in range(TRUTH_RUNS):
            for side, lost in enumerate((0.0, self.scenario.lost)):
                for repeat in range(self.scenario.repeats):
                    served = self._serve(repeat, lost, drafting=True, noise=(1 + number, 1))
                    sums[side] += sum(each.e2e_ms for each in served[self._ramp : len(served) - self._ramp])
        return sums[0] / sums[1]

    @property
    def _ramp(self) -> int:
        """Requests at either end of a point that are not steady."""
        return self.scenario.streams

    @cached_property
    def _arm(self) -> Rows:
        return self._rows(drafting=True, lost=self.scenario.lost)

    @cached_property
    def _pairs(self) -> Pairs:
        return pair_requests(self._arm, self._rows(drafting=False, lost=0.0), None)

    def _rows(self, *, drafting: bool, lost: float) -> Rows:
        vocabularies: dict[str, TextVocabulary] = {}
        blocks = []
        for repeat in range(self.scenario.repeats):
            served = self._serve(repeat, lost, drafting=drafting, noise=(0, int(drafting)))
            frame = self._records(served, repeat, drafting=drafting)
            tidied = (without_point_columns(each) for each in iter_tidy([frame], f"point-{repeat}"))
            blocks += store_rows(tidied, f"point-{repeat}", MemoryColumnStore(), vocabularies)
        return Rows(blocks)

    def _serve(self, repeat: int, lost: float, *, drafting: bool, noise: tuple[int, int]) -> list[ServedRequest]:
        scenario, rng = self.scenario, np.random.default_rng((self.seed, repeat, *noise))
        requests, intervals = self._requests(lost, drafting=drafting), ()
        if scenario.interval_ms:
            arrivals = np.random.default_rng((self.seed, repeat))
            intervals = tuple(arrivals.exponential(scenario.interval_ms, len(requests)).tolist())
        pace = float(np.exp(rng.normal(0.0, scenario.run_noise)))
        names = ("base", "request", "context", "token", "depth", "eager")
        costs = StepCosts(**{**vars(scenario.costs), **{name: pace * getattr(scenario.costs, name) for name in names}})
        return serve(requests, costs, Loop(scenario.streams, intervals), int(rng.integers(1 << 31)))

    def _requests(self, lost: float, *, drafting: bool) -> list[EngineRequest]:
        """The same prompts and answers on every side and in every repeat, as with greedy decoding."""
        scenario, rng = self.scenario, np.random.default_rng(self.seed)
        seen, found = set[int](), []
        for _ in range(scenario.prompts + 2 * self._ramp):
            prefix = int(rng.choice(PREFIXES))
            prompt = prefix + int(rng.integers(*scenario.own_tokens))
            tokens = int(rng.integers(scenario.answer_tokens[0], scenario.answer_tokens[1] + 1))
            drawn = rng.random((tokens, DRAFTS)) < scenario.acceptance
            hit = prefix if prefix in seen else 0
            seen.add(prefix)
            kept = int(hit * (1 - lost)) // BLOCK_TOKENS * BLOCK_TOKENS
            found.append(EngineRequest(prompt, kept, _emitted(tokens - 1, drawn if drafting else drawn[:, :0])))
        return found

    def _records(self, served: Sequence[ServedRequest], repeat: int, *, drafting: bool) -> pd.DataFrame:
        ramp, names = self._ramp, list(Record.__dataclass_fields__)
        phases = np.full(len(served), RecordPhase.STEADY.value, dtype=object)
        phases[:ramp], phases[len(served) - ramp :] = RecordPhase.RAMP.value, RecordPhase.DRAIN.value
        rows = []
        for number, (each, phase) in enumerate(zip(served, phases, strict=True)):
            at = [round(chunk * NS_PER_MS) for chunk in each.chunks]
            tokens = [1, *each.request.emitted]
            begun = round(each.begun * NS_PER_MS)
            fields = dict.fromkeys(names) | {
                "request_id": f"{repeat}-{number}", "prompt_id": f"p{number}", "conversation_id": f"p{number}#0",
                "turn": 0, "repeat": repeat, "phase": phase, "stream_index": each.stream, "intended_ns": begun,
                "connect_ns": begun, "sent_ns": begun, "first_byte_ns": at[0], "first_token_ns": at[0],
                "last_token_ns": at[-1], "chunk_ns": at, "chunk_tokens": tokens, "chunk_coalesced": [False] * len(at),
                "timestamp_source": "kernel", "input_tokens": each.request.prompt, "output_tokens": sum(tokens),
                "output_tokens_client": sum(tokens), "steps": len(at) - 1, "cached_tokens": each.request.cached,
                "finish_reason": "stop", "output_sha256": f"{number}", "judged": False,
            }  # fmt: skip
            if drafting:
                accepted = [emitted - 1 for emitted in each.request.emitted]
                fields |= {"step_accepted": accepted, "acceptance_source": "per_step", "draft_steps": len(accepted)}
                fields |= {"drafted_tokens": DRAFTS * len(accepted), "accepted_tokens": sum(accepted)}
            rows.append([fields[name] for name in names])
        return pd.DataFrame(rows, columns=names, dtype=object)


def _emitted(tokens: int, drawn: np.ndarray) -> tuple[int, ...]:
    """The tokens of each step of an answer: accepted drafts, `drawn` with the shape (steps, drafts), and one more."""
    emitted: list[int] = []
    for accepted in drawn:
        if tokens <= 0:
            break
        emitted.append(min(int(np.cumprod(accepted).sum()) + 1, tokens))
        tokens -= emitted[-1]
    return tuple(emitted)
