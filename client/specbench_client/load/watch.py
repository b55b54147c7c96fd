"""The client's watch over itself: whether it was in time, and had a core to spare.

A client that is late measures itself and calls it the engine. The lag is how late the event loop wakes a sleeper:
reads wait in the same queue, so an arrival was stamped late by as much. A timer rounds up to a millisecond, which is
the floor.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from specbench_api.outcome.summary import SelfWatch
from specbench_client.load.flight import Flight

INTERVAL_S = 0.02


class SelfWatcher:
    """`async with SelfWatcher() as watcher: …`, then `watcher.report(flight)`."""

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

    def report(self, flight: Flight) -> SelfWatch:
        """What was seen, with what was in flight in the steady state."""
        wall_s = (self._ended[0] - self._began[0]) / 1e9
        return SelfWatch(
            loop_lag_p99_ms=percentile(self._lags_ms, 0.99),
            cpu_share=(self._ended[1] - self._began[1]) / wall_s if wall_s > 0 else None,
            reached_concurrency=flight.mean_in_flight,
            steady_share=flight.steady_share,
            duration_s=flight.duration_s,
        )

    async def _sample(self) -> None:
        while True:
            due_ns = self._clock() + int(INTERVAL_S * 1e9)
            await self._sleep(INTERVAL_S)
            self._lags_ms.append(max(0, self._clock() - due_ns) / 1e6)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed; None of nothing."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else None
