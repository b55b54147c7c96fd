"""Watches and relist: both only put names on the work queue.

An event of a run, its Jobs or its pods queues the run. An event of a campaign or of one of its runs queues the
campaign.

Only kopf's `on.event` handlers are used, because they need no finalizer, no annotation and no memory. A finalizer would
block the deletion of runs while the operator is down. Retries are done by the work queue instead of kopf.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf

from specbench_api import GROUP, VERSION
from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER
from specbench_operator.cluster.api import CAMPAIGN, CAMPAIGN_PLURAL, PAGE_OF_SPECS, RUN, RUN_PLURAL
from specbench_operator.cluster.campaigns import CampaignObserver
from specbench_operator.cluster.observer import CHILD_SELECTOR, RunObserver
from specbench_operator.errors import OperatorError
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.reconcilers import GateWaiters, Workers
from specbench_operator.handlers.watch_session import open_session
from specbench_operator.handlers.work_queue import ResourceKey, WorkQueue
from specbench_operator.settings import OperatorSettings
from specbench_operator.telemetry import Telemetry

WATCH_TIMEOUT_S = 300
"""A watch request is renewed after this time in seconds, whatever the server's own limit is."""
_WATCHED_CHILDREN = (("batch", "v1", "jobs"), ("", "v1", "pods"))


def build_registry(
    queue: WorkQueue, liveness: Liveness, telemetry: Telemetry, gate_waiters: GateWaiters
) -> kopf.OperatorRegistry:
    """The watch handlers in a separate registry, so that importing this module registers nothing."""
    registry = kopf.OperatorRegistry()

    def record_and_queue(key: ResourceKey, body: kopf.Body) -> None:
        telemetry.watched(time.time())
        liveness.watched(key, str(body["metadata"].get("resourceVersion", "")))
        queue.add(key)

    async def on_run(name: str, namespace: str | None, body: kopf.Body, labels: kopf.Labels, **_: Any) -> None:
        key = ResourceKey(RUN, namespace or "", name)
        record_and_queue(key, body)
        for waiter in gate_waiters.waiters_of(key, body):
            queue.add(waiter)
        if LABEL_CAMPAIGN in labels:
            queue.add(ResourceKey(CAMPAIGN, namespace or "", labels[LABEL_CAMPAIGN]))

    async def on_campaign(name: str, namespace: str | None, body: kopf.Body, **_: Any) -> None:
        record_and_queue(ResourceKey(CAMPAIGN, namespace or "", name), body)

    async def on_child(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
        telemetry.watched(time.time())
        if LABEL_RUN in labels:
            queue.add(ResourceKey(RUN, namespace or "", labels[LABEL_RUN]))

    kopf.on.event(GROUP, VERSION, RUN_PLURAL, registry=registry)(on_run)
    kopf.on.event(GROUP, VERSION, CAMPAIGN_PLURAL, registry=registry)(on_campaign)
    for group, version, plural in _WATCHED_CHILDREN:
        ours = {LABEL_MANAGED: MANAGER}
        kopf.on.event(group, version, plural, labels=ours, registry=registry, id=f"on_{plural}")(on_child)
    _add_activities(registry, queue, liveness)
    return registry


def _add_activities(registry: kopf.OperatorRegistry, queue: WorkQueue, liveness: Liveness) -> None:
    """Add the liveness probe, and how kopf authenticates to the API server."""

    async def on_probe(**_: Any) -> dict[str, int]:
        problem = liveness.problem()
        if problem:
            raise kopf.PermanentError(problem)
        return {"queued": queue.depth}

    async def on_login(**kwargs: Any) -> kopf.AiohttpSession | None:
        info = await asyncio.to_thread(kopf.login_via_client, **kwargs)
        return None if info is None else open_session(info)

    kopf.on.probe(id="specbench", registry=registry)(on_probe)
    kopf.on.login(registry=registry)(on_login)


def kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    """Kopf's settings: fixed resources, server-side filters, and a timeout for every request."""
    chosen = kopf.OperatorSettings()
    # Without scanning, kopf needs no right to list all resource types of the cluster.
    chosen.scanning.disabled = True
    chosen.posting.level = logging.WARNING
    chosen.watching.chunk_size = PAGE_OF_SPECS
    chosen.networking.request_timeout = settings.request_timeout_s
    chosen.networking.connect_timeout = settings.request_timeout_s
    chosen.watching.server_timeout = WATCH_TIMEOUT_S
    chosen.watching.client_timeout = WATCH_TIMEOUT_S + settings.request_timeout_s
    chosen.watching.connect_timeout = settings.request_timeout_s
    # The API server filters by label, so the operator does not receive events of all Jobs and pods of the cluster.
    for child in _WATCHED_CHILDREN:
        chosen.watching.label_selectors[child] = CHILD_SELECTOR
    return chosen


CAMPAIGN_CRD_MISSING = (
    "the definition of SpecBenchCampaign is not installed, so the operator serves only SpecBenchRuns: install it"
    " (crds.install=true, or kubectl apply --server-side -f crds/); the operator then restarts automatically"
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Relist:
    """Lists all runs and campaigns periodically and queues them.

    Watches can miss events, for example while the API server restarts, and can fail silently. The relist bounds how
    long such a gap lasts. It also feeds the metrics and the liveness check.
    """

    observer: RunObserver
    campaigns: CampaignObserver
    queue: WorkQueue
    workers: Workers
    liveness: Liveness
    telemetry: Telemetry
    settings: OperatorSettings
    logged: set[str] = field(default_factory=set)
    """Messages that were logged already, because each is logged once per process."""

    async def keep_listing(self) -> None:
        """List forever. An unreachable API server is logged and tried again; it is no reason to restart."""
        while True:
            try:
                await self.list_once()
            except OperatorError as error:
                self.telemetry.failed(error.kind)
                _log.error("runs and campaigns cannot be listed: %s", error)
            await asyncio.sleep(self.settings.relist_s)

    async def list_once(self) -> None:
        """List once, and queue every object that is not at rest. Raises Retry."""
        runs, campaigns = await asyncio.to_thread(self._list)
        found = [*((RUN, run) for run in runs), *((CAMPAIGN, campaign) for campaign in campaigns)]
        versions = {resource_key(kind, raw): str(raw["metadata"]["resourceVersion"]) for kind, raw in found}
        self.liveness.relisted(versions)
        self.telemetry.counted((run.get("status") or {}).get("phase", "Pending") for run in runs)
        self.telemetry.counted_campaigns(campaigns)
        for key, version in versions.items():
            if not self.workers.rests(key, version):
                self.queue.add(key)

    def _list(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        namespaces: tuple[str | None, ...] = self.settings.namespaces or (None,)
        runs = [run for namespace in namespaces for run in self.observer.runs(namespace)]
        campaigns = [self.campaigns.campaigns(namespace) for namespace in namespaces]
        if None in campaigns and CAMPAIGN_CRD_MISSING not in self.logged:
            self.logged.add(CAMPAIGN_CRD_MISSING)
            _log.warning(CAMPAIGN_CRD_MISSING)
        return runs, [campaign for found in campaigns for campaign in found or ()]


def resource_key(kind: str, raw: Mapping[str, Any]) -> ResourceKey:
    """The key of a listed run or campaign."""
    return ResourceKey(kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
