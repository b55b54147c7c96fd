"""The operator process: reads its settings, then runs the watches, the workers and the resync.

If any of these tasks ends, or a root task of kopf, the process ends, and Kubernetes restarts it. An operator that is
only partly alive is worse than one that restarts, because a restarted one reads everything again.

Of several replicas one leads. The others are standbys: their watches and their resync run and fill the queue, and their
workers take nothing from it until they lead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Collection
from functools import partial

import kopf

from specbench_operator.cluster.campaign_observer import CampaignObserver, ParsedRuns
from specbench_operator.cluster.kubernetes_api import CAMPAIGN, RUN, KubernetesApi, connect
from specbench_operator.cluster.leader_election import (
    REQUEST_TIMEOUT_S,
    LeaderElection,
    Leadership,
    LeaseLost,
    process_identity,
)
from specbench_operator.cluster.object_cache import CacheReader, ObjectCache
from specbench_operator.cluster.results import ResultsReader
from specbench_operator.cluster.run_observer import RunObserver
from specbench_operator.cluster.secrets import SecretReader
from specbench_operator.cluster.writer import Writer
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.handlers.list_watch import (
    Resync,
    WatchHandlers,
    build_registry,
    kopf_settings,
    unlisted,
    watched_kinds,
)
from specbench_operator.handlers.liveness import Check, Liveness, serve_probes
from specbench_operator.handlers.reconcilers import CampaignReconciler, RunReconciler, Workers
from specbench_operator.handlers.store_looks import StoreLooks
from specbench_operator.handlers.work_queue import WorkQueue
from specbench_operator.settings import OperatorSettings
from specbench_operator.telemetry import Telemetry

FAILED = 1
BAD_SETTINGS = 2
START_RETRY_S = 5.0
FINISH_WITHIN_S = 5.0
"""How long a stopped operator waits for what it has begun: shorter than its Lease lasts."""
LEASE_LOST = 3
_log = logging.getLogger(__name__)


def run() -> None:
    """Run until stopped.

    Exits with 2 if the settings are invalid or no cluster is configured, with 3 if another replica has taken over, and
    with 1 after any other error.
    """
    # kopf looks up the user's name, and an image that runs under a numeric user ID has none.
    os.environ.setdefault("USER", "specbench")
    try:
        settings = OperatorSettings.from_env(os.environ)
        set_up_logs(settings)
        leadership = Leadership()
        api = connect(settings.request_timeout_s, leadership)
        election = LeaderElection(
            connect(REQUEST_TIMEOUT_S),
            leadership,
            settings.lease,
            process_identity(settings.pod_name),
        )
    except Stop as error:
        sys.stderr.write(f"specbench-operator: {error}\n")
        sys.exit(BAD_SETTINGS)
    asyncio.run(_operate_until_error(settings, api, election))


async def _operate_until_error(settings: OperatorSettings, api: KubernetesApi, election: LeaderElection) -> None:
    try:
        await operate(settings, api, election)
    except Exception as error:  # noqa: BLE001 - whatever it is, the process ends with it
        lost = isinstance(error, LeaseLost)
        _log.error("the operator ends: %s", error, exc_info=None if lost else error)
        logging.shutdown()
        # Not sys.exit, which would wait for all tasks and threads: watches of kopf that ignore their cancellation once
        # another one has failed, and threads that wait for a server that does not answer.
        os._exit(LEASE_LOST if lost else FAILED)


async def operate(
    settings: OperatorSettings, api: KubernetesApi, election: LeaderElection, stop: asyncio.Event | None = None
) -> None:
    """Create all parts and run them until `stop` is set or one of them ends. Raises the error that ended it, if any."""
    leadership = election.leadership
    _log.info("watching %s", ", ".join(settings.namespaces) or "all namespaces")
    telemetry, queue = Telemetry(settings.metrics_runs_per_namespace), WorkQueue()
    telemetry.follow_leadership(leadership.holds)
    telemetry.queue_depth.set_function(lambda: queue.depth if leadership.holds() else 0)
    telemetry.serve(settings.listen_host, settings.metrics_port)
    api.count_request = lambda method: telemetry.requests.labels(method).inc()
    cache = ObjectCache(await _watched_kinds(api, settings), settings.serves)
    api.written = cache
    cached = CacheReader(cache, api)
    secrets = SecretReader(cached, opt_in=settings.secrets_opt_in)
    results = ResultsReader(secrets, settings.s3_timeout_s, settings.s3_look_deadline_s, settings.fence)
    looks = StoreLooks(queue.adder_for_threads(), is_routine=queue.is_routine)
    telemetry.waiting_looks.set_function(lambda: looks.waiting)
    observe_runs = partial(
        RunObserver,
        results=results,
        others=cached,
        leader_worker_sets=settings.leader_worker_sets,
        network_policies=settings.network_policies is not None,
        limits=settings.limits,
        default_store=settings.fence.default_store if settings.fence else None,
    )
    live_runs = observe_runs(api, secrets=SecretReader(api, opt_in=settings.secrets_opt_in))
    writer, parsed_runs = Writer(api), ParsedRuns()
    cached_runs = observe_runs(cached, secrets=secrets)
    run_reconciler = RunReconciler(live_runs, cached_runs, writer, settings, telemetry, looks, api.now)
    campaign_reconciler = CampaignReconciler(
        CampaignObserver(api, cached, parsed_runs),
        CampaignObserver(cached, parsed=parsed_runs),
        writer,
        telemetry,
        api.now,
        fence=settings.fence_check,
    )
    reconcilers = {RUN: run_reconciler.reconcile, CAMPAIGN: campaign_reconciler.reconcile}
    workers = Workers(queue, reconcilers, cache.ready, settings.workers)
    liveness = Liveness(settings, queue.longest_s, lambda: cache.versions)
    resync = Resync(api, cache, queue, workers, liveness, telemetry, settings)
    tasks = [asyncio.create_task(election.run())]
    tasks += [asyncio.create_task(resync.keep_going()), asyncio.create_task(liveness.keep_beating())]
    probes: dict[str, Check] = {"/healthz": liveness.problem, "/readyz": partial(unlisted, cache, settings)}
    tasks += [asyncio.create_task(serve_probes(settings, probes))]
    tasks += [asyncio.create_task(_work_while_leading(workers, leadership)) for _ in range(settings.workers)]
    registry = build_registry(WatchHandlers(queue, telemetry, workers), cache)
    try:
        await _until_one_ends([*await _watch(settings, cache.kinds, registry, stop), *tasks])
        # What was begun is finished first, because only the leader may write.
        await workers.finish(FINISH_WITHIN_S)
    finally:
        await election.release()


async def _work_while_leading(workers: Workers, leadership: Leadership) -> None:
    while True:
        await leadership.wait()
        await workers.work_once()


async def _watched_kinds(api: KubernetesApi, settings: OperatorSettings) -> frozenset[str]:
    """Ask the API server until it answers; no reason to restart."""
    while True:
        try:
            return await asyncio.to_thread(watched_kinds, api, settings)
        except OperatorError as error:
            _log.error("the operator cannot start yet: %s", error)
            await asyncio.sleep(START_RETRY_S)


async def _watch(
    settings: OperatorSettings, kinds: frozenset[str], registry: kopf.OperatorRegistry, stop: asyncio.Event | None
) -> Collection[asyncio.Task[None]]:
    """Start kopf; returns its root tasks.

    Not `kopf.operator`, which waits for tasks that ignore their cancellation after one of its root tasks has failed.
    """
    return await kopf.spawn_tasks(
        registry=registry,
        settings=kopf_settings(settings, kinds),
        standalone=True,
        clusterwide=not settings.watched_namespaces,
        namespaces=settings.watched_namespaces,
        stop_flag=stop,
    )


async def _until_one_ends(tasks: list[asyncio.Task[None]]) -> None:
    """Raises the error of the one, while the others are still running."""
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    for task in rest:
        task.cancel()
    await asyncio.wait(rest, timeout=FINISH_WITHIN_S)


_LOG_CONTENTS = ("kubernetes", "botocore", "boto3", "s3transfer", "urllib3")
"""Libraries that may log requests and answers at level DEBUG. botocore logs headers with the session token."""


def set_up_logs(settings: OperatorSettings) -> None:
    """Log JSON lines to stderr; kopf's messages about every event only at level DEBUG."""
    kopf.configure(debug=settings.log_level == "DEBUG", log_format=kopf.LogFormat.JSON)
    logging.getLogger().setLevel(settings.log_level)
    for library in _LOG_CONTENTS:
        logging.getLogger(library).setLevel(max(logging.INFO, logging.getLogger().level))
    if settings.log_level != "DEBUG":
        logging.getLogger("kopf._cogs.clients.watching").addFilter(_is_no_repetition)
        # These log every event and every login.
        for noisy in ("kopf.objects", "kopf.activities"):
            logging.getLogger(noisy).setLevel(logging.WARNING)


def _is_no_repetition(record: logging.LogRecord) -> bool:
    """Whether a message of kopf about a failed request is about the first try. Resync reports a missing right."""
    message = record.getMessage()
    return not message.startswith("Request attempt ") or ("#1 " in message and "HTTP 403" not in message)
