"""The asyncio driver: runs the batch against a clock and hands each request its tokens when they are due.

Steps follow an absolute schedule, end of step n = end of step n-1 + its duration: a late wake-up (the event loop's
timers are a millisecond coarse) delays one step's delivery and not all that follow. Only where the machine is a whole
second behind is the schedule given up, and said so, since catching up would hand out tokens faster than the cost
model allows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from random import Random

from specbench_client.simulator.ask import Ask, Timing
from specbench_client.simulator.batch import Batch, Sequence, Step
from specbench_client.simulator.config import SimulatorConfig
from specbench_client.simulator.counters import Counters
from specbench_client.simulator.errors import BadRequest
from specbench_client.simulator.iterations import Iterations
from specbench_client.simulator.process import Generation, StepOutcome
from specbench_client.simulator.prompts import Categories
from specbench_client.simulator.text import Answer, Wanted, compose

GIVE_UP_BEHIND_NS = 1_000_000_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step gave to one request."""

    outcome: StepOutcome
    words: tuple[str, ...]
    last: bool


class Stream:
    """One request inside the engine; iterate it for its pieces."""

    def __init__(self, ask: Ask, answer: Answer, category: str, sequence: Sequence) -> None:
        self.ask = ask
        self.answer = answer
        self.category = category
        self.sequence = sequence
        self.timing = Timing(ask.received_ns)
        self.pieces: asyncio.Queue[Piece] = asyncio.Queue()

    @property
    def cached_tokens(self) -> int:
        return self.sequence.prompt_tokens - self.sequence.prefill_tokens

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while True:
            piece = await self.pieces.get()
            yield piece
            if piece.last:
                return


