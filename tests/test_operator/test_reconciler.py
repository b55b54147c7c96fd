"""Errors, runs that wait for another run, and runs that begin together: queue and status, with a fake cluster."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specbench_api.fence.model import Fence
from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState
from specbench_operator.cluster.kubernetes_api import EVENT, RUN, Forbidden, NotFound, StillForbidden
from specbench_operator.cluster.writer import Writer
from specbench_operator.errors import Changed, Retry, Stop
from specbench_operator.handlers.reconcilers import (
    BEGUN_S,
    FINISHED_RETRY_S,
    RIGHTS_BACKOFF,
    BegunRuns,
    ReconcileResult,
    RunReconciler,
    Workers,
)
from specbench_operator.handlers.store_looks import StoreLooks
from specbench_operator.handlers.work_queue import Backoff, ResourceKey, WorkQueue
from specbench_operator.run.decide import decide_run
from specbench_operator.state.run import NamespaceRun, RunDecision, RunObservation
from specbench_operator.telemetry import Telemetry
from specbench_testing.cluster_world import ClusterWorld, finished
from specbench_testing.fake_api import FakeApi
from specbench_testing.operator_builders import NOON, SETTINGS, Clock, operator_run

KEY = ResourceKey("SpecBenchRun", "default", "demo")


class ClusterWriter(Writer):
    """The real writer of status and events; it carries out decisions in a simulated cluster, or refuses them."""

    def __init__(self, api: FakeApi, cluster: FakeCluster) -> None:
        unchecked: Any = api
        super().__init__(unchecked, pause_s=lambda _: None)
        self._cluster = cluster

    def act_on_run(self, resource: Any, decision: RunDecision) -> None:
        self._cluster.refuse()
        world = self._cluster.world
        world.follow(replace(decision, status=world.status, events=()))


@dataclass
class FakeCluster:
    """Observes a ClusterWorld; its run is stored in an API server."""

    world: ClusterWorld = field(default_factory=ClusterWorld)
    refuse: Callable[[], None] = lambda: None
    refuse_reads: Callable[[], None] = lambda: None
    store_reads: int = 0

    def __post_init__(self) -> None:
        self.api = FakeApi.of(self.world.run)
        self.writer = ClusterWriter(self.api, self)

    @property
    def writes(self) -> int:
        """The number of writes of the status."""
        return self.api.verbs.count("apply")

    @property
    def posted(self) -> list[tuple[str, str]]:
        """Reason and message of each event."""
        return [(raw["reason"], raw["message"]) for raw in self.api.named(EVENT).values()]

    def read_run(self, namespace: str, name: str) -> Any:
        return copy.deepcopy(self.world.run)

    def observe_cluster(self, namespace: str, name: str) -> RunObservation | None:
        self.refuse_reads()
        observed = replace(self.world.observed(), stored=None)
        return replace(observed, resource=copy.deepcopy(observed.resource)) if (namespace, name) == KEY[1:] else None

    def read_store(self, observed: RunObservation) -> RunObservation:
        self.store_reads += 1
        return replace(observed, stored=self.world.observed().stored)


@dataclass
class CachedCluster:
    """What the cache shows of a FakeCluster."""

    cluster: FakeCluster
    outdated: RunObservation | None = None
    """What it shows instead of the present."""

    def read_run(self, namespace: str, name: str) -> Any:
        return self.cluster.read_run(namespace, name)

    def observe_cluster(self, namespace: str, name: str) -> RunObservation | None:
        observed = self.outdated or self.cluster.observe_cluster(namespace, name)
        return replace(observed, live=False) if observed else None

    def read_store(self, observed: RunObservation) -> RunObservation:
        return self.cluster.read_store(observed)


def raising(error: Exception) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    return refuse


@dataclass
class ReconcilerHarness:
    """The reconciler with a fake cluster."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    telemetry: Telemetry = field(default_factory=Telemetry)
    queue: WorkQueue = field(default_factory=lambda: WorkQueue(backoff=Backoff(first_s=0.01)))

    def __post_init__(self) -> None:
        cluster: Any = self.cluster
        self.cached: Any = CachedCluster(self.cluster)
        cached: Any = self.cached
        self.looks = StoreLooks(
            lambda key, routine: self.queue.add(key, routine=routine),
            clock=lambda: 0.0,
            spawn=lambda function, _name: function(),
        )
        self.reconciler = RunReconciler(
            cluster, cached, cluster.writer, SETTINGS, self.telemetry, self.looks, lambda: self.cluster.world.now
        )
        self.workers = Workers(self.queue, {KEY.kind: self.reconciler.reconcile}, lambda _namespace: True)

    def reconcile(self, key: ResourceKey = KEY) -> ReconcileResult:
        """Reconcile in all steps: from the cache, and from the API server if there is something to do."""
        result = self.reconciler.reconcile(key)
        while result.waits_for_store:
            result = self.reconciler.reconcile(key)
        return result

    async def work(self) -> None:
        """Process one key in all steps: each but the last ends by adding the key, because the store has answered."""
        await self.workers.work_once()
        while self.queue.depth:
            await self.workers.work_once()

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0

    def reconciles(self, result: str) -> float:
        """The number of reconciliations of runs with this result."""
        return self.metric("specbench_reconcile_duration_seconds_count", kind="SpecBenchRun", result=result)

    def condition(self, kind: ConditionType) -> tuple[ConditionStatus, str]:
        row = {row.type: row for row in self.cluster.world.status.conditions}[kind]
        return row.status, row.reason


