"""Reconciliation of one object: observe, decide, act, write status; and how each error is handled.

An object is looked at in the cache first. If there is anything to do beyond reporting progress, it is observed again,
now from the API server, and only that observation is decided and acted on. Its store is read again only if the cache
was outdated. So the cache can delay a decision, but never
make a wrong one, and a look that finds nothing to do sends no request. Changes of a campaign's runs that start nothing
are made without the second look, because the API server refuses them if a run is not as it was observed.

A run whose decision needs its store is reconciled in two steps: the first observes the cluster and starts a look at the
store, the second decides when the store has answered. See `store_looks`.

Changed     somebody else wrote the object: reconcile again soon; not counted as an error
Retry       reported in status; reconciled again with back-off
Stop        reported in status as Stalled; reconciled again with back-off
other       a bug: logged with its traceback, counted, reconciled again with back-off

Status is always recomputed from the observation and written last. If the operator dies between acting and writing, the
next reconciliation observes what was done and writes the same status.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from specbench_api.api_model import ApiModel
from specbench_api.fence.check import FenceCheck
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_api.spec.conditions import IN_PROGRESS_PHASES, Phase
from specbench_api.spec.status import RunStatus
from specbench_operator.campaign.decide import (
    campaign_status_after_error,
    decide_campaign,
    has_round_finished,
    is_safe_if_outdated,
)
from specbench_operator.cluster.campaign_observer import CampaignObserver
from specbench_operator.cluster.kubernetes_api import Forbidden, StillForbidden
from specbench_operator.cluster.run_observer import RunObserver, is_same_cluster, store_of, with_store_failure
from specbench_operator.cluster.writer import Writer
from specbench_operator.errors import Changed, OperatorError
from specbench_operator.handlers.store_looks import FRESH_S, StoreKey, StoreLooks
from specbench_operator.handlers.work_queue import Backoff, ResourceKey, WorkQueue
from specbench_operator.run.decide import decide_run, has_finished, only_reports_progress, status_after_error
from specbench_operator.settings import OperatorSettings
from specbench_operator.state.campaign import CampaignObservation
from specbench_operator.state.conditions import read_status
from specbench_operator.state.run import WARNING, KubernetesEvent, RunDecision, RunObservation
from specbench_operator.telemetry import Telemetry

CONFLICT_BACKOFF = Backoff(first_s=0.1, cap_s=2.0)
"""A conflict is over once the watch has delivered what changed; until then each try would send the same requests."""
RIGHTS_BACKOFF = Backoff(cap_s=15.0)
"""While rights are missing, tries send no requests, and rights that return are to be used soon."""
FINISHED_RETRY_S = 300.0
"""How long until a finished run is looked at again whose children the operator may not read, in seconds."""
NOT_LISTED_RETRY_S = 0.5
BEGUN_S = 60.0
"""How long a run is remembered, in seconds: longer than a list of its namespace is used."""
_log = logging.getLogger(__name__)
_V = TypeVar("_V")


@dataclass(frozen=True)
class ReconcileResult:
    """The outcome of one reconciliation that raised no error."""

    requeue_after_s: float | None = None
    resting: str | None = None
    """resourceVersion at which nothing is left to do; None if there is something left."""
    awaits: frozenset[str] = frozenset()
    """Names of runs of the same namespace: this run is reconciled again when one of them ends."""
    waits_for_store: bool = False
    """Nothing was decided: the run is reconciled again when its store has answered."""


Reconcile = Callable[[ResourceKey], ReconcileResult]
"""Reconciles one object once. Called from several threads, but never for the same key at the same time.

Raises OperatorError after reporting it in the status."""


@dataclass
class BegunRuns:
    """The runs that began a moment ago, which lists of their namespace do not show as in progress yet.

    Without this memory, runs that are resumed together would all begin, whatever the limit of their namespace is. It is
    safe to lose on restart: by then, status shows the runs as in progress. Safe for use from several threads; runs of
    which one may begin are decided one at a time.
    """

    clock: Callable[[], float] = time.monotonic
    _until: dict[str, float] = field(default_factory=dict)
    """UID → until when the run counts as in progress."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def deciding(self, observed: RunObservation) -> Iterator[RunObservation]:
        """Yield the observation, in which the runs that just began are in progress."""
        if not observed.namespace_runs:
            yield observed
            return
        with self._lock:
            now = self.clock()
            self._until = {uid: until for uid, until in self._until.items() if now < until}
            yield replace(
                observed,
                namespace_runs=tuple(
                    replace(run, phase=Phase.STARTING) if self._counts(run.uid, run.phase) else run
                    for run in observed.namespace_runs
                ),
            )

    def note(self, observed: RunObservation, decision: RunDecision) -> None:
        """Remember the run if it begins now. Call it within `deciding`."""
        if observed.namespace_runs and decision.status.phase in IN_PROGRESS_PHASES:
            self._until[observed.resource["metadata"]["uid"]] = self.clock() + BEGUN_S

    def _counts(self, uid: str, phase: str) -> bool:
        return uid in self._until and phase not in IN_PROGRESS_PHASES


