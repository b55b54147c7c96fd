"""Whether this replica may write: the state that leader election sets and that every write checks.

The API client checks it for each write after the connection is open, right before the request is sent. A replica that
was paused or partitioned therefore writes nothing once its time is over, whatever its threads were about to do.
`docs/concepts/high-availability.md` explains what remains between the check and the arrival of a request.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specbench_operator.errors import Retry


class NotLeading(Retry):
    """This replica does not hold the lease, so the write was not sent."""


def elapsed_clock() -> float:
    """Seconds since the node started, including the time during which the node or this process was suspended."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # only Linux has CLOCK_BOOTTIME


class Leadership:
    """Until when this replica may write. Safe for use from several threads, except `wait` and `wake`."""

    def __init__(self, clock: Callable[[], float] = elapsed_clock) -> None:
        self._clock = clock
        self._until = -math.inf
        self._ended = False
        self._writes = 0
        self._changed = threading.Condition()
        self._extended = asyncio.Event()

    @property
    def until(self) -> float:
        """The local time at which this replica stops writing, unless it renews the lease before."""
        return self._until

    def holds(self) -> bool:
        """Whether this replica leads."""
        return self._clock() < self._until

    def extend(self, until: float) -> None:
        """Allow writes until this local time. Ignored after `end`."""
        with self._changed:
            if not self._ended:
                self._until = until

    def end(self) -> None:
        """Refuse all further writes, for good."""
        with self._changed:
            self._ended = True
            self._until = -math.inf

    def await_writes(self, until: float) -> bool:
        """Wait for the answers to all writes in progress, at most until this local time; returns whether all came."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writes, max(until - self._clock(), 0.0))

    async def wait(self) -> None:
        """Wait until this replica leads. `wake` ends the wait, from the same event loop."""
        while not self.holds():
            self._extended.clear()
            await self._extended.wait()

    def wake(self) -> None:
        """Let what waits check again."""
        self._extended.set()

    def check(self) -> None:
        """Raise NotLeading unless this replica leads."""
        if not self.holds():
            raise NotLeading("NotLeading", "this replica does not hold the lease, so it writes nothing")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count a write as in progress, so that the lease is not released before its answer."""
        with self._changed:
            self._writes += 1
        try:
            yield
        finally:
            with self._changed:
                self._writes -= 1
                self._changed.notify_all()
