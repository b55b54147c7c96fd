"""Runs the simulated batch in real time with asyncio and delivers each request's tokens when they are due.

Steps follow an absolute schedule, end of step n = end of step n-1 + its duration, so that a late wake-up (the event
loop's timers have a resolution of a millisecond) delays only one step's delivery. If the machine is more than a second
behind, the schedule restarts with a warning, because catching up would deliver tokens faster than the cost model
allows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from specbench_client.openai_server_formats import Histogram, RejectedBody, RequestTiming, ServedCounters
from specbench_client.simulator.batch import BatchStep, ContinuousBatch, ScheduledRequest
from specbench_client.simulator.config import PromptCategories, SimulatorConfig
from specbench_client.simulator.faults import AnswerCircumstances
from specbench_client.simulator.generated_text import (
    GeneratedText,
    generate_text,
    message_words,
    prescribe,
)
from specbench_client.simulator.prefix_cache import PrefixCache
from specbench_client.simulator.requests import SimulatedRequest
from specbench_client.simulator.speculation import DraftVerifyProcess, StepOutcome

RESCHEDULE_BEHIND_NS = 1_000_000_000
# vLLM's own bucket bounds.
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5,
    7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)


@dataclass(slots=True)
class SimulatorCounters(ServedCounters):
    """The counters, which a dialect names, and the latencies in seconds of the real clock."""

    first_token_s: Histogram = field(default_factory=partial(Histogram, FIRST_TOKEN_S))
    per_token_s: Histogram = field(default_factory=partial(Histogram, TOKEN_S))


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The tokens that one step produced for one request."""

    outcome: StepOutcome
    words: tuple[str, ...]
    last: bool


class TokenStream:
    """One request inside the engine; iterate over it for the outputs of its steps."""

    def __init__(self, ask: SimulatedRequest, answer: GeneratedText, category: str, sequence: ScheduledRequest) -> None:
        self.ask = ask
        self.answer = answer
        self.category = category
        self.sequence = sequence
        self.timing = RequestTiming(ask.received_ns)
        self.pieces: asyncio.Queue[StepOutput] = asyncio.Queue()

    @property
    def cached_tokens(self) -> int:
        return self.sequence.prompt_tokens - self.sequence.prefill_tokens

    async def __aiter__(self) -> AsyncIterator[StepOutput]:
        while True:
            piece = await self.pieces.get()
            yield piece
            if piece.last:
                return


