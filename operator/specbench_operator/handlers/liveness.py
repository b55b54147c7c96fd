"""The liveness check of the operator (watches, workers and event loop), and the server of the kubelet's probes.

A broken watch delivers nothing, and neither does a watch of a quiet cluster. A watch that has reached the
resourceVersion of its collection has missed nothing. One that has not may be quiet as well: bookmarks of collections
that do not change can be ten minutes behind before Kubernetes 1.34, and where the API server has replicas. So a watch
that stays behind is compared with the objects themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from specbench_operator.cluster.object_cache import Scope
from specbench_operator.settings import OperatorSettings

BEAT_S = 1.0
Check = Callable[[], str | None]
"""Returns the problem, or None if there is none."""


@dataclass(frozen=True)
class _Expected:
    """A watch should reach this version; `since`: when the API server reported it."""

    version: int
    since: float


class Liveness:
    """Collects signs of life.

    `longest_s` returns for how long the oldest reconciliation has been running, `reached` the version that each watch
    has reached.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        longest_s: Callable[[], float],
        reached: Callable[[], Mapping[Scope, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._longest_s = longest_s
        self._reached = reached
        self._clock = clock
        self._expected: dict[Scope, _Expected] = {}
        self._last_beat = clock()

    def stored(self, versions: Mapping[Scope, int]) -> None:
        """The API server has stored these versions, which the watches should reach.

        A watch that is suspected is healthy again if it has reached its version, although not the earlier one.
        """
        now, late, reached = self._clock(), self._late(), self._reached()
        self._expected = {
            **{scope: _Expected(version, now) for scope, version in versions.items()},
            **{scope: row for scope, row in late.items() if reached.get(scope, -1) < versions.get(scope, -1)},
        }

    def suspects(self) -> set[Scope]:
        """The watches that have been behind their collection for half of the time after which they count as broken."""
        now, patience_s = self._clock(), self._settings.watch_silence_s / 2
        return {scope for scope, row in self._late().items() if now - row.since > patience_s}

    def unreachable(self) -> None:
        """The API server does not answer, so no watch can be judged."""
        self._expected = {}

    def _late(self) -> dict[Scope, _Expected]:
        reached = self._reached()
        return {scope: row for scope, row in self._expected.items() if reached.get(scope, -1) < row.version}

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
        waits = {scope: now - row.since for scope, row in self._late().items()}
        late = {scope: wait_s for scope, wait_s in waits.items() if wait_s > settings.watch_silence_s}
        if late:
            kind, namespace = oldest = max(late, key=lambda scope: late[scope])
            where = f" in the namespace {namespace}" if namespace else ""
            return f"the watch of {kind}s{where} has been behind the API server for {late[oldest]:.0f} s"
        if self._longest_s() > settings.worker_stuck_s:
            return f"a reconciliation has been running for {self._longest_s():.0f} s"
        if now - self._last_beat > settings.loop_lag_s:
            return f"the event loop is {now - self._last_beat:.0f} s late"
        return None


async def serve_probes(settings: OperatorSettings, checks: Mapping[str, Check]) -> None:
    """Answer the checks' paths until cancelled: 200, or 503 with the problem. Raises OSError if the port is in use.

    /healthz fails if a restart helps, /readyz until everything was listed.
    """
    app = web.Application()
    for path, check in checks.items():
        app.router.add_get(path, partial(_answer, check))
    # A log line for each probe of the kubelet would hide the others.
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.listen_host, settings.liveness_port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def _answer(check: Check, _request: web.Request) -> web.Response:
    problem = check()
    return web.Response(text=problem or "ok", status=503 if problem else 200)