@pytest.fixture
def harness() -> ReconcilerHarness:
    return ReconcilerHarness()


def test_a_run_in_a_namespace_without_rights_reports_what_is_missing(harness: ReconcilerHarness) -> None:
    harness.cluster.refuse_reads = raising(Forbidden("Forbidden", "jobs is forbidden: bind the role"))
    for _ in range(2):
        with pytest.raises(Forbidden):
            harness.reconciler.reconcile(KEY)
    assert harness.cluster.writes == 1
    assert harness.condition(ConditionType.RECONCILING) == (ConditionStatus.TRUE, "Forbidden")
    assert harness.cluster.world.status.problem == "Forbidden"


async def test_rights_that_are_known_to_be_missing_are_not_logged_and_are_tried_again_soon(
    harness: ReconcilerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    queue = WorkQueue(clock)
    workers = Workers(queue, {KEY.kind: harness.reconciler.reconcile}, lambda _namespace: True)
    queue.add(KEY)
    for error in (Forbidden, *[StillForbidden] * 20):
        harness.cluster.refuse_reads = raising(error("Forbidden", "jobs is forbidden"))
        await workers.work_once()
        clock.now += RIGHTS_BACKOFF.cap_s
    assert caplog.text.count("jobs is forbidden") == 1
    harness.cluster.refuse_reads = lambda: None
    await workers.work_once()
    assert harness.reconciles("Success") == 1, "it waits no longer than that"


def test_a_finished_run_without_rights_rests(harness: ReconcilerHarness) -> None:
    run = finished(harness.cluster.world).run
    harness.cluster.refuse_reads = raising(Forbidden("Forbidden", "jobs is forbidden"))
    with pytest.raises(Forbidden):
        harness.reconciler.reconcile(KEY)
    harness.cluster.refuse_reads = raising(StillForbidden("Forbidden", "jobs is forbidden"))
    rest = harness.reconciler.reconcile(KEY)
    assert rest == ReconcileResult(FINISHED_RETRY_S, run["metadata"]["resourceVersion"])
    assert harness.cluster.writes == 0


def test_status_is_written_only_when_it_changes(harness: ReconcilerHarness) -> None:
    assert harness.reconcile(KEY).requeue_after_s is None
    assert harness.cluster.writes == 1
    harness.reconcile(KEY)
    written = harness.cluster.writes
    harness.reconcile(KEY)
    assert harness.cluster.writes == written
    assert [reason for reason, _ in harness.cluster.posted] == ["EngineStarting"]
    assert harness.reconciles("Success") == 6, "each has two steps: the store is read once"


def test_nothing_is_done_because_of_the_cache_alone(harness: ReconcilerHarness) -> None:
    """The cache shows a run whose engine does not exist yet; the API server shows the engine."""
    harness.cached.outdated = harness.cluster.world.observed()
    harness.cluster.world.settle()
    launched, written = list(harness.cluster.world.launched), harness.cluster.writes
    harness.reconcile(KEY)
    assert (harness.cluster.world.launched, harness.cluster.writes) == (launched, written)
    assert harness.cluster.store_reads == 2, "the state that the cache showed was another one"


@pytest.mark.parametrize(("version", "reads"), [("1", 1), ("2", 2)])
def test_the_store_is_read_again_only_if_the_run_changed(harness: ReconcilerHarness, version: str, reads: int) -> None:
    harness.cached.outdated = harness.cluster.observe_cluster(*KEY[1:])
    harness.cluster.world.run["metadata"]["resourceVersion"] = version
    harness.reconcile(KEY)
    assert harness.cluster.world.launched
    assert harness.cluster.store_reads == reads


def test_progress_is_reported_without_asking_the_api_server(harness: ReconcilerHarness) -> None:
    world = harness.cluster.world
    world.now = NOON
    harness.reconcile(KEY)
    world.start_pod("demo-g0-0", ready=True)
    harness.reconcile(KEY)
    harness.reconcile(KEY)
    written = harness.cluster.writes
    world.pass_time(90)
    harness.cluster.refuse_reads = raising(AssertionError("the API server was asked"))
    harness.cached.outdated = replace(world.observed(), resource=copy.deepcopy(world.run))
    harness.reconcile(KEY)
    assert harness.cluster.writes == written + 1, "the GPU-seconds of the last minute"


def test_a_suspended_run_is_reported_and_edited_without_asking_the_api_server(harness: ReconcilerHarness) -> None:
    world = harness.cluster.world
    world.run["spec"]["suspend"] = True

    def reconcile() -> None:
        harness.cluster.refuse_reads = lambda: None
        harness.cached.outdated = replace(world.observed(), resource=copy.deepcopy(world.run))
        harness.cluster.refuse_reads = raising(AssertionError("the API server was asked"))
        harness.reconcile(KEY)

    reconcile()
    assert world.status.phase == "Suspended"
    assert world.status.observed_generation == 1
    world.run["metadata"]["generation"] = 2
    world.run["spec"]["ttlSecondsAfterFinished"] = 60
    reconcile()
    assert world.status.observed_generation == 2
    assert harness.cluster.writes == 2


async def test_nothing_is_reconciled_before_everything_was_listed(harness: ReconcilerHarness) -> None:
    listed: set[str] = set()
    workers = Workers(harness.queue, {KEY.kind: harness.reconciler.reconcile}, listed.__contains__)
    harness.queue.add(KEY)
    await workers.work_once()
    assert harness.cluster.writes == 0
    listed.add(KEY.namespace)
    await workers.work_once()
    while harness.queue.depth:
        await workers.work_once()
    assert harness.cluster.writes == 1


async def test_a_reconciliation_that_has_begun_is_finished_before_the_operator_ends(harness: ReconcilerHarness) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    class Slow:
        def reconcile(self, _key: ResourceKey) -> ReconcileResult:
            begun.set()
            goes_on.wait(60)
            ended.set()
            return ReconcileResult()

    workers = Workers(harness.queue, {KEY.kind: Slow().reconcile}, lambda _namespace: True)
    harness.queue.add(KEY)
    working = asyncio.create_task(workers.work_once())
    await asyncio.to_thread(begun.wait, 60)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    asyncio.get_running_loop().call_soon(goes_on.set)
    await workers.finish(60)
    assert ended.is_set()


async def test_as_many_reconciliations_run_at_a_time_as_there_are_workers() -> None:
    number = 64  # the most that the chart allows; asyncio's own threads are fewer
    all_run, queue = threading.Barrier(number), WorkQueue()

    def reconcile(_key: ResourceKey) -> ReconcileResult:
        all_run.wait(20)
        return ReconcileResult()

    workers = Workers(queue, {KEY.kind: reconcile}, lambda _namespace: True, number)
    for each in range(number):
        queue.add(KEY._replace(name=f"{each}"))
    await asyncio.gather(*(workers.work_once() for _ in range(number)))
    assert not all_run.broken


def test_an_engine_whose_client_is_refused_releases_its_gpus_after_the_deadline(harness: ReconcilerHarness) -> None:
    world = harness.cluster.world
    world.settle()
    world.start_pod("demo-g0-0", ready=True)
    harness.cluster.refuse = raising(Stop("ManifestRefused", "nodeSelector: invalid"))
    with pytest.raises(Stop):
        harness.reconcile(KEY)
    world.pass_time(SETTINGS.client_start_deadline_s - 1)
    with pytest.raises(Stop):
        harness.reconcile(KEY)
    written = harness.cluster.writes
    with pytest.raises(Stop):
        harness.reconcile(KEY)
    assert harness.cluster.writes == written, "each write causes another reconcile"
    world.pass_time(1)
    harness.cluster.refuse = lambda: None
    harness.reconcile(KEY)
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ClientNotStarted")
    assert "nodeSelector: invalid" in world.group(0).message
    assert "demo-g0-0-client" not in world.jobs
    assert world.jobs["demo-g0-0"].ended
    assert world.status.gpu_seconds_held == 2 * SETTINGS.client_start_deadline_s


def test_an_error_after_the_end_is_an_event_and_leaves_the_status_unchanged(harness: ReconcilerHarness) -> None:
    world = finished(harness.cluster.world)
    last = world.status
    world.pass_time(86_400)
    harness.cluster.refuse = raising(Retry("ApiUnreachable", "read timed out"))
    with pytest.raises(Retry):
        harness.reconcile(KEY)
    assert world.status == last
    assert harness.cluster.posted == [("ApiUnreachable", "read timed out")]
    harness.cluster.refuse = lambda: None
    harness.reconcile(KEY)
    assert world.jobs == {}


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (Changed("Conflict", "the object has been modified"), "Conflict"),
        (Retry("Forbidden", "no"), "Retry"),
        (NotFound("Missing", "no"), "Retry"),
        (Stop("BadRequest", "no"), "Stop"),
        (KeyError("a bug"), "Bug"),
    ],
)
async def test_every_error_is_counted_and_retried(harness: ReconcilerHarness, error: Exception, result: str) -> None:
    harness.cluster.refuse = raising(error)
    harness.queue.add(KEY)
    await harness.work()
    assert harness.reconciles(result) == 1
    assert bool(harness.cluster.writes) is (result in ("Retry", "Stop"))
    harness.cluster.refuse = lambda: None
    await harness.work()
    assert harness.cluster.world.launched == ["demo-g0-0"]


