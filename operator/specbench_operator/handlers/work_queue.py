"""The work queue of runs and campaigns: a key is queued at most once, and processed by one worker at a time.

The queue is level-triggered: it stores that an object changed, not what happened, and the worker reads the object
again. A key that is added while it is being processed is processed again afterwards. After an error the key waits,
longer each time up to a limit; events that arrive meanwhile do not shorten the wait, otherwise new events would defeat
the back-off.

Namespaces take turns, so that one with thousands of keys does not delay the others. Keys that an event has queued go
first, and routine keys (of the resync, of lists and of polls) after them: a resync of thousands of runs does not delay
the reaction to a user. Every `ROUTINE_TURN`th key is a routine one, so that events never stop the polls.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple


class ResourceKey(NamedTuple):
    """Kind, namespace and name of a SpecBenchRun or a SpecBenchCampaign."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Backoff:
    """The exponential back-off after errors."""

    first_s: float = 0.5
    cap_s: float = 30.0

    def after(self, failures: int) -> float:
        """The wait in seconds after this many errors in a row: it doubles from `first_s` up to `cap_s`."""
        return min(self.first_s * 2.0 ** min(failures - 1, 30), self.cap_s)


ROUTINE_TURN = 8
"""Of this many keys at least one is routine, if one waits."""


class _WaitingKeys:
    """The keys that wait for a worker; namespaces take turns."""

    def __init__(self) -> None:
        self._by_namespace: OrderedDict[str, dict[ResourceKey, None]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def add(self, key: ResourceKey) -> None:
        self._by_namespace.setdefault(key.namespace, {})[key] = None

    def discard(self, key: ResourceKey) -> None:
        keys = self._by_namespace.get(key.namespace, {})
        keys.pop(key, None)
        if not keys:
            self._by_namespace.pop(key.namespace, None)

    def __contains__(self, key: ResourceKey) -> bool:
        return key in self._by_namespace.get(key.namespace, ())

    def take(self) -> ResourceKey:
        """Remove and return the next key. There must be one."""
        namespace, keys = self._by_namespace.popitem(last=False)
        key = next(iter(keys))
        del keys[key]
        if keys:
            self._by_namespace[namespace] = keys  # at the end: the next turn is another namespace's
        return key


class WorkQueue:
    """The queue, for use in one event loop. Every `get` must be followed by one `done`, `failed` or `defer`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._urgent, self._routine = _WaitingKeys(), _WaitingKeys()
        self._urgent_in_a_row = 0
        self._due: dict[ResourceKey, tuple[float, bool]] = {}
        """When keys are queued, and whether as routine."""
        self._by_due: list[tuple[float, ResourceKey]] = []
        """A heap of `_due`; it also contains entries that are no longer in `_due`."""
        self._running: dict[ResourceKey, float] = {}
        self._running_routine: set[ResourceKey] = set()
        """The keys of `_running` that were routine."""
        self._again: dict[ResourceKey, bool] = {}
        """Keys that were added while they were being processed, and whether they were routine."""
        self._failures: dict[ResourceKey, int] = {}
        self._changed = asyncio.Event()

    @property
    def depth(self) -> int:
        """How many keys wait for a worker now."""
        return len(self._urgent) + len(self._routine)

    def longest_s(self) -> float:
        """For how long the oldest unfinished reconciliation has been running, in seconds."""
        return max((self._clock() - began for began in self._running.values()), default=0.0)

    def is_routine(self, key: ResourceKey) -> bool:
        """Whether a key that is being processed was routine. Safe for use from other threads."""
        return key in self._running_routine

    def add(self, key: ResourceKey, *, routine: bool = False) -> None:
        """Queue a key, unless it waits after an error. `routine`: no event requires it."""
        if key in self._running:
            self._again[key] = routine and self._again.get(key, True)
        elif not (self._failures.get(key) and key in self._due):
            self._set_ready(key, routine=routine)
            self._changed.set()

    def adder_for_threads(self) -> Callable[[ResourceKey], None]:
        """`add` for other threads than that of the event loop, which must be running."""
        loop = asyncio.get_running_loop()

        def add_soon(key: ResourceKey) -> None:
            # The loop may be closed by then; then the process is ending and nothing is left to do.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.add, key)

        return add_soon

    def add_after(self, key: ResourceKey, delay_s: float, *, routine: bool = True) -> None:
        """Queue a key after this delay; an earlier due time is kept."""
        due = self._clock() + delay_s
        known, was_routine = self._due.get(key, (math.inf, True))
        self._due[key] = (min(due, known), routine and was_routine)
        if due < known:
            heapq.heappush(self._by_due, (due, key))
            self._changed.set()

    async def get(self) -> ResourceKey:
        """The next key. Waits until there is one."""
        while True:
            self._changed.clear()
            self._queue_due()
            if self.depth:
                key = self._take_ready()
                self._due.pop(key, None)
                self._running[key] = self._clock()
                return key
            await self._wait()

    def done(self, key: ResourceKey, requeue_after_s: float | None = None) -> None:
        """The key was processed without an error."""
        self._failures.pop(key, None)
        self._finish(key)
        if requeue_after_s == 0:
            self.add(key)
        elif requeue_after_s is not None:
            self.add_after(key, requeue_after_s)

    def defer(self, key: ResourceKey) -> None:
        """Processing the key was neither completed nor failed: it is added again when it can continue."""
        self._finish(key)

    def failed(self, key: ResourceKey) -> float:
        """Processing the key failed; returns the wait until it is tried again, in seconds."""
        self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = self._backoff.after(self._failures[key])
        self._again.pop(key, None)
        self._finish(key)
        self.add_after(key, wait_s)
        return wait_s

    def _finish(self, key: ResourceKey) -> None:
        del self._running[key]
        self._running_routine.discard(key)
        if key in self._again:
            self.add(key, routine=self._again.pop(key))

    def _set_ready(self, key: ResourceKey, *, routine: bool) -> None:
        if not routine:
            self._routine.discard(key)
            self._urgent.add(key)
        elif key not in self._urgent:
            self._routine.add(key)

    def _take_ready(self) -> ResourceKey:
        routine = not self._urgent or (self._routine and self._urgent_in_a_row >= ROUTINE_TURN - 1)
        self._urgent_in_a_row = 0 if routine else self._urgent_in_a_row + 1
        key = (self._routine if routine else self._urgent).take()
        if routine:
            self._running_routine.add(key)
        return key

    def _queue_due(self) -> None:
        now = self._clock()
        while (due := self._next_due()) is not None and due <= now:
            key = heapq.heappop(self._by_due)[1]
            _, routine = self._due.pop(key)
            if key in self._running:
                self._again[key] = routine and self._again.get(key, True)
            else:
                self._set_ready(key, routine=routine)

    def _next_due(self) -> float | None:
        while self._by_due and self._due.get(self._by_due[0][1], (None,))[0] != self._by_due[0][0]:
            heapq.heappop(self._by_due)  # added again with an earlier time, or processed since
        return self._by_due[0][0] if self._by_due else None

    async def _wait(self) -> None:
        next_due = self._next_due()
        timeout_s = None if next_due is None else max(next_due - self._clock(), 0.0)
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
