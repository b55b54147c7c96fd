"""kopf's watches: every event of a run or of its Jobs and pods puts the run's name on the queue, and does no more.

An event of a campaign, or of one of its runs, puts the campaign's name there.

Only `on.event`: it needs no finalizer, no annotation and no memory. What kopf would retry or remember is done by the
queue and by reading again.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import kopf

from specbench_api import GROUP, VERSION
from specbench_api.campaign.names import LABEL_CAMPAIGN
from specbench_api.plan.names import LABEL_MANAGED, LABEL_RUN, MANAGER
from specbench_operator.cluster.kinds import CAMPAIGN, CAMPAIGN_PLURAL, RUN, RUN_PLURAL
from specbench_operator.cluster.observe import SELECTOR
from specbench_operator.handlers.awaiting import Awaiting
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.queue import Key, WorkQueue
from specbench_operator.settings import Settings
from specbench_operator.telemetry import Telemetry

WATCH_S = 300
"""A watch is renewed so often, whatever the server's own limit is."""
_CHILDREN = (("batch", "v1", "jobs"), ("", "v1", "pods"))


def registry_of(
    queue: WorkQueue, liveness: Liveness, telemetry: Telemetry, awaiting: Awaiting
) -> kopf.OperatorRegistry:
    """Handlers in a registry of their own: importing this module registers nothing."""
    registry = kopf.OperatorRegistry()

    def seen(key: Key, body: kopf.Body) -> None:
        telemetry.watched(time.time())
        liveness.watched(key, str(body["metadata"].get("resourceVersion", "")))
        queue.add(key)

    async def on_run(name: str, namespace: str | None, body: kopf.Body, labels: kopf.Labels, **_: Any) -> None:
        key = Key(RUN, namespace or "", name)
        seen(key, body)
        for waiter in awaiting.ended(key, body):
            queue.add(waiter)
        if LABEL_CAMPAIGN in labels:
            queue.add(Key(CAMPAIGN, namespace or "", labels[LABEL_CAMPAIGN]))

    async def on_campaign(name: str, namespace: str | None, body: kopf.Body, **_: Any) -> None:
        seen(Key(CAMPAIGN, namespace or "", name), body)

    async def on_child(namespace: str | None, labels: kopf.Labels, **_: Any) -> None:
        telemetry.watched(time.time())
        if LABEL_RUN in labels:
            queue.add(Key(RUN, namespace or "", labels[LABEL_RUN]))

    kopf.on.event(GROUP, VERSION, RUN_PLURAL, registry=registry)(on_run)
    kopf.on.event(GROUP, VERSION, CAMPAIGN_PLURAL, registry=registry)(on_campaign)
    for group, version, plural in _CHILDREN:
        marked = {LABEL_MANAGED: MANAGER}
        kopf.on.event(group, version, plural, labels=marked, registry=registry, id=f"on_{plural}")(on_child)
    _add_activities(registry, queue, liveness)
    return registry


def _add_activities(registry: kopf.OperatorRegistry, queue: WorkQueue, liveness: Liveness) -> None:
    """What the kubelet asks, and how kopf logs in."""

    async def on_probe(**_: Any) -> dict[str, int]:
        ailment = liveness.ailment()
        if ailment:
            raise kopf.PermanentError(ailment)
        return {"queued": queue.depth}

    def on_login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_client(**kwargs)

    kopf.on.probe(id="specbench", registry=registry)(on_probe)
    kopf.on.login(registry=registry)(on_login)


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Kopf as we want it: fixed resources, server-side filters, every request bounded."""
    chosen = kopf.OperatorSettings()
    chosen.scanning.disabled = True
    chosen.posting.level = logging.WARNING
    chosen.networking.request_timeout = settings.request_timeout_s
    chosen.networking.connect_timeout = settings.request_timeout_s
    chosen.watching.server_timeout = WATCH_S
    chosen.watching.client_timeout = WATCH_S + settings.request_timeout_s
    chosen.watching.connect_timeout = settings.request_timeout_s
    for child in _CHILDREN:
        chosen.watching.label_selectors[child] = SELECTOR
    return chosen