async def test_a_bug_is_logged_with_its_traceback(harness: ReconcilerHarness, caplog: pytest.LogCaptureFixture) -> None:
    harness.cluster.refuse = raising(KeyError("a bug"))
    harness.queue.add(KEY)
    await harness.work()
    assert "Traceback" in caplog.text
    assert "default/demo" in caplog.text


def test_nothing_is_counted_twice_when_status_is_lost(harness: ReconcilerHarness) -> None:
    world = harness.cluster.world
    world.now = NOON
    harness.reconcile(KEY)
    world.start_pod("demo-g0-0", ready=True)
    world.pass_time(90)
    harness.reconcile(KEY)
    held = world.status.gpu_seconds_held
    world.lose_status()
    harness.reconcile(KEY)
    assert world.status.gpu_seconds_held == held > 0, "status counts again from the remaining pods"
    assert harness.metric("specbench_gpu_held_seconds_total") == held
    world.pass_time(90)
    world.start_pod("demo-g0-0-client")
    world.finish_client()
    for _ in range(3):
        harness.reconcile(KEY)
    assert harness.metric("specbench_points_measured_total") == 1
    assert harness.metric("specbench_gpu_held_seconds_total") == world.status.gpu_seconds_held > held


async def test_a_store_that_does_not_answer_holds_no_worker() -> None:
    """One worker is enough: it reconciles the other run while the store of the first one keeps its look waiting."""
    released = threading.Event()

    class BlockingCluster(FakeCluster):
        def observe_cluster(self, namespace: str, name: str) -> RunObservation | None:
            return super().observe_cluster(namespace, KEY.name)

        def read_store(self, observed: RunObservation) -> RunObservation:
            if threading.current_thread().name.endswith("slow"):
                assert released.wait(60)
            return super().read_store(observed)

    cluster: Any = BlockingCluster()
    queue, telemetry = WorkQueue(), Telemetry()
    looks = StoreLooks(queue.adder_for_threads())
    reconciler = RunReconciler(cluster, cluster, cluster.writer, SETTINGS, telemetry, looks, lambda: cluster.world.now)
    workers = Workers(queue, {KEY.kind: reconciler.reconcile}, lambda _namespace: True)
    queue.add(KEY._replace(name="slow"))
    await workers.work_once()
    assert queue.longest_s() == 0, "the liveness probe sees no stuck worker"
    queue.add(KEY)
    await workers.work_once()
    await workers.work_once()
    assert cluster.writes == 1, "the run with an answering store was decided"
    released.set()
    await workers.work_once()
    assert not reconciler.looks.take(KEY._replace(name="slow")).in_progress