class Engine:
    """One simulated engine. ``clock`` is monotonic ns; ``run`` must be running for answers to come."""

    def __init__(
        self,
        config: SimulatorConfig,
        categories: Categories | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self.clock = clock
        self.drafter = config.faults.drafter(config.drafter)
        self._categories = categories or Categories()
        self._batch = Batch(config.max_num_seqs, config.cost, config.faults.slowdown)
        self._streams: dict[Sequence, Stream] = {}
        self._work = asyncio.Event()
        self._arrived = 0
        self._asked: set[str] = set()
        self.counters = self._fresh_counters()
        self.iterations = Iterations()

    @property
    def running(self) -> int:
        return self._batch.running

    @property
    def waiting(self) -> int:
        return self._batch.waiting

    @property
    def kv_tokens(self) -> int:
        return self._batch.kv_tokens

    def restart_counters(self) -> None:
        """Start counting from 0, as an engine that was restarted behind the client's back."""
        self.counters = self._fresh_counters()
        self.iterations = Iterations()

    def submit(self, ask: Ask) -> Stream:
        """Queue a request; BadRequest where it does not fit the context."""
        answer = self._answer(ask)
        category = self._categories.of(ask.prompt)
        conditional = self._conditional(answer, category)
        rng = Random(f"accept:{answer.identity}:{self.drafter.method}")  # noqa: S311 -- a simulation
        generation = Generation(len(answer.words), self.drafter, conditional, rng)
        cached = self.config.faults.cached_tokens(ask.prompt.tokens)
        sequence = Sequence(ask.prompt.tokens, ask.prompt.tokens - cached, generation)
        stream = Stream(ask, answer, category, sequence)
        self._streams[sequence] = stream
        self._batch.add(sequence)
        self._work.set()
        return stream

    def cancel(self, stream: Stream) -> None:
        """Forget a request whose client has gone; nothing happens where it was already finished."""
        if self._streams.pop(stream.sequence, None) is not None:
            self._batch.drop(stream.sequence)
            self.counters.finished["abort"] += 1

    async def run(self) -> None:
        """Step for ever."""
        due_ns = self.clock()
        while True:
            if self._batch.idle:
                self._work.clear()
                await self._work.wait()
                due_ns = self.clock()
            step = self._batch.step()
            self._schedule(step)
            due_ns = self._not_hopelessly_late(due_ns + int(step.duration_ms * 1e6 * self.config.time_scale))
            await asyncio.sleep(max(0.0, (due_ns - self.clock()) / 1e9))
            self._deliver(step)
            self._batch.retire()

    def _not_hopelessly_late(self, due_ns: int) -> int:
        now_ns = self.clock()
        if not self.config.time_scale:
            return now_ns
        if now_ns - due_ns > GIVE_UP_BEHIND_NS:
            _log.warning(
                "simulator: %.1f s behind its schedule; this machine is too slow for the load", (now_ns - due_ns) / 1e9
            )
            return now_ns
        return due_ns

    def _conditional(self, answer: Answer, category: str) -> tuple[float, ...]:
        conditional = self.config.acceptance.positions(category, self.drafter.num_speculative_tokens)
        asked_before = answer.identity in self._asked
        self._asked.add(answer.identity)
        return self.config.faults.acceptance(conditional, asked_before=asked_before)

    def _answer(self, ask: Ask) -> Answer:
        room = self.config.max_model_len - ask.prompt.tokens
        if room < 1 or (ask.max_tokens or 0) > room:
            raise BadRequest(
                f"This model's maximum context length is {self.config.max_model_len} tokens. However, you requested "
                f"{ask.max_tokens or 1} output tokens and your prompt contains {ask.prompt.tokens} input tokens. "
                "Please reduce the length of the input prompt or the number of requested output tokens.",
                param="max_tokens" if room > 0 else "input_tokens",
            )
        self._arrived += 1
        greedy = self.config.faults.temperature(ask.temperature) == 0
        sample = None if greedy else f"{ask.seed if ask.seed is not None else f'#{self._arrived}'}"
        wanted = Wanted(
            model=ask.model,
            prompt=ask.prompt.identity,
            max_tokens=ask.max_tokens or room,
            min_tokens=ask.min_tokens,
            ignore_eos=ask.ignore_eos,
            sample=sample,
        )
        answer = compose(wanted, seed=self.config.seed, mean_tokens=self.config.output_mean_tokens)
        return self.config.faults.rewrite(answer, speculates=self.config.drafter.speculates)

    def _schedule(self, step: Step) -> None:
        now_ns = self.clock()
        for sequence in step.admitted:
            stream = self._streams[sequence]
            stream.timing = replace(stream.timing, scheduled_ns=now_ns)
            self.counters.admitted(sequence.prompt_tokens, stream.cached_tokens)
            self.counters.queue_s.observe((now_ns - stream.ask.received_ns) / 1e9)

    def _deliver(self, step: Step) -> None:
        now_ns = self.clock()
        self.iterations.add(step, waiting=self.waiting)
        self.counters.step_tokens.observe(step.load.batch_tokens + step.load.prefill_tokens)
        for sequence, outcome in step.outcomes:
            stream = self._streams.get(sequence)
            if stream is None:  # its client left during the step
                continue
            self._stamp(stream, outcome, now_ns)
            end = sequence.generation.produced
            last = sequence.generation.finished
            stream.pieces.put_nowait(Piece(outcome, stream.answer.words[end - outcome.tokens : end], last))
            if last:
                del self._streams[sequence]
                self._count_finished(stream)

    def _stamp(self, stream: Stream, outcome: StepOutcome, now_ns: int) -> None:
        """Record the step in the counters and in the request's own timing."""
        self.counters.stepped(outcome)
        timing = stream.timing
        if timing.last_ns is None:
            self.counters.first_token_s.observe((now_ns - timing.received_ns) / 1e9)
            stream.timing = replace(timing, first_ns=now_ns, last_ns=now_ns)
        else:
            self.counters.between_steps_s.observe((now_ns - timing.last_ns) / 1e9)
            stream.timing = replace(timing, last_ns=now_ns)

    def _count_finished(self, stream: Stream) -> None:
        timing, tokens = stream.timing, len(stream.answer.words)
        first_ns, last_ns = timing.first_ns or 0, timing.last_ns or 0
        self.counters.finished[stream.answer.finish_reason] += 1
        self.counters.request_s.observe((last_ns - timing.received_ns) / 1e9)
        self.counters.request_prompt_tokens.observe(stream.ask.prompt.tokens)
        self.counters.request_output_tokens.observe(tokens)
        if tokens > 1:
            self.counters.per_token_s.observe((last_ns - first_ns) / 1e9 / (tokens - 1))

    def _fresh_counters(self) -> Counters:
        drafter = self.config.drafter
        positions = [0] * drafter.num_speculative_tokens if drafter.speculates else None
        return Counters(created_s=time.time(), accepted_by_position=positions)