class SimulatedEngine:
    """One simulated engine. ``clock`` returns monotonic ns; ``run`` must be running to produce tokens."""

    def __init__(
        self,
        config: SimulatorConfig,
        categories: PromptCategories | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self.clock = clock
        self.drafter = config.faults.drafter(config.drafter)
        self._categories = categories or PromptCategories()
        self.batch = ContinuousBatch(config.max_num_seqs, config.cost, config.faults.slowdown)
        self._streams: dict[ScheduledRequest, TokenStream] = {}
        self._work = asyncio.Event()
        self._arrived = 0
        self._answered: set[str] = set()
        self.prefix_cache = PrefixCache(config.prefix_cache_tokens)
        self.counters = self._fresh_counters()

    def restart_counters(self) -> None:
        """Restart all counters at 0, like an engine that was restarted without the client's knowledge."""
        self.counters = self._fresh_counters()

    def submit(self, ask: SimulatedRequest) -> TokenStream:
        """Queue a request. Raises RejectedBody if it exceeds the context length."""
        room = self._room(ask)
        cached = self._cached_tokens(ask)
        answer = self._answer(ask, ask.max_tokens or room, cached)
        category = self._categories.of(ask.prompt.texts)
        conditional = self._conditional(answer, category)
        rng = Random(f"accept:{answer.identity}:{self.drafter.method}")  # noqa: S311 -- a simulation
        generation = DraftVerifyProcess(len(answer.words), self.drafter, conditional, rng)
        sequence = ScheduledRequest(ask.prompt.tokens, ask.prompt.tokens - cached, generation)
        stream = TokenStream(ask, answer, category, sequence)
        self._streams[sequence] = stream
        self.batch.add(sequence)
        self._work.set()
        return stream

    def cancel(self, stream: TokenStream) -> None:
        """Drop a request whose client has disconnected; does nothing if it is already finished."""
        if self._streams.pop(stream.sequence, None) is not None:
            self.batch.drop(stream.sequence)
            self.counters.finished["abort"] += 1

    async def run(self) -> None:
        """Run steps forever."""
        due_ns = self.clock()
        while True:
            if self.batch.idle:
                self._work.clear()
                await self._work.wait()
                due_ns = self.clock()
            step = self.batch.step()
            self._schedule(step)
            due_ns = self._restart_schedule_if_late(due_ns + int(step.duration_ms * 1e6 * self.config.time_scale))
            await asyncio.sleep(max(0.0, (due_ns - self.clock()) / 1e9))
            self._deliver(step)
            self.batch.retire()

    def _restart_schedule_if_late(self, due_ns: int) -> int:
        now_ns = self.clock()
        if not self.config.time_scale:
            return now_ns
        if now_ns - due_ns > RESCHEDULE_BEHIND_NS:
            _log.warning(
                "simulator: %.1f s behind schedule: this machine is too slow for the load", (now_ns - due_ns) / 1e9
            )
            return now_ns
        return due_ns

    def _conditional(self, answer: GeneratedText, category: str) -> tuple[float, ...]:
        conditional = self.config.acceptance.positions(category, self.drafter.num_speculative_tokens)
        repeated = answer.identity in self._answered
        self._answered.add(answer.identity)
        faults, caches = self.config.faults, bool(self.config.prefix_cache_tokens)
        return faults.decayed(
            faults.acceptance(conditional, repeated=repeated), self.batch.engine_ms / 1000, caches=caches
        )

    def _cached_tokens(self, ask: SimulatedRequest) -> int:
        faults, speculates = self.config.faults, self.config.drafter.speculates
        hit = faults.reused_tokens(self.prefix_cache.cached_tokens(ask.prompt.words), speculates=speculates)
        return faults.cached_tokens(ask.prompt.tokens) or hit

    def _room(self, ask: SimulatedRequest) -> int:
        """Return the number of tokens that the answer may have. Raises RejectedBody if they are too few."""
        room = self.config.max_model_len - ask.prompt.tokens
        if room < 1 or (ask.max_tokens or 0) > room:
            raise RejectedBody(
                f"This model's maximum context length is {self.config.max_model_len} tokens. However, you requested "
                f"{ask.max_tokens or 1} output tokens and your prompt contains {ask.prompt.tokens} input tokens. "
                "Please reduce the length of the input prompt or the number of requested output tokens.",
                param="max_tokens" if room > 0 else "input_tokens",
            )
        return room

    def _answer(self, ask: SimulatedRequest, max_tokens: int, cached_tokens: int) -> GeneratedText:
        self._arrived += 1
        greedy = self.config.faults.temperature(ask.temperature) == 0
        sample = None if greedy else f"{ask.seed if ask.seed is not None else f'#{self._arrived}'}"
        answer = generate_text(
            ask.model,
            ask.prompt.identity,
            max_tokens,
            min_tokens=ask.min_tokens,
            ignore_eos=ask.ignore_eos,
            sample=sample,
            seed=self.config.seed,
            mean_tokens=self.config.output_mean_tokens,
        )
        answer = prescribe(answer, ask.form, ask.prompt.texts, max_tokens)
        circumstances = AnswerCircumstances(
            max_tokens,
            draft_tokens=self.config.drafter.num_speculative_tokens,
            running=self.batch.running + self.batch.waiting + 1,
            restored_tokens=cached_tokens,
            is_document=ask.form.schema is not None and ask.form.tool is None,
            is_tool_call=ask.form.tool is not None,
        )
        return self.config.faults.rewrite(answer, circumstances)

    def _schedule(self, step: BatchStep) -> None:
        now_ns = self.clock()
        for sequence in step.admitted:
            stream = self._streams[sequence]
            stream.timing.scheduled_ns = now_ns
            self.counters.admitted(sequence.prompt_tokens, stream.cached_tokens)

    def _deliver(self, step: BatchStep) -> None:
        now_ns = self.clock()
        for sequence, outcome in step.outcomes:
            stream = self._streams.get(sequence)
            if stream is None:  # the client disconnected during the step
                continue
            self._stamp(stream, outcome, now_ns)
            end = sequence.generation.produced
            last = sequence.generation.finished
            stream.pieces.put_nowait(StepOutput(outcome, stream.answer.words[end - outcome.tokens : end], last))
            if last:
                del self._streams[sequence]
                self._count_finished(stream)

    def _stamp(self, stream: TokenStream, outcome: StepOutcome, now_ns: int) -> None:
        """Record the step in the counters and in the request's timing."""
        self.counters.stepped(outcome.tokens, outcome.drafted, outcome.accepted)
        timing = stream.timing
        if timing.last_ns is None:
            self.prefix_cache.add(stream.ask.prompt.words)
            self.counters.first_token_s.observe((now_ns - timing.received_ns) / 1e9)
            timing.first_ns = now_ns
        timing.last_ns = now_ns

    def _count_finished(self, stream: TokenStream) -> None:
        timing, tokens = stream.timing, len(stream.answer.words)
        self.prefix_cache.add((*stream.ask.prompt.words, *message_words("assistant", " ".join(stream.answer.words))))
        first_ns, last_ns = timing.first_ns or 0, timing.last_ns or 0
        self.counters.finished[stream.answer.finish_reason] += 1
        if tokens > 1:
            self.counters.per_token_s.observe((last_ns - first_ns) / 1e9 / (tokens - 1))

    def _fresh_counters(self) -> SimulatorCounters:
        drafter = self.config.drafter
        positions = [0] * drafter.num_speculative_tokens if drafter.speculates else None
        return SimulatorCounters(created_s=time.time(), accepted_by_position=positions)