# Runs that wait for another run.


MAIN, WAITER, ELSEWHERE = (
    ResourceKey(RUN, "bench", "main"),
    ResourceKey(RUN, "bench", "branch"),
    ResourceKey(RUN, "other", "main"),
)
ENDED: dict[str, Any] = {"status": {"completionTime": "2026-01-02T12:00:00Z"}}


class GateReconciler:
    """Reports that the run waits for other runs, in the first reconcile only."""

    def __init__(self) -> None:
        self.outcomes = [ReconcileResult(900, "1", frozenset({"main", "older"})), ReconcileResult()]

    def reconcile(self, _key: ResourceKey) -> ReconcileResult:
        return self.outcomes.pop(0)


@pytest.mark.parametrize(
    ("changed", "run", "woken"),
    [
        (MAIN, ENDED, [WAITER]),
        (MAIN, {"status": {"phase": "Running"}}, []),
        (MAIN, {}, []),
        (ELSEWHERE, ENDED, []),
        (WAITER, ENDED, []),
    ],
    ids=["ended", "at work", "just created", "of another namespace", "itself"],
)
async def test_only_the_end_of_the_awaited_run_wakes_its_waiters_until_the_next_reconcile(
    changed: ResourceKey, run: dict[str, Any], woken: list[ResourceKey]
) -> None:
    queue = WorkQueue()
    workers = Workers(queue, {RUN: GateReconciler().reconcile}, lambda _namespace: True)
    queue.add(WAITER)
    await workers.work_once()
    assert workers.rests(WAITER, "1"), "the resync skips it"
    assert workers.waiters_of(changed, run) == woken
    queue.add(WAITER)
    await asyncio.wait_for(workers.work_once(), 5)
    assert workers.waiters_of(changed, run) == []
    assert not workers.rests(WAITER, "1")


