"""The liveness check of the operator: watches, workers and event loop.

A broken watch delivers nothing, and neither does a watch of a quiet cluster. The relist distinguishes them: it reads
each object's resourceVersion, and a working watch has delivered that version. Only a watch that stays behind is broken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from specbench_operator.handlers.work_queue import ResourceKey
from specbench_operator.settings import OperatorSettings

BEAT_S = 1.0


class Liveness:
    """Collects signs of life. `longest_s` returns for how long the oldest reconciliation has been running."""

    def __init__(
        self, settings: OperatorSettings, longest_s: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._longest_s = longest_s
        self._clock = clock
        self._watched_versions: dict[ResourceKey, str] = {}
        self._behind_since: dict[ResourceKey, float] = {}
        self._last_beat = clock()

    def watched(self, key: ResourceKey, version: str) -> None:
        """A watch delivered this version of a run or a campaign."""
        self._watched_versions[key] = version
        self._behind_since.pop(key, None)

    def relisted(self, versions: Mapping[ResourceKey, str]) -> None:
        """The relist found these objects in these versions."""
        for key in [key for key in self._watched_versions if key not in versions]:
            del self._watched_versions[key]
        behind = {key for key, version in versions.items() if self._watched_versions.get(key) != version}
        now = self._clock()
        self._behind_since = {key: self._behind_since.get(key, now) for key in behind}

    def beat(self) -> None:
        """Record that the event loop is running."""
        self._last_beat = self._clock()

    async def keep_beating(self) -> None:
        """Call `beat` forever, every BEAT_S seconds."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)

    def problem(self) -> str | None:
        """Why the operator should be restarted, or None if it is healthy."""
        now, settings = self._clock(), self._settings
        oldest = min(self._behind_since, key=lambda key: self._behind_since[key], default=None)
        silent_s = now - self._behind_since[oldest] if oldest else 0.0
        if oldest and silent_s > settings.watch_silence_s:
            return f"the watch of {oldest.kind}s has been behind the relist for {silent_s:.0f} s"
        if self._longest_s() > settings.worker_stuck_s:
            return f"a reconciliation has been running for {self._longest_s():.0f} s"
        if now - self._last_beat > settings.loop_lag_s:
            return f"the event loop is {now - self._last_beat:.0f} s late"
        return None
