"""The operator: settings from the environment, then watches, workers and the relist until one of them ends.

Whatever ends, ends the process: a half-dead operator is worse than one that is started again and reads everything anew.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from typing import Any

import kopf

from specbench_operator.cluster.act import Actor
from specbench_operator.cluster.api import Api, connect
from specbench_operator.cluster.campaigns import CampaignActor, CampaignObserver
from specbench_operator.cluster.kinds import CAMPAIGN, RUN
from specbench_operator.cluster.observe import Observer
from specbench_operator.cluster.results import Results
from specbench_operator.errors import Stop
from specbench_operator.handlers.campaigns import CampaignReconciler
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.queue import WorkQueue
from specbench_operator.handlers.reconciler import Reconciler, Reconciles, Workers
from specbench_operator.handlers.relist import Relist
from specbench_operator.handlers.watches import kopf_settings, registry_of
from specbench_operator.settings import Settings
from specbench_operator.telemetry import Telemetry

BAD_SETTINGS = 2
_log = logging.getLogger(__name__)


def run() -> None:
    """Run until told to stop. Exits with 2 where the settings cannot be used."""
    # kopf asks for the user's name; an image that runs under a bare number has none.
    os.environ.setdefault("USER", "specbench")
    try:
        settings = Settings.from_env(os.environ)
        set_up_logs(settings)
        api = connect(settings.request_timeout_s)
    except Stop as error:
        sys.stderr.write(f"specbench-operator: {error}\n")
        sys.exit(BAD_SETTINGS)
    asyncio.run(operate(settings, api))


async def operate(settings: Settings, api: Api, stop: asyncio.Event | None = None) -> None:
    """Join everything and run it. Raises what ended it, if that was an error."""
    _log.info("watching %s", ", ".join(settings.namespaces) or "all namespaces")
    telemetry, queue = Telemetry(), WorkQueue()
    telemetry.follow_depth(lambda: queue.depth)
    telemetry.serve(settings.metrics_port)
    results, campaigns = Results(api, settings.s3_timeout_s), CampaignObserver(api)
    observer = Observer(api, results, leader_worker_sets=settings.leader_worker_sets)
    reconcilers: dict[str, Reconciles] = {
        RUN: Reconciler(observer, Actor(api), settings, telemetry),
        CAMPAIGN: CampaignReconciler(campaigns, CampaignActor(api), Actor(api), telemetry),
    }
    workers = Workers(queue, reconcilers, telemetry)
    liveness = Liveness(settings, queue.longest_s)
    relist = Relist(observer, campaigns, queue, workers, liveness, telemetry, settings)
    # Ours first: kopf cancels in the end whatever tasks were begun after it.
    ours = [asyncio.create_task(relist.keep_listing()), asyncio.create_task(liveness.keep_beating())]
    ours += [asyncio.create_task(workers.work()) for _ in range(settings.workers)]
    await asyncio.sleep(0)
    watches = asyncio.create_task(_watch(settings, registry_of(queue, liveness, telemetry, workers.awaiting), stop))
    await _until_one_ends([watches, *ours])


def _watch(
    settings: Settings, registry: kopf.OperatorRegistry, stop: asyncio.Event | None
) -> Coroutine[Any, Any, None]:
    return kopf.operator(
        registry=registry,
        settings=kopf_settings(settings),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://0.0.0.0:{settings.liveness_port}/healthz",
        stop_flag=stop,
    )


async def _until_one_ends(tasks: list[asyncio.Task[None]]) -> None:
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        task.result()


def set_up_logs(settings: Settings) -> None:
    """JSON lines on stderr; kopf's chatter about each event only when asked for."""
    kopf.configure(debug=settings.log_level == "DEBUG", log_format=kopf.LogFormat.JSON)
    logging.getLogger().setLevel(settings.log_level)
    if settings.log_level != "DEBUG":
        for chatter in ("kopf.objects", "kopf.activities", "aiohttp.access"):  # events, and each probe of the kubelet
            logging.getLogger(chatter).setLevel(logging.WARNING)
