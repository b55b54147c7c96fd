"""When a warm-up has warmed up: decode steps have stopped getting faster. Pure.

A fixed number of requests or seconds would be wrong for somebody: kernels are compiled, graphs captured and clocks
ramped up at the first sight of a load, which takes one request on one engine and a minute on another. What they all
show in is that steps get faster, so their times are compared over two windows of requests, one after the other: steady
is where the median of the later one is not lower by more than 5 %. Higher is no cold engine, but noise. Medians,
since one slow answer is no trend; a window holds at least as many requests as are in flight, so that it spans a whole
turn of the load, as far as the most requests that were allowed leave room for two of them.

A noisy engine meets the rule by chance sooner or later, and a trend does not until it ends; one that never meets it
is measured all the same, and the point says so.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specbench_api.outcome.record import Record

TOLERANCE = 0.05
LEAST_WINDOW = 4
MOST_OF_LEAST = 4
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Bounds:
    """How long a warm-up may be, in requests, and how wide a window is."""

    least: int
    most: int
    window: int

    @classmethod
    def of(cls, least: int, concurrency: int) -> Bounds:
        """For so many requests at least, and a whole round of this concurrency: what never was in flight is cold."""
        least = max(least, concurrency)
        most = MOST_OF_LEAST * least
        return cls(least, most, max(1, min(max(LEAST_WINDOW, concurrency), most // 2)))


def step_ms(record: Record) -> float | None:
    """Time per decode step of an answer, or per token where the engine does not tell its steps; None: no time to tell.

    Under speculation the time per token follows the prompt, that of a step the engine. An answer that was not streamed
    has its time since it was sent, over all of its tokens.
    """
    tokens = record.output_tokens or record.output_tokens_client or 0
    streamed = record.first_token_ns is not None
    begin_ns, steps = (record.first_token_ns, record.steps or tokens - 1) if streamed else (record.sent_ns, tokens)
    if record.error_class is not None or begin_ns is None or record.last_token_ns is None or steps < 1:
        return None
    span_ns = record.last_token_ns - begin_ns
    return span_ns / _NS_PER_MS / steps if span_ns > 0 else None


def is_steady(steps_ms: Sequence[float], window: int) -> bool:
    """Whether the last window is not faster than the one before by more than the tolerance; False of less than two."""
    if len(steps_ms) < 2 * window:
        return False
    before, last = median(steps_ms[-2 * window : -window]), median(steps_ms[-window:])
    return last >= (1 - TOLERANCE) * before


class Steadiness:
    """Follows one warm-up."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._steps: list[tuple[int, float]] = []
        self.requests = 0
        self.reached = False

    def add(self, record: Record) -> None:
        """Count a request. Several workers' answers come in batches, so they are put in order by their end."""
        self.requests += 1
        took_ms = step_ms(record)
        if took_ms is not None and record.last_token_ns is not None:
            insort(self._steps, (record.last_token_ns, took_ms))
        if self.requests >= self._bounds.least and not self.reached:
            recent = [took_ms for _, took_ms in self._steps[-2 * self._bounds.window :]]
            self.reached = is_steady(recent, self._bounds.window)
