"""What each kind of error means for the queue and for status, with a fake cluster."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specbench_api.spec.conditions import ConditionStatus, ConditionType, GroupState
from specbench_api.spec.status import RunStatus
from specbench_operator.errors import Changed, OperatorError, Retry, Stop
from specbench_operator.handlers.list_watch import Relist
from specbench_operator.handlers.liveness import Liveness
from specbench_operator.handlers.reconcilers import ReconcileResult, RunReconciler, Workers
from specbench_operator.handlers.work_queue import Backoff, ResourceKey, WorkQueue
from specbench_operator.state.run import KubernetesEvent, RunDecision, RunObservation
from specbench_operator.telemetry import Telemetry
from specbench_testing.cluster_world import ClusterWorld, finished
from specbench_testing.operator_builders import NOON, SETTINGS

KEY = ResourceKey("SpecBenchRun", "default", "demo")


@dataclass
class Stage:
    """Observer and actor in one: it shows a world, and does to it what it is told, or refuses."""

    world: ClusterWorld = field(default_factory=ClusterWorld)
    refuse: Callable[[], None] = lambda: None
    refuse_status: Callable[[], None] = lambda: None
    told: list[RunStatus] = field(default_factory=list)
    announced: list[KubernetesEvent] = field(default_factory=list)
    listed: list[Any] | None = field(default_factory=list)

    def runs(self, namespace: str | None) -> list[Any]:
        return [self.world.run]

    def campaigns(self, namespace: str | None) -> list[Any] | None:
        return self.listed

    def observe(self, namespace: str, name: str) -> RunObservation | None:
        observed = self.world.observed()
        return replace(observed, resource=copy.deepcopy(observed.resource)) if (namespace, name) == KEY[1:] else None

    def act(self, resource: Any, decision: RunDecision) -> None:
        self.refuse()
        self.world.follow(replace(decision, status=self.world.status, events=()))

    def write_status(self, resource: Any, status: RunStatus) -> bool:
        self.refuse_status()
        if status.to_dict() == (self.world.run.get("status") or {}):
            return False
        self.told.append(status)
        self.world.run["status"] = status.to_dict()
        return True

    def post_events(self, resource: Any, events: tuple[KubernetesEvent, ...], now: object) -> None:
        self.announced += events


def raising(error: Exception) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    return refuse


@dataclass
class Room:
    """The reconciler with a stage."""

    stage: Stage = field(default_factory=Stage)
    telemetry: Telemetry = field(default_factory=Telemetry)
    queue: WorkQueue = field(default_factory=lambda: WorkQueue(backoff=Backoff(first_s=0.01)))

    def __post_init__(self) -> None:
        stage: Any = self.stage
        self.reconciler = RunReconciler(stage, stage, SETTINGS, self.telemetry, lambda: self.stage.world.now)
        self.workers = Workers(self.queue, {KEY.kind: self.reconciler}, self.telemetry)
        self.liveness = Liveness(SETTINGS, self.queue.longest_s)
        self.relist = Relist(stage, stage, self.queue, self.workers, self.liveness, self.telemetry, SETTINGS)

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0

    def said(self, kind: ConditionType) -> tuple[ConditionStatus, str]:
        row = {row.type: row for row in self.stage.world.status.conditions}[kind]
        return row.status, row.reason


@pytest.fixture
def room() -> Room:
    return Room()


def test_status_is_written_once_and_only_when_it_says_something_new(room: Room) -> None:
    assert room.reconciler.reconcile(KEY).requeue_after_s is None
    assert len(room.stage.told) == 1
    room.reconciler.reconcile(KEY)
    told = len(room.stage.told)
    room.reconciler.reconcile(KEY)
    assert len(room.stage.told) == told
    assert [event.reason for event in room.stage.announced] == ["EngineStarting"]
    assert room.metric("specbench_reconcile_seconds_count") == 3


def test_a_run_that_is_gone_is_nothing_to_do(room: Room) -> None:
    assert room.reconciler.reconcile(KEY._replace(name="gone")) == ReconcileResult()


def test_what_can_heal_is_said_as_reconciling_and_raised(room: Room) -> None:
    room.stage.refuse = raising(Retry("Forbidden", "exceeded quota"))
    with pytest.raises(Retry):
        room.reconciler.reconcile(KEY)
    assert room.said(ConditionType.RECONCILING) == (ConditionStatus.TRUE, "Forbidden")
    assert room.said(ConditionType.STALLED)[0] is ConditionStatus.FALSE
    assert room.said(ConditionType.READY)[0] is ConditionStatus.FALSE


def test_what_cannot_heal_is_said_as_stalled_and_heals_when_it_does(room: Room) -> None:
    room.stage.refuse = raising(Stop("ManifestRefused", "spec.x: invalid"))
    with pytest.raises(Stop):
        room.reconciler.reconcile(KEY)
    assert room.said(ConditionType.STALLED) == (ConditionStatus.TRUE, "ManifestRefused")
    assert room.said(ConditionType.RECONCILING)[0] is ConditionStatus.FALSE
    room.stage.refuse = lambda: None
    room.reconciler.reconcile(KEY)
    assert room.said(ConditionType.STALLED)[0] is ConditionStatus.FALSE
    assert room.said(ConditionType.RECONCILING)[0] is ConditionStatus.TRUE


def test_a_launch_that_was_refused_is_not_remembered_as_made(room: Room) -> None:
    room.stage.refuse = raising(Retry("Forbidden", "exceeded quota"))
    with pytest.raises(Retry):
        room.reconciler.reconcile(KEY)
    room.stage.refuse = lambda: None
    room.reconciler.reconcile(KEY)
    assert room.stage.world.launched == ["demo-g0-0"]


def test_an_engine_whose_client_is_refused_does_not_keep_its_gpus(room: Room) -> None:
    world = room.stage.world
    world.settle()
    world.start_pod("demo-g0-0", ready=True)
    room.stage.refuse = raising(Stop("ManifestRefused", "nodeSelector: invalid"))
    with pytest.raises(Stop):
        room.reconciler.reconcile(KEY)
    world.pass_time(SETTINGS.client_start_deadline_s - 1)
    with pytest.raises(Stop):
        room.reconciler.reconcile(KEY)
    told = len(room.stage.told)
    with pytest.raises(Stop):
        room.reconciler.reconcile(KEY)
    assert len(room.stage.told) == told, "each write wakes the next look"
    world.pass_time(1)
    room.stage.refuse = lambda: None
    room.reconciler.reconcile(KEY)
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ClientNotStarted")
    assert "nodeSelector: invalid" in world.group(0).message
    assert "demo-g0-0-client" not in world.jobs
    assert world.jobs["demo-g0-0"].ended
    assert world.status.gpu_seconds_held == 2 * SETTINGS.client_start_deadline_s


def test_an_error_after_the_end_is_an_event_and_leaves_the_status_unchanged(room: Room) -> None:
    world = finished(room.stage.world)
    last = world.status
    world.pass_time(86_400)
    room.stage.refuse = raising(Retry("ApiUnreachable", "read timed out"))
    with pytest.raises(Retry):
        room.reconciler.reconcile(KEY)
    assert world.status == last
    assert [(event.reason, event.message) for event in room.stage.announced] == [("ApiUnreachable", "read timed out")]
    room.stage.refuse = lambda: None
    room.reconciler.reconcile(KEY)
    assert world.jobs == {}


async def test_a_conflict_is_no_error_and_is_looked_at_again_at_once(room: Room) -> None:
    room.stage.refuse_status = raising(Changed("Conflict", "the object has been modified"))
    room.queue.add(KEY)
    await room.workers.work_once()
    assert room.metric("specbench_reconcile_errors_total", kind="Changed") == 0
    room.stage.refuse_status = lambda: None
    await room.workers.work_once()
    assert len(room.stage.told) == 1


async def test_a_conflict_while_acting_writes_no_status(room: Room) -> None:
    room.stage.refuse = raising(Changed("Conflict", "the object has been modified"))
    room.queue.add(KEY)
    await room.workers.work_once()
    assert room.stage.told == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Retry("Forbidden", "no"), "Retry"), (Stop("BadRequest", "no"), "Stop"), (KeyError("a bug"), "Bug")],
)
async def test_every_error_is_counted_and_tried_again(room: Room, error: Exception, kind: str) -> None:
    room.stage.refuse = raising(error)
    room.queue.add(KEY)
    await room.workers.work_once()
    assert room.metric("specbench_reconcile_errors_total", kind=kind) == 1
    room.stage.refuse = lambda: None
    await room.workers.work_once()
    assert room.stage.world.launched == ["demo-g0-0"]


async def test_a_bug_is_logged_with_its_traceback(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.stage.refuse = raising(KeyError("a bug"))
    room.queue.add(KEY)
    await room.workers.work_once()
    assert "Traceback" in caplog.text
    assert "default/demo" in caplog.text


async def test_the_relist_queues_what_has_not_come_to_rest_and_counts_phases(room: Room) -> None:
    world = room.stage.world
    world.settle()
    world.measure(0)
    world.measure(1)
    world.finish_report()
    await room.relist.list_once()
    assert room.queue.depth == 1
    for _ in range(3):
        await room.workers.work_once()
        room.queue.add(KEY)
    await room.workers.work_once()
    await room.relist.list_once()
    assert room.queue.depth == 0, "it has come to rest"
    assert room.metric("specbench_runs", phase="Succeeded") == 1
    world.run["metadata"]["resourceVersion"] = "2"
    await room.relist.list_once()
    assert room.queue.depth == 1, "somebody wrote to it"


async def test_the_relist_outlives_an_api_server_that_is_away(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[float] = []

    async def no_sleep(seconds: float) -> None:
        ended.append(seconds)
        raise KeyboardInterrupt

    def away(_namespace: str | None) -> list[Any]:
        raise OperatorError("ApiUnreachable", "refused")

    monkeypatch.setattr(room.stage, "runs", away)
    monkeypatch.setattr("specbench_operator.handlers.list_watch.asyncio.sleep", no_sleep)
    with pytest.raises(KeyboardInterrupt):
        await room.relist.keep_listing()
    assert ended == [SETTINGS.relist_s]
    assert room.metric("specbench_reconcile_errors_total", kind="OperatorError") == 1


def test_what_a_status_adds_is_counted_once(room: Room) -> None:
    world = room.stage.world
    world.now = NOON
    room.reconciler.reconcile(KEY)
    world.start_pod("demo-g0-0", ready=True)
    world.pass_time(90)
    room.reconciler.reconcile(KEY)
    world.start_pod("demo-g0-0-client")
    world.finish_client()
    for _ in range(3):
        room.reconciler.reconcile(KEY)
    assert room.metric("specbench_points_measured_total") == 1
    assert room.metric("specbench_gpu_seconds_held_total") == pytest.approx(world.status.gpu_seconds_held)


async def test_the_relist_queues_campaigns_beside_runs(room: Room) -> None:
    meta = {"namespace": "default", "name": "nightly", "resourceVersion": "1"}
    room.stage.listed = [{"metadata": meta, "spec": {}, "status": {"phase": "Running"}}]
    await room.relist.list_once()
    found = {await room.queue.get(), await room.queue.get()}
    assert found == {KEY, ResourceKey("SpecBenchCampaign", "default", "nightly")}
    assert room.metric("specbench_campaigns", phase="Running") == 1


async def test_a_cluster_that_does_not_know_campaigns_is_told_and_runs_are_served(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    room.stage.listed = None
    await room.relist.list_once()
    await room.relist.list_once()
    assert caplog.text.count("is not installed") == 1
    assert await room.queue.get() == KEY
    assert "kubectl apply --server-side -f crds/" in caplog.text


def test_a_watch_of_campaigns_that_tells_nothing_is_named() -> None:
    now = [0.0]
    liveness = Liveness(SETTINGS, lambda: 0.0, lambda: now[0])
    liveness.relisted({ResourceKey("SpecBenchCampaign", "default", "nightly"): "1"})
    now[0] += SETTINGS.watch_silence_s + 1
    liveness.beat()
    assert "SpecBenchCampaign" in (liveness.problem() or "")