# Runs that begin at the same time.


STORES = [{"endpoint": "*", "bucket": "*", "operatorIdentity": True}]
NAMES = ("a", "b", "c", "d", "e")


def listed(at: int, *, suspended: bool = True) -> NamespaceRun:
    """A run as it was listed before it was resumed."""
    created = f"2026-01-02T00:00:{at:02}Z"
    return NamespaceRun(NAMES[at], f"uid-{at}", created, "Suspended", reason="Suspended", suspended=suspended)


def decide(begun: BegunRuns, at: int, runs: int) -> RunDecision:
    """Decide about the run of this number, whose observation was made before the others were resumed."""
    limits = {"limits": {"runs": runs}, "stores": STORES, "secretsOptIn": False, "nodeLabels": ["*"]}
    resource = operator_run()
    resource["metadata"].update(name=NAMES[at], uid=f"uid-{at}", creationTimestamp=listed(at).created)
    others = tuple(listed(number) for number in range(len(NAMES)))
    settings = replace(SETTINGS, fence=Fence.from_json(json.dumps({**limits, "gpuResources": ["*"]})))
    world = ClusterWorld(resource, settings=settings)
    observed = replace(world.observed(), namespace_runs=others)
    with begun.deciding(observed) as current:
        decision = decide_run(current, settings, world.now)
        begun.note(current, decision)
    return decision


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_only_as_many_runs_begin_as_the_limit_allows(runs: int) -> None:
    begun = BegunRuns()
    decisions = [decide(begun, at, runs) for at in reversed(range(len(NAMES)))]
    assert [bool(decision.apply) for decision in decisions] == [True] * runs + [False] * (len(NAMES) - runs)


def test_a_run_is_forgotten_when_lists_show_what_became_of_it() -> None:
    clock = Clock()
    begun = BegunRuns(clock)
    assert decide(begun, 0, 1).apply
    assert not decide(begun, 1, 1).apply
    clock.now = BEGUN_S
    assert decide(begun, 1, 1).apply
