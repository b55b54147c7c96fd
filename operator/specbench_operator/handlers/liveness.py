"""Is the operator alive, or does it only answer? Asked by the kubelet, which restarts it when it is not.

A watch may die in silence, and a watch of a quiet cluster is silent too. The two are told apart by the relist: it knows
each resource's version, and a living watch has told of that version. Only a watch that stays behind is dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from specbench_operator.handlers.queue import Key
from specbench_operator.settings import Settings

BEAT_S = 1.0


class Liveness:
    """Gathers the signs. `longest_s` tells how long the oldest piece of work takes already."""

    def __init__(
        self, settings: Settings, longest_s: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._longest_s = longest_s
        self._clock = clock
        self._seen: dict[Key, str] = {}
        self._behind: dict[Key, float] = {}
        self._beaten = clock()

    def watched(self, key: Key, version: str) -> None:
        """A watch told of a run or a campaign: it lives."""
        self._seen[key] = version
        self._behind.pop(key, None)

    def relisted(self, versions: Mapping[Key, str]) -> None:
        """The relist found these in these versions."""
        for key in [key for key in self._seen if key not in versions]:
            del self._seen[key]
        behind = {key for key, version in versions.items() if self._seen.get(key) != version}
        now = self._clock()
        self._behind = {key: self._behind.get(key, now) for key in behind}

    def beat(self) -> None:
        """The event loop turns."""
        self._beaten = self._clock()

    async def keep_beating(self) -> None:
        """Beat for ever."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)

    def ailment(self) -> str | None:
        """What ails it, or None."""
        now, settings = self._clock(), self._settings
        latest = min(self._behind, key=lambda key: self._behind[key], default=None)
        silent_s = now - self._behind[latest] if latest else 0.0
        if latest and silent_s > settings.watch_silence_s:
            return f"the watch of {latest.kind}s has not told for {silent_s:.0f} s what the relist sees"
        if self._longest_s() > settings.worker_stuck_s:
            return f"a reconciliation has been under way for {self._longest_s():.0f} s"
        if now - self._beaten > settings.loop_lag_s:
            return f"the event loop is {now - self._beaten:.0f} s late"
        return None
