"""An event loop that never waits: instead of sleeping until the next timer, it advances a virtual clock."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

NS_PER_S = 1e9
BEGINNING_NS = 1_000_000_000
"""The start time; not 0, because 0 would look like a missing timestamp."""


class NoPendingTimer(Exception):
    """All tasks are waiting and no timer is set: in real time this would hang."""


class VirtualClock:
    """Monotonic nanoseconds; calling it returns the time, like `time.monotonic_ns`."""

    def __init__(self) -> None:
        self.ns = BEGINNING_NS

    def __call__(self) -> int:
        return self.ns

    def wait(self, timeout_s: float | None) -> None:
        """Advance the clock. Raises NoPendingTimer if there is nothing to wait for."""
        if timeout_s is None:
            raise NoPendingTimer
        self.ns += max(0, math.ceil(timeout_s * NS_PER_S))


class _Selector(selectors.SelectSelector):
    """A selector without sockets: only timers wake tasks."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._clock.wait(timeout)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_Selector(clock))
        self._virtual = clock

    def time(self) -> float:
        return self._virtual.ns / NS_PER_S


def in_virtual_time(work: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to completion, however long that takes on the virtual clock."""
    clock = VirtualClock()
    with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
        return runner.run(work(clock))
