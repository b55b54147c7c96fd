"""All runs, looked at again every so often: what no watch told of is found, and what was missed heals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench_operator.cluster.observe import Observer
from specbench_operator.errors import OperatorError
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.queue import Key, WorkQueue
from specbench_operator.handlers.reconciler import Workers
from specbench_operator.settings import Settings
from specbench_operator.telemetry import Telemetry

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Relist:
    """Joins the relist with everything that wants to know what there is."""

    observer: Observer
    queue: WorkQueue
    workers: Workers
    liveness: Liveness
    telemetry: Telemetry
    settings: Settings

    async def keep_listing(self) -> None:
        """List for ever. An API server that is away is no reason to restart: it is asked again."""
        while True:
            try:
                await self.list_once()
            except OperatorError as error:
                self.telemetry.failed(type(error).__name__)
                _log.error("runs cannot be listed: %s", error)
            await asyncio.sleep(self.settings.relist_s)

    async def list_once(self) -> None:
        """List, and queue every run that has not come to rest. Raises Retry."""
        runs = await asyncio.to_thread(self._runs)
        versions = {key_of(run): str(run["metadata"]["resourceVersion"]) for run in runs}
        self.liveness.relisted(versions)
        self.telemetry.counted((run.get("status") or {}).get("phase", "Pending") for run in runs)
        for key, version in versions.items():
            if not self.workers.rests(key, version):
                self.queue.add(key)

    def _runs(self) -> Sequence[Mapping[str, Any]]:
        namespaces: tuple[str | None, ...] = self.settings.namespaces or (None,)
        return [run for namespace in namespaces for run in self.observer.runs(namespace)]


def key_of(run: Mapping[str, Any]) -> Key:
    """Namespace and name."""
    return run["metadata"]["namespace"], run["metadata"]["name"]