@dataclass(frozen=True)
class RunReconciler:
    """Reconciles SpecBenchRuns. `observer` reads from the API server, `cached` from the cache."""

    observer: RunObserver
    cached: RunObserver
    writer: Writer
    settings: OperatorSettings
    telemetry: Telemetry
    looks: StoreLooks
    now: Callable[[], datetime]
    begun: BegunRuns = field(default_factory=BegunRuns)

    def reconcile(self, key: ResourceKey) -> ReconcileResult:
        """Reconcile a run once. Raises OperatorError after reporting it in the status."""
        with self.telemetry.timed(key.kind):
            try:
                return self._advance(key)
            except Forbidden as error:
                finished = self._report_missing_right(key, error)
                if finished and isinstance(error, StillForbidden):
                    return ReconcileResult(FINISHED_RETRY_S, finished)
                raise

    def _advance(self, key: ResourceKey) -> ReconcileResult:
        """Act on a finished look at the store, or observe the cluster and start a look."""
        answer = self.looks.take(key)
        if answer.in_progress:
            return ReconcileResult(waits_for_store=True)
        if answer.observed is not None:
            result = self._decide(key, answer.observed)
            return replace(result, requeue_after_s=0.0, resting=None) if answer.again else result
        return self._observe(key, self.cached)

    def _observe(
        self, key: ResourceKey, observer: RunObserver, earlier: RunObservation | None = None
    ) -> ReconcileResult:
        """Observe the cluster, then decide, or start a look at the store.

        If nothing has changed since an `earlier` observation, that one is decided on, with what the store contained.
        """
        observed = observer.observe_cluster(key.namespace, key.name)
        if observed is None:
            self.looks.forget(key)
            return ReconcileResult()
        if earlier and is_same_cluster(observed, earlier):
            return self._decide(key, replace(earlier, live=observed.live))
        s3 = store_of(observed)
        if s3 is None:
            return self._decide(key, observed)
        store = StoreKey(key.namespace, (s3.endpoint, s3.region, s3.bucket, s3.secret_name))
        if failure := self.looks.failure(key, store):
            return self._decide(key, with_store_failure(observed, failure))
        self.looks.start(key, store, partial(self._read_store, key, observer, observed))
        return ReconcileResult(waits_for_store=True)

    def _read_store(
        self, key: ResourceKey, observer: RunObserver, observed: RunObservation, age_s: float
    ) -> RunObservation | None:
        """Complete the observation in the look's thread. One that has waited for long is made again."""
        current = observed if age_s < FRESH_S else observer.observe_cluster(key.namespace, key.name)
        return observer.read_store(current) if current else None

    def _report_missing_right(self, key: ResourceKey, error: Forbidden) -> str | None:
        """Write the status of a run whose children the operator may not read, so that it does not wait silently.

        An operator that watches all namespaces may execute runs only in some of them. The status of a finished run
        stays; returns its resourceVersion.
        """
        resource = self.cached.read_run(key.namespace, key.name)
        if resource is None:
            return None
        previous = read_status(RunStatus, resource)
        if has_finished(previous):
            return str(resource["metadata"]["resourceVersion"])
        self.writer.report(resource, status_after_error(resource, previous, error, self.now()), self.now())
        return None

    def _decide(self, key: ResourceKey, observed: RunObservation) -> ReconcileResult:
        """Decide, and act if the observation is live or only progress is reported; else observe the API server."""
        now, resource = self.now(), observed.resource
        previous = read_status(RunStatus, resource)
        with self.begun.deciding(observed) as current:
            decision = decide_run(current, self.settings, now)
            if observed.live:
                self.begun.note(current, decision)
        if not (observed.live or only_reports_progress(previous, decision)):
            return self._observe(key, self.observer, observed)
        with _errors_reported(
            self.writer,
            resource,
            now,
            lambda error: status_after_error(resource, decision.status, error, now),
            finished=has_finished(previous),
        ):
            self.writer.act_on_run(resource, decision)
        if self.writer.report(resource, decision.status, now, decision.events):
            self.telemetry.wrote(previous, decision.status)
            return ReconcileResult(decision.requeue_after_s, awaits=decision.awaits)
        # A run is at rest only after a reconciliation that wrote nothing: a write changes the resourceVersion.
        version = resource["metadata"]["resourceVersion"] if decision.at_rest else None
        return ReconcileResult(decision.requeue_after_s, version, decision.awaits)


