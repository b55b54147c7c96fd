"""The work queue of runs and campaigns: a key is queued at most once, and processed by one worker at a time.

The queue is level-triggered: it stores that an object changed, not what happened, and the worker reads the object
again. A key that is added while it is being processed is processed again afterwards. After an error the key waits,
longer each time up to a limit; events that arrive meanwhile do not shorten the wait, otherwise new events would defeat
the back-off.

Namespaces take turns, so that one with thousands of keys does not delay the others. Within a namespace, keys that an
event has queued go before routine keys (of the resync, of lists and of polls), so that a resync of thousands of runs
does not delay the reaction to a user. Every `ROUTINE_TURN`th key is a routine one, so that events never stop the polls.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

ROUTINE_TURN = 8
"""Of this many keys of a namespace at least one is routine, if one waits."""


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


@dataclass
class _NamespaceKeys:
    """The keys of one namespace that wait for a worker, each in one of the two."""

    of_events: dict[ResourceKey, None] = field(default_factory=dict)
    routine: dict[ResourceKey, None] = field(default_factory=dict)
    events_in_a_row: int = 0

    def __len__(self) -> int:
        return len(self.of_events) + len(self.routine)

    def add(self, key: ResourceKey, *, routine: bool) -> None:
        """Add a key; one of an event stays one."""
        if not routine:
            self.routine.pop(key, None)
            self.of_events[key] = None
        elif key not in self.of_events:
            self.routine[key] = None

    def take(self) -> tuple[ResourceKey, bool]:
        """Remove and return the next key, and whether it is routine. There must be one."""
        routine = bool(self.routine) and (not self.of_events or self.events_in_a_row >= ROUTINE_TURN - 1)
        self.events_in_a_row = 0 if routine else self.events_in_a_row + 1
        keys = self.routine if routine else self.of_events
        key = next(iter(keys))
        del keys[key]
        return key, routine


class WorkQueue:
    """The queue, for use in one event loop. Every `get` must be followed by one `done`, `failed` or `defer`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._ready: OrderedDict[str, _NamespaceKeys] = OrderedDict()
        """By namespace, in the order of their turns."""
        self._due: dict[ResourceKey, tuple[float, bool]] = {}
        """When a key is queued, and whether it is routine."""
        self._by_due: list[tuple[float, ResourceKey]] = []
        """A heap of `_due`; it also contains entries that are no longer in `_due`."""
        self._running: dict[ResourceKey, float] = {}
        self._running_routine: set[ResourceKey] = set()
        """The routine keys of `_running`."""
        self._again: dict[ResourceKey, bool] = {}
        """The keys that were added while they were being processed, and whether they are routine."""
        self._failures: dict[ResourceKey, int] = {}
        self._changed = asyncio.Event()

    @property
    def depth(self) -> int:
        """How many keys wait for a worker now."""
        return sum(map(len, self._ready.values()))

    def longest_s(self) -> float:
        """For how long the oldest unfinished reconciliation has been running, in seconds."""
        return max((self._clock() - began for began in self._running.values()), default=0.0)

    def is_routine(self, key: ResourceKey) -> bool:
        """Whether a key that is being processed is routine. Safe for use from other threads."""
        return key in self._running_routine

    def add(self, key: ResourceKey, *, routine: bool = False) -> None:
        """Queue a key; if it waits after an error, when that wait is over. `routine`: no event requires it."""
        if key in self._running:
            self._note_again(key, routine=routine)
        elif self._waits_after_error(key):
            self._note_event(key, routine=routine)
        else:
            self._set_ready(key, routine=routine)
            self._changed.set()

    def adder_for_threads(self) -> Callable[[ResourceKey, bool], None]:
        """`add` with a key and `routine`, for other threads than that of the event loop, which must be running."""
        loop = asyncio.get_running_loop()

        def add_soon(key: ResourceKey, routine: bool) -> None:  # noqa: FBT001 -- a callback
            # The loop may be closed by then; then the process is ending and nothing is left to do.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: self.add(key, routine=routine))

        return add_soon

    def add_after(self, key: ResourceKey, delay_s: float, *, routine: bool = True) -> None:
        """Queue a key after this delay; an earlier due time is kept, and the wait after an error is not shortened."""
        if self._waits_after_error(key):
            self._note_event(key, routine=routine)
            return
        due = self._clock() + delay_s
        known, known_routine = self._due.get(key, (math.inf, True))
        self._due[key] = (min(due, known), routine and known_routine)
        if due < known:
            heapq.heappush(self._by_due, (due, key))
            self._changed.set()

    async def get(self) -> ResourceKey:
        """The next key. Waits until there is one."""
        while True:
            self._changed.clear()
            self._queue_due()
            if self._ready:
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

    def failed(self, key: ResourceKey, backoff: Backoff | None = None) -> float:
        """Processing the key failed; returns the wait until it is tried again, in seconds.

        What an event has queued stays so.
        """
        self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = (backoff or self._backoff).after(self._failures[key])
        _, due_routine = self._due.pop(key, (0.0, True))
        routine = key in self._running_routine and self._again.pop(key, True) and due_routine
        self._again.pop(key, None)
        self._finish(key)
        self.add_after(key, wait_s, routine=routine)
        return wait_s

    def _waits_after_error(self, key: ResourceKey) -> bool:
        return bool(self._failures.get(key)) and key in self._due

    def _note_again(self, key: ResourceKey, *, routine: bool) -> None:
        self._again[key] = routine and self._again.get(key, True)

    def _note_event(self, key: ResourceKey, *, routine: bool) -> None:
        due, known_routine = self._due[key]
        self._due[key] = (due, known_routine and routine)

    def _finish(self, key: ResourceKey) -> None:
        del self._running[key]
        self._running_routine.discard(key)
        if key in self._again:
            self.add(key, routine=self._again.pop(key))

    def _set_ready(self, key: ResourceKey, *, routine: bool) -> None:
        self._ready.setdefault(key.namespace, _NamespaceKeys()).add(key, routine=routine)

    def _take_ready(self) -> ResourceKey:
        namespace, keys = self._ready.popitem(last=False)
        key, routine = keys.take()
        if keys:
            self._ready[namespace] = keys  # at the end: the next turn is another namespace's
        if routine:
            self._running_routine.add(key)
        return key

    def _queue_due(self) -> None:
        now = self._clock()
        while (due := self._next_due()) is not None and due <= now:
            key = heapq.heappop(self._by_due)[1]
            _, routine = self._due.pop(key)
            if key in self._running:
                self._note_again(key, routine=routine)
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
