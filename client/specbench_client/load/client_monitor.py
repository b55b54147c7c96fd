"""Monitors the client itself: whether it sent in time and had CPU to spare.

A client that is late adds its own delay to the engine's latency. The lag is how late the event loop wakes a sleeping
task: sends wait in the same queue, and times taken by this process are late by as much. A timer rounds up to a
millisecond, which is the floor. Late sends, coalesced chunks and the source of timestamps are counted from the records.

A blocked event loop takes no samples, so a pause of any length would be a single one among many. Each lag therefore
counts as all samples that were due meanwhile, the last of them hardly late (Gil Tene's correction of coordinated
omission). The percentile is then over time: if the loop was blocked for 2 % of the load, the 99th shows it.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from specbench_client.documents.record import Record, RecordPhase
from specbench_client.documents.summary import ClientHealth
from specbench_client.load.steady_state import NS_PER_MS, LoadTimeline, LoadTimestamps
from specbench_client.transport.exchange import TimestampSource

SAMPLE_INTERVAL_S = 0.02


class EventLoopMonitor:
    """`async with EventLoopMonitor() as monitor: …` in a worker; measures loop lag and CPU share inside the block."""

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
        """99th percentile over time of the event loop's lag."""
        return percentile(_missed_samples_included(self._lags_ms), 0.99)

    @property
    def lag_max_ms(self) -> float | None:
        """Largest lag of the event loop."""
        return max(self._lags_ms, default=None)

    @property
    def cpu_share(self) -> float | None:
        """CPU seconds of this process per second."""
        wall_s = (self._ended[0] - self._began[0]) / 1e9
        return (self._ended[1] - self._began[1]) / wall_s if wall_s > 0 else None

    async def _sample(self) -> None:
        while True:
            due_ns = self._clock() + int(SAMPLE_INTERVAL_S * 1e9)
            await self._sleep(SAMPLE_INTERVAL_S)
            self._lags_ms.append(max(0, self._clock() - due_ns) / NS_PER_MS)


@dataclass
class RecordTally:
    """Counts of steady-state records that describe the client, updated record by record."""

    lateness_ms: array[float] = field(default_factory=lambda: array("d"))
    """Delay from the intended time to connecting, of each first turn."""
    _streamed: int = 0
    _chunks: int = 0
    _coalesced: int = 0
    _coalesced_ends: int = 0
    _in_one_read: int = 0
    _answers: int = 0
    _by_kernel: int = 0

    def add(self, record: Record) -> None:
        """Count a record."""
        if record.phase != RecordPhase.STEADY:
            return
        if record.connect_ns is not None and record.turn == 0:
            self.lateness_ms.append((record.connect_ns - record.intended_ns) / NS_PER_MS)
        if record.first_byte_ns is not None:
            self._answers += 1
            self._by_kernel += record.timestamp_source == TimestampSource.KERNEL
        if record.chunk_ns and record.chunk_coalesced:
            self._streamed += 1
            self._chunks += len(record.chunk_ns)
            self._coalesced += sum(record.chunk_coalesced)
            last = bisect_right(record.chunk_ns, record.last_token_ns or record.chunk_ns[-1]) - 1
            self._coalesced_ends += last >= 0 and record.chunk_coalesced[last]
            self._in_one_read += _arrived_in_one_read(record.chunk_ns, record)

    @property
    def lateness_p99_ms(self) -> float | None:
        """99th percentile of the delay from the intended time to connecting, over first turns.

        The time that connecting takes is not included: it depends on the server.
        """
        return percentile(self.lateness_ms, 0.99)

    @property
    def coalesced_share(self) -> float | None:
        """Share of chunks whose read also contained later bytes, so that their time is that of the later ones."""
        return self._coalesced / self._chunks if self._chunks else None

    @property
    def coalesced_end_share(self) -> float | None:
        """Share of streamed answers whose last chunk with text is coalesced."""
        return self._coalesced_ends / self._streamed if self._streamed else None

    @property
    def answers_in_one_read(self) -> int | None:
        """Number of answers of several tokens that all have one time; None if no answer was streamed."""
        return self._in_one_read if self._streamed else None

    @property
    def kernel_share(self) -> float | None:
        """Share of answers with kernel timestamps."""
        return self._by_kernel / self._answers if self._answers else None


@dataclass(frozen=True, slots=True)
class WorkerDone:
    """The worker's share of the load is over, and all its records are sent."""

    log: LoadTimestamps
    lag_p99_ms: float | None
    lag_max_ms: float | None
    cpu_share: float | None


@dataclass(frozen=True)
class WarmupResult:
    """Number of requests of the warm-up before a point, and whether it became steady."""

    requests: int
    steady: bool


def summarize_client_health(
    ended: Sequence[WorkerDone],
    timeline: LoadTimeline,
    tally: RecordTally,
    *,
    is_open: bool,
    has_slots: bool,
    warm_up: WarmupResult | None,
    load_per_core: float | None,
    interrupted_before: bool,
) -> ClientHealth:
    """Combine the figures of all workers. Lag and CPU are the worst worker's: one late worker spoils its share."""
    return ClientHealth(
        workers=len(ended),
        cpu_share=_worst(one.cpu_share for one in ended),
        load_per_core=load_per_core,
        loop_lag_p99_ms=_worst(one.lag_p99_ms for one in ended),
        loop_lag_max_ms=_worst(one.lag_max_ms for one in ended),
        send_lateness_p99_ms=None if has_slots else tally.lateness_p99_ms,  # who waits for a slot is not late
        coalesced_chunk_share=tally.coalesced_share,
        coalesced_end_share=tally.coalesced_end_share,
        answers_in_one_read=tally.answers_in_one_read,
        kernel_clock_share=tally.kernel_share,
        reached_concurrency=timeline.mean_in_flight,
        reached_rate=timeline.begun_per_s if is_open else None,
        in_flight_growth=timeline.growth if is_open else None,
        warmup_requests=warm_up.requests if warm_up else None,
        warmup_steady=warm_up.steady if warm_up else None,
        steady_share=timeline.steady_share,
        duration_s=timeline.duration_s,
        interrupted_before=interrupted_before or None,
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed; None for no values."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else None


def _missed_samples_included(lags_ms: Sequence[float]) -> array[float]:
    """Return the lags, each followed by those of the samples that were due while the event loop was blocked."""
    interval_ms = SAMPLE_INTERVAL_S * 1e3
    return array("d", (lag - interval_ms * n for lag in lags_ms for n in range(max(1, math.ceil(lag / interval_ms)))))


def _arrived_in_one_read(chunk_ns: Sequence[int], record: Record) -> bool:
    """Return whether an answer of several tokens has one time for all of them."""
    tokens = record.output_tokens or record.output_tokens_client or 0
    return tokens > 1 and chunk_ns[0] == chunk_ns[-1]


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
