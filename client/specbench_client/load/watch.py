"""The client's watch over itself: whether it was in time, and had a core to spare.

A client that is late measures itself and calls it the engine. The lag is how late the event loop wakes a sleeper:
sends wait in the same queue, and reads of our own clock were stamped late by as much. A timer rounds up to a
millisecond, which is the floor. What the records tell (late sends, gathered chunks, whose clock) is counted from them.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from specbench_api.outcome.record import Record, RecordPhase
from specbench_api.outcome.summary import SelfWatch
from specbench_client.load.flight import Flown
from specbench_client.load.orders import Ended

INTERVAL_S = 0.02
_NS_PER_MS = 1e6
_KERNEL = "kernel"


class SelfWatcher:
    """`async with SelfWatcher() as watcher: …` in a worker; the two figures are of the time in between."""

    def __init__(
        self,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_s: Callable[[], float] = time.process_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._cpu_s = cpu_s
        self._sleep = sleep
        self._lags_ms = array("d")
        self._sampler: asyncio.Task[None] | None = None
        self._began = self._ended = (0, 0.0)

    async def __aenter__(self) -> Self:
        self._began = (self._clock(), self._cpu_s())
        self._sampler = asyncio.create_task(self._sample())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = (self._clock(), self._cpu_s())
        if self._sampler is not None:
            self._sampler.cancel()
            with suppress(asyncio.CancelledError):
                await self._sampler

    @property
    def lag_p99_ms(self) -> float | None:
        """99th percentile of the loop's lateness."""
        return percentile(self._lags_ms, 0.99)

    @property
    def cpu_share(self) -> float | None:
        """CPU seconds of this process a second."""
        wall_s = (self._ended[0] - self._began[0]) / 1e9
        return (self._ended[1] - self._began[1]) / wall_s if wall_s > 0 else None

    async def _sample(self) -> None:
        while True:
            due_ns = self._clock() + int(INTERVAL_S * 1e9)
            await self._sleep(INTERVAL_S)
            self._lags_ms.append(max(0, self._clock() - due_ns) / _NS_PER_MS)


@dataclass
class Tally:
    """What the records of the steady state tell of the client, counted as they come."""

    _lateness_ms: array[float] = field(default_factory=lambda: array("d"))
    _streamed: int = 0
    _chunks: int = 0
    _gathered: int = 0
    _gathered_ends: int = 0
    _in_one_read: int = 0
    _answers: int = 0
    _by_kernel: int = 0

    def add(self, record: Record) -> None:
        """Count it."""
        if record.phase != RecordPhase.STEADY:
            return
        if record.connect_ns is not None and record.turn == 0:
            self._lateness_ms.append((record.connect_ns - record.intended_ns) / _NS_PER_MS)
        if record.first_byte_ns is not None:
            self._answers += 1
            self._by_kernel += record.clock == _KERNEL
        if record.chunk_ns and record.chunk_gathered:
            self._streamed += 1
            self._chunks += len(record.chunk_ns)
            self._gathered += sum(record.chunk_gathered)
            self._gathered_ends += record.chunk_gathered[-1]
            self._in_one_read += _came_in_one_read(record.chunk_ns, record)

    @property
    def lateness_p99_ms(self) -> float | None:
        """99th percentile of how late the client was with first turns: connecting is the server's time, not its own."""
        return percentile(self._lateness_ms, 0.99)

    @property
    def gathered_share(self) -> float | None:
        """Chunks whose time is that of what came after them: one read brought both."""
        return self._gathered / self._chunks if self._chunks else None

    @property
    def gathered_end_share(self) -> float | None:
        """Streamed answers whose last chunk is such a one."""
        return self._gathered_ends / self._streamed if self._streamed else None

    @property
    def answers_in_one_read(self) -> int | None:
        """Answers of several tokens without a time between them; None where none was streamed."""
        return self._in_one_read if self._streamed else None

    @property
    def kernel_share(self) -> float | None:
        """Answers whose times are the kernel's."""
        return self._by_kernel / self._answers if self._answers else None


@dataclass(frozen=True)
class WarmUp:
    """What the warm-up before a point was."""

    requests: int
    steady: bool


def self_watch(
    ended: Sequence[Ended], flown: Flown, tally: Tally, *, is_open: bool, warm_up: WarmUp | None
) -> SelfWatch:
    """Everything seen, over all workers: the worst one's lag and CPU, since one late worker spoils its share."""
    return SelfWatch(
        workers=len(ended),
        cpu_share=_worst(one.cpu_share for one in ended),
        loop_lag_p99_ms=_worst(one.lag_p99_ms for one in ended),
        send_lateness_p99_ms=tally.lateness_p99_ms,
        gathered_chunk_share=tally.gathered_share,
        gathered_end_share=tally.gathered_end_share,
        answers_in_one_read=tally.answers_in_one_read,
        kernel_clock_share=tally.kernel_share,
        reached_concurrency=flown.mean_in_flight,
        reached_rate=flown.begun_per_s if is_open else None,
        in_flight_growth=flown.growth if is_open else None,
        warmup_requests=warm_up.requests if warm_up else None,
        warmup_steady=warm_up.steady if warm_up else None,
        steady_share=flown.steady_share,
        duration_s=flown.duration_s,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed; None of nothing."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else None


def _came_in_one_read(chunk_ns: Sequence[int], record: Record) -> bool:
    """Whether an answer of several tokens has one time for all of them."""
    tokens = record.output_tokens or record.output_tokens_client or 0
    return tokens > 1 and chunk_ns[0] == chunk_ns[-1]


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
