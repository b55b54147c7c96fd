"""The queue of runs and campaigns to be looked at: a name is in it once, and one worker at a time has it.

Level-triggered: whatever happened to one, and however often, the worker looks at all of it once more. A name that is
added while it is being worked on is worked on again. Errors wait longer each time, up to a cap; what is heard in the
meantime does not shorten that wait, or one that cannot be written would be tried as often as it is heard of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """What is to be looked at: a SpecBenchRun or a SpecBenchCampaign."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Backoff:
    """How long is waited after the n-th error in a row."""

    first_s: float = 0.5
    cap_s: float = 30.0

    def after(self, failures: int) -> float:
        """Doubling, from `first_s` up to `cap_s`."""
        return min(self.first_s * 2.0 ** min(failures - 1, 30), self.cap_s)


class WorkQueue:
    """For one event loop. Every `get` is answered by one `done`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, backoff: Backoff | None = None) -> None:
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._ready: dict[Key, None] = {}
        self._due: dict[Key, float] = {}
        self._running: dict[Key, float] = {}
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    @property
    def depth(self) -> int:
        """How many wait for a worker now."""
        return len(self._ready)

    def longest_s(self) -> float:
        """For how long the oldest piece of work has been under way."""
        return max((self._clock() - began for began in self._running.values()), default=0.0)

    def add(self, key: Key) -> None:
        """Look at it soon."""
        if key in self._running:
            self._again.add(key)
        elif not (self._failures.get(key) and key in self._due):
            self._ready[key] = None
            self._changed.set()

    def add_after(self, key: Key, delay_s: float) -> None:
        """Look at it then, at the latest."""
        due = self._clock() + delay_s
        self._due[key] = min(self._due.get(key, due), due)
        self._changed.set()

    async def get(self) -> Key:
        """The next one. Waits."""
        while True:
            self._changed.clear()
            self._ripen()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._due.pop(key, None)
                self._running[key] = self._clock()
                return key
            await self._wait()

    def done(self, key: Key, look_again_s: float | None = None) -> None:
        """It was looked at, without error."""
        self._failures.pop(key, None)
        self._finish(key)
        if look_again_s is not None:
            self.add_after(key, look_again_s)

    def failed(self, key: Key) -> float:
        """It could not be looked at; returns for how long it waits."""
        self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = self._backoff.after(self._failures[key])
        self._again.discard(key)
        self._finish(key)
        self.add_after(key, wait_s)
        return wait_s

    def _finish(self, key: Key) -> None:
        del self._running[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _ripen(self) -> None:
        now = self._clock()
        for key in [key for key, due in self._due.items() if due <= now]:
            del self._due[key]
            if key in self._running:
                self._again.add(key)
            else:
                self._ready[key] = None

    async def _wait(self) -> None:
        following = min(self._due.values(), default=None)
        timeout_s = None if following is None else max(following - self._clock(), 0.0)
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