@dataclass(frozen=True)
class CampaignReconciler:
    """Reconciles SpecBenchCampaigns. `observer` reads from the API server, `cached` from the cache.

    A campaign is at rest after a reconciliation that wrote nothing, because events of its runs queue it.
    """

    observer: CampaignObserver
    cached: CampaignObserver
    writer: Writer
    telemetry: Telemetry
    now: Callable[[], datetime]
    fence: FenceCheck | None = None

    def reconcile(self, key: ResourceKey) -> ReconcileResult:
        """Reconcile a campaign once. Raises OperatorError after reporting it in the status."""
        with self.telemetry.timed(key.kind):
            return self._observe(key, self.cached)

    def _observe(self, key: ResourceKey, observer: CampaignObserver) -> ReconcileResult:
        observed = observer.observe(key.namespace, key.name)
        return ReconcileResult() if observed is None else self._decide(key, observed)

    def _decide(self, key: ResourceKey, observed: CampaignObservation) -> ReconcileResult:
        now, resource = self.now(), observed.resource
        decision, previous = decide_campaign(observed, now, self.fence), read_status(CampaignStatus, resource)
        if not (observed.live or is_safe_if_outdated(previous, decision)):
            return self._observe(key, self.observer)
        with _errors_reported(
            self.writer,
            resource,
            now,
            lambda error: campaign_status_after_error(resource, error, now),
            finished=has_round_finished(previous),
        ):
            self.writer.act_on_campaign(resource, decision)
        if self.writer.report(resource, decision.status, now, decision.events):
            return ReconcileResult(decision.requeue_after_s)
        acted = decision.patch or decision.delete or decision.create
        return ReconcileResult(decision.requeue_after_s, None if acted else resource["metadata"]["resourceVersion"])


@contextmanager
def _errors_reported(
    writer: Writer,
    resource: Mapping[str, Any],
    now: datetime,
    status_after: Callable[[OperatorError], ApiModel],
    *,
    finished: bool,
) -> Iterator[None]:
    """Write the status after an error before raising it. Changed only raises, because the observation is outdated.

    The status of a finished run or round does not change any more, so its errors are also posted as Events.
    """
    try:
        yield
    except Changed:
        raise
    except OperatorError as error:
        writer.report(resource, status_after(error), now)
        if finished:
            writer.post_events(resource, (KubernetesEvent(WARNING, error.reason, str(error)),), now)
        raise


class Workers:
    """Takes keys from the queue, runs their reconcilers in threads, and remembers which objects are at rest.

    `ready`: whether everything in a namespace has been listed once. Before that, what is missing may exist.
    """

    def __init__(
        self, queue: WorkQueue, reconcilers: Mapping[str, Reconcile], ready: Callable[[str], bool], threads: int = 1
    ) -> None:
        self._queue = queue
        self._reconcilers = reconcilers
        self._ready = ready
        # asyncio's own threads are fewer than the chart's largest number of workers, unless there are many cores.
        self._threads = ThreadPoolExecutor(threads, "worker")
        self._resting: dict[ResourceKey, str] = {}
        self._running: set[asyncio.Future[ReconcileResult]] = set()
        self._awaited: dict[ResourceKey, frozenset[str]] = {}
        """Waiting run → names of the runs for one of which it or its gate waits.

        This is an in-memory optimisation and safe to lose on restart: an operator that starts reconciles every run, and
        each waiting run is also reconciled again after a while."""

    def rests(self, key: ResourceKey, version: str) -> bool:
        """Whether nothing is left to do for this object at this resourceVersion."""
        return self._resting.get(key) == version

    def waiters_of(self, key: ResourceKey, run: Mapping[str, Any]) -> list[ResourceKey]:
        """The runs to reconcile because this run has ended, sorted; none while it has not."""
        if not (run.get("status") or {}).get("completionTime"):
            return []
        return sorted(
            waiter for waiter, names in self._awaited.items() if waiter.namespace == key.namespace and key.name in names
        )

    async def work_once(self) -> None:
        """Process one key."""
        key = await self._queue.get()
        if not self._ready(key.namespace):
            self._queue.done(key, NOT_LISTED_RETRY_S)
            return
        try:
            outcome = await self._reconcile(key)
        except Changed:
            self._queue.failed(key, CONFLICT_BACKOFF)
        except StillForbidden:
            self._queue.failed(key, RIGHTS_BACKOFF)
        except OperatorError as error:
            self._failed(key, error.kind, error)
        except Exception as error:  # noqa: BLE001 - a bug must not end the operator: it is logged, counted and retried
            self._failed(key, "Bug", error)
        else:
            if outcome.waits_for_store:
                self._queue.defer(key)
                return
            _remember(self._resting, key, outcome.resting)
            _remember(self._awaited, key, outcome.awaits)
            self._queue.done(key, outcome.requeue_after_s)

    async def finish(self, within_s: float) -> None:
        """Wait for the threads that are still reconciling: cancelling `work_once` does not end them."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)

    async def _reconcile(self, key: ResourceKey) -> ReconcileResult:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, self._reconcilers[key.kind], key)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    def _failed(self, key: ResourceKey, kind: str, error: Exception) -> None:
        wait_s = self._queue.failed(key)
        bug = error if kind == "Bug" else None
        _log.error("%s %s/%s: %s: %s; retrying in %.0f s", *key, kind, error, wait_s, exc_info=bug)


def _remember(memory: dict[ResourceKey, _V], key: ResourceKey, value: _V | None) -> None:
    memory.pop(key, None)
    if value:
        memory[key] = value
