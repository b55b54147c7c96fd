"""All runs and campaigns, looked at again every so often: what no watch told of is found, and what was missed heals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench_operator.cluster.campaigns import CampaignObserver
from specbench_operator.cluster.kinds import CAMPAIGN, RUN
from specbench_operator.cluster.observe import Observer
from specbench_operator.errors import OperatorError
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.queue import Key, WorkQueue
from specbench_operator.handlers.reconciler import Workers
from specbench_operator.settings import Settings
from specbench_operator.telemetry import Telemetry

UNKNOWN_KIND = (
    "the definition of SpecBenchCampaign is not installed, so campaigns are not served and runs are: install it"
    " (crds.install=true, or kubectl apply --server-side -f crds/); the operator then restarts by itself"
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Relist:
    """Joins the relist with everything that wants to know what there is."""

    observer: Observer
    campaigns: CampaignObserver
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
                _log.error("runs and campaigns cannot be listed: %s", error)
            await asyncio.sleep(self.settings.relist_s)

    async def list_once(self) -> None:
        """List, and queue whatever has not come to rest. Raises Retry."""
        runs, campaigns = await asyncio.to_thread(self._listed)
        found = [*((RUN, run) for run in runs), *((CAMPAIGN, campaign) for campaign in campaigns)]
        versions = {key_of(kind, raw): str(raw["metadata"]["resourceVersion"]) for kind, raw in found}
        self.liveness.relisted(versions)
        self.telemetry.counted((run.get("status") or {}).get("phase", "Pending") for run in runs)
        self.telemetry.counted_campaigns(campaigns)
        for key, version in versions.items():
            if not self.workers.rests(key, version):
                self.queue.add(key)

    def _listed(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        namespaces: tuple[str | None, ...] = self.settings.namespaces or (None,)
        runs = [run for namespace in namespaces for run in self.observer.runs(namespace)]
        campaigns = [self.campaigns.campaigns(namespace) for namespace in namespaces]
        if None in campaigns:
            _log.warning(UNKNOWN_KIND)
        return runs, [campaign for found in campaigns for campaign in found or ()]


def key_of(kind: str, raw: Mapping[str, Any]) -> Key:
    """Of a run or a campaign as it was listed."""
    return Key(kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
