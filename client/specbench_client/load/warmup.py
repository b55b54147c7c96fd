"""Decides when a warm-up is complete: when decode steps have stopped getting faster. Pure.

No fixed number of requests or seconds fits all engines: kernels are compiled, graphs captured and GPU clocks raised
when a load first arrives, which takes one request on one engine and a minute on another. All of these make steps
faster, so step times are compared over two consecutive windows of requests: the engine is steady if the median of the
later window is not lower by more than 5 %. A higher median is noise, not a cold engine. Medians are used because one
slow answer is no trend. A window has at least as many requests as are in flight, if the limit of requests leaves room
for two windows.

A noisy engine meets the rule by chance sooner or later; a trend does not meet it until it ends. An engine that never
meets it is measured regardless, and the point's summary reports it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import sub
from statistics import median

from specbench_client.documents.record import Record
from specbench_client.load.steady_state import NS_PER_MS
from specbench_client.workload.row_parsing import Prompt

STEP_TIME_TOLERANCE = 0.05
MIN_WINDOW = 4
MAX_OVER_MIN = 4
MIN_CHUNKS = 4


@dataclass(frozen=True)
class WarmupBounds:
    """Minimum and maximum length of a warm-up and width of a window, in requests."""

    least: int
    most: int
    window: int

    @classmethod
    def of(cls, least: int, concurrency: int) -> WarmupBounds:
        """Return bounds with at least `least` requests, and at least one for each concurrent stream."""
        least = max(least, concurrency)
        most = MAX_OVER_MIN * least
        return cls(least, most, max(1, min(max(MIN_WINDOW, concurrency), most // 2)))


def step_ms(record: Record) -> float | None:
    """Return the median time between chunks if each is a step, else the mean time of a step.

    Under speculation, the time per token depends on the prompt, the time per step on the engine. It is that per token
    if the engine does not report steps, and the time since sending over all tokens of an answer that was not streamed.
    Unlike the median, the mean contains the prompts of others that are computed meanwhile, which at the beginning of
    the load are many and at its end none. With several chunks per step, as llama.cpp sends one for each token, the
    median is a gap within a step. None if it is unknown.
    """
    tokens = record.output_tokens or record.output_tokens_client or 0
    streamed = record.first_token_ns is not None
    begin_ns, steps = (record.first_token_ns, record.steps or tokens - 1) if streamed else (record.sent_ns, tokens)
    if record.error_class is not None or begin_ns is None or record.last_token_ns is None or steps < 1:
        return None
    chunks = len(record.chunk_ns or ())
    if record.chunk_ns is not None and MIN_CHUNKS <= chunks <= (record.steps or 0) + 1:
        return median(map(sub, record.chunk_ns[1:], record.chunk_ns[:-1])) / NS_PER_MS or None
    span_ns = record.last_token_ns - begin_ns
    return span_ns / NS_PER_MS / steps if span_ns > 0 else None


def is_steady(steps_ms: Sequence[float], window: int) -> bool:
    """Return whether the last window is at most STEP_TIME_TOLERANCE faster than the one before; False without two."""
    if len(steps_ms) < 2 * window:
        return False
    before, last = median(steps_ms[-2 * window : -window]), median(steps_ms[-window:])
    return last >= (1 - STEP_TIME_TOLERANCE) * before


class WarmupMonitor:
    """Tracks the step times of one warm-up."""

    def __init__(self, bounds: WarmupBounds) -> None:
        self._bounds = bounds
        self._steps: list[tuple[int, float]] = []
        self.requests = 0
        self.reached = False

    def add(self, record: Record) -> None:
        """Add a record. Records of several workers come in batches, so they are sorted by their end."""
        self.requests += 1
        took_ms = step_ms(record)
        if took_ms is not None and record.last_token_ns is not None:
            insort(self._steps, (record.last_token_ns, took_ms))
        if self.requests >= self._bounds.least and not self.reached:
            recent = [took_ms for _, took_ms in self._steps[-2 * self._bounds.window :]]
            self.reached = is_steady(recent, self._bounds.window)


# A prompt that was sent before may be in the engine's prompt cache or in a drafter's memory of past text, and would be
# measured too fast. So a warm-up request is a prompt with its words reversed: it has the length and the vocabulary of
# the workload, but neither its prefixes nor its n-grams. A prompt that the warm-up sends again begins with a number of
# its own: otherwise its cached prefix would make steps faster, as those of an engine that is still warming up.


def warmup_prompts(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Return `count` prompts of one turn, each with its own id."""
    warmup = []
    for index in range(count):
        lap, row = divmod(index, len(prompts))
        turn = tuple(message.reversed(index if lap else None) for message in prompts[row].turns[0])
        warmup.append(replace(prompts[row], id=f"warmup-{index}", turns=(turn,), starts=(), expected=None))
    return warmup
