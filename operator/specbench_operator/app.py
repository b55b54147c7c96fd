"""The operator process: reads its settings, then runs the watches, the workers and the relist.

If any of these tasks ends, the process ends, and Kubernetes restarts it. An operator that is only partly alive is worse
than one that restarts, because a restarted one reads everything again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from typing import Any

import kopf

from specbench_operator.cluster.api import CAMPAIGN, RUN, KubernetesApi, connect
from specbench_operator.cluster.campaigns import CampaignObserver, CampaignWriter
from specbench_operator.cluster.observer import RunObserver
from specbench_operator.cluster.results import ResultsReader
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.cluster.writer import RunWriter
from specbench_operator.errors import Stop
from specbench_operator.handlers.list_watch import Relist, build_registry, kopf_settings
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.reconcilers import CampaignReconciler, ReconcilerProtocol, RunReconciler, Workers
from specbench_operator.handlers.store_looks import StoreLooks
from specbench_operator.handlers.work_queue import WorkQueue
from specbench_operator.settings import OperatorSettings
from specbench_operator.telemetry import Telemetry

BAD_SETTINGS = 2
_log = logging.getLogger(__name__)


def run() -> None:
    """Run until stopped. Exits with 2 if the settings are invalid or no cluster is configured."""
    # kopf looks up the user's name, and an image that runs under a numeric user ID has none.
    os.environ.setdefault("USER", "specbench")
    try:
        settings = OperatorSettings.from_env(os.environ)
        set_up_logs(settings)
        api = connect(settings.request_timeout_s)
    except Stop as error:
        sys.stderr.write(f"specbench-operator: {error}\n")
        sys.exit(BAD_SETTINGS)
    asyncio.run(operate(settings, api))


async def operate(settings: OperatorSettings, api: KubernetesApi, stop: asyncio.Event | None = None) -> None:
    """Create all parts and run them until `stop` is set or one of them ends. Raises the error that ended it, if any."""
    _log.info("watching %s", ", ".join(settings.namespaces) or "all namespaces")
    telemetry, queue = Telemetry(), WorkQueue()
    telemetry.follow_depth(lambda: queue.depth)
    telemetry.serve(settings.metrics_port)
    secrets, campaigns = SecretReader(api, opt_in=settings.secrets_opt_in), CampaignObserver(api)
    results = ResultsReader(secrets, settings.s3_timeout_s, settings.s3_look_deadline_s, settings.fence)
    looks = StoreLooks(queue.adder_for_threads())
    telemetry.follow_waiting_looks(lambda: looks.waiting)
    observer = RunObserver(
        api,
        results,
        secrets,
        leader_worker_sets=settings.leader_worker_sets,
        network_policies=settings.network_policies is not None,
        limits=settings.limits,
    )
    reconcilers: dict[str, ReconcilerProtocol] = {
        RUN: RunReconciler(observer, RunWriter(api), settings, telemetry, looks),
        CAMPAIGN: CampaignReconciler(
            campaigns, CampaignWriter(api), RunWriter(api), telemetry, fence=settings.fence_check
        ),
    }
    workers = Workers(queue, reconcilers, telemetry)
    liveness = Liveness(settings, queue.longest_s)
    relist = Relist(observer, campaigns, queue, workers, liveness, telemetry, settings)
    # These tasks are created before kopf's, because kopf cancels all tasks that were created after it when it ends.
    tasks = [asyncio.create_task(relist.keep_listing()), asyncio.create_task(liveness.keep_beating())]
    tasks += [asyncio.create_task(workers.work()) for _ in range(settings.workers)]
    await asyncio.sleep(0)
    watches = asyncio.create_task(
        _watch(settings, build_registry(queue, liveness, telemetry, workers.gate_waiters), stop)
    )
    await _until_one_ends([watches, *tasks])


def _watch(
    settings: OperatorSettings, registry: kopf.OperatorRegistry, stop: asyncio.Event | None
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


_LOG_CONTENTS = ("kubernetes", "botocore", "boto3", "s3transfer", "urllib3")
"""Libraries that may log requests and answers at level DEBUG. botocore logs headers with the session token."""


def set_up_logs(settings: OperatorSettings) -> None:
    """Log JSON lines to stderr; kopf's messages about every event only at level DEBUG."""
    kopf.configure(debug=settings.log_level == "DEBUG", log_format=kopf.LogFormat.JSON)
    logging.getLogger().setLevel(settings.log_level)
    for library in _LOG_CONTENTS:
        logging.getLogger(library).setLevel(max(logging.INFO, logging.getLogger().level))
    if settings.log_level != "DEBUG":
        # These log every event and every liveness probe of the kubelet.
        for noisy in ("kopf.objects", "kopf.activities", "aiohttp.access"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
