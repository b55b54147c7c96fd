"""Engines on several nodes: created behind a Job, and judged, lost and removed as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.outcome.provenance import FactName
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.engine_job import LWS_KIND
from specbench_operator.run.decide import decide_run
from specbench_operator.run.launches.host_facts import collect_host_facts
from specbench_operator.state.objects import ChildObject, ContainerTerminated, ObjectRef
from specbench_testing.cluster_world import ClusterWorld, finished
from specbench_testing.operator_builders import NOON, OLDER_UID, SETTINGS, operator_run

NODES = 3


def spread(**placement: Any) -> ClusterWorld:
    run = operator_run({"spec.placement": {"gpus": 8, "nodes": NODES, **placement}})
    return ClusterWorld(run, settings=replace(SETTINGS, leader_worker_sets=True))


@pytest.fixture
def new_world() -> ClusterWorld:
    return spread()


def sets(world: ClusterWorld) -> list[str]:
    return [name for kind, name in world.objects if kind == LWS_KIND]


def start(world: ClusterWorld, group: int = 0, attempt: int = 0, *, ready: bool = True, **fields: Any) -> None:
    """Create the pods of a set: a leader, which is probed, and its workers."""
    for worker in range(NODES):
        given = {"worker": worker, "node": f"gpu-{worker}", "ready": ready or worker > 0, **fields}
        world.start_pod(world.engine(group, attempt), **given)


def serve(world: ClusterWorld, group: int = 0, attempt: int = 0) -> None:
    start(world, group, attempt)
    world.reconcile(after_s=1)
    world.start_pod(world.client(group, attempt), ready=True)
    world.reconcile(after_s=1)


@pytest.fixture(name="world")
def serving() -> ClusterWorld:
    """A run whose first engine serves and whose client measures."""
    world = spread()
    world.settle()
    serve(world)
    return world


def change(world: ClusterWorld, worker: int, **fields: Any) -> None:
    (name,) = [name for name, pod in world.pods.items() if pod.worker == worker and pod.alive]
    world.pods[name] = replace(world.pods[name], **fields)


def alive(world: ClusterWorld) -> list[int]:
    return sorted(pod.worker or 0 for pod in world.pods.values() if pod.alive and pod.key.role == "engine")


def test_the_job_is_created_first_and_owns_the_set(new_world: ClusterWorld) -> None:
    assert [manifest["kind"] for manifest in new_world.reconcile().apply] == ["ConfigMap", "Service", "Job"]
    (manifest,) = new_world.reconcile().apply
    assert manifest["kind"] == LWS_KIND
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", new_world.jobs[new_world.engine()].ref.uid)
    assert manifest["spec"]["leaderWorkerTemplate"]["size"] == NODES
    assert new_world.reconcile().apply == ()


def test_the_client_waits_for_the_leader_and_not_for_the_workers(new_world: ClusterWorld) -> None:
    new_world.settle()
    start(new_world, ready=False)
    new_world.reconcile()
    assert new_world.group(0).state is GroupState.STARTING
    change(new_world, 0, ready=True)
    new_world.reconcile()
    assert new_world.client() in new_world.jobs
    assert new_world.status.engine_nodes == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_complete_run_leaves_no_set_and_no_pod(new_world: ClusterWorld) -> None:
    new_world.settle()
    for group in (0, 1):
        assert sets(new_world) == [f"{new_world.engine(group)}-n"]
        serve(new_world, group)
        new_world.finish_client(group)
        new_world.settle()
        assert sets(new_world) == ([] if group else [f"{new_world.engine(1)}-n"])
    new_world.finish_report()
    assert new_world.status.phase is Phase.SUCCEEDED
    assert alive(new_world) == []


def test_the_second_arm_waits_until_all_pods_of_the_first_are_gone(world: ClusterWorld) -> None:
    world.finish_client()
    for _ in range(3):
        world.reconcile()
    assert alive(world) == [0, 1, 2], "the pods are being deleted"
    assert world.launched == [world.engine(0)]
    world.reap()
    world.reconcile()
    assert world.launched == [world.engine(0), world.engine(1)]


def test_a_pod_with_a_restarted_container_still_holds_its_gpus(world: ClusterWorld) -> None:
    world.reconcile()
    before = world.status.gpu_seconds_held
    change(world, 1, terminated=ContainerTerminated(1, "Error", "", world.now, world.now), restarts=1)
    world.reconcile(after_s=60)
    assert world.status.gpu_seconds_held - before == pytest.approx(NODES * 8 * 60, abs=NODES * 8 * 2)


@pytest.mark.parametrize("worker", range(NODES))
def test_a_replaced_pod_is_a_lost_engine_and_the_group_is_relaunched(world: ClusterWorld, worker: int) -> None:
    (name,) = [name for name, pod in world.pods.items() if pod.worker == worker]
    del world.pods[name]
    world.start_pod(world.engine(), worker=worker, node="other", ready=True)
    world.settle(after_s=1)
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert sets(world) == [f"{world.engine(0, 1)}-n"], "the set of the lost launch is deleted"
    assert (world.group(0).attempt, world.group(0).reason) == (1, "Starting")


def test_a_missing_node_is_a_lost_engine(world: ClusterWorld) -> None:
    world.pods = {name: pod for name, pod in world.pods.items() if pod.worker != 2}
    decision = world.reconcile()
    assert [stop.verdict.reason for stop in decision.stop] == [EngineReason.LOST]
    assert "1 of 2 further nodes exist" in world.group(0).message


def leader_crashed(world: ClusterWorld) -> None:
    """The leader fails because its collective lost a rank."""
    change(world, 0, terminated=ContainerTerminated(1, "Error", "NCCL error", world.now, world.now), restarts=1)


def pod_replaced(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), worker=2, node="other")


@pytest.mark.parametrize("consequence", [leader_crashed, pod_replaced, lambda _world: None])
@pytest.mark.parametrize(
    ("change_fields", "reason"),
    [
        ({"disrupted": "preempted by release-1", "deleted_at": NOON}, EngineReason.PREEMPTED),
        ({"disrupted": "taint manager", "phase": "Failed"}, EngineReason.PREEMPTED),
    ],
    ids=["terminating", "ended"],
)
def test_a_disrupted_worker_is_a_preemption_whatever_the_consequence(
    world: ClusterWorld,
    consequence: Callable[[ClusterWorld], None],
    change_fields: dict[str, Any],
    reason: EngineReason,
) -> None:
    change(world, 2, **change_fields)
    world.pass_time(1)
    consequence(world)
    world.reconcile()
    row = world.group(0)
    assert (row.state, row.preemptions, row.attempt, row.reason) == (GroupState.WAITING, 1, 1, reason)
    assert "node 2 of the group" in row.message
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


@pytest.mark.parametrize("worker", [0, 2])
@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [(137, "OOMKilled", EngineReason.OOM_KILLED), (1, "Error", EngineReason.CRASHED)],
)
def test_a_restarted_container_fails_the_arm_with_its_reason(
    world: ClusterWorld, worker: int, code: int, reason: str, expected: EngineReason
) -> None:
    ended = ContainerTerminated(code, reason, "last words", world.now, world.now)
    change(world, worker, terminated=ended, restarts=1)
    world.reconcile()
    assert world.group(0).state is GroupState.FAILED
    assert world.group(0).reason == expected
    assert ("node 2 of the group" in world.group(0).message) == (worker == 2)
    world.settle()
    assert f"{world.engine(0)}-n" not in sets(world), "its set creates no more pods"
    assert world.launched == [world.engine(0), world.engine(1)]


def test_an_unschedulable_worker_is_reported_by_node(new_world: ClusterWorld) -> None:
    new_world.settle()
    start(new_world, ready=False)
    change(new_world, 2, phase="Pending", ready=False, unschedulable="0/2 nodes have 8 GPUs", scheduled_at=None)
    new_world.reconcile()
    assert new_world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "Unschedulable")
    assert "node 2 of the group" in new_world.condition(ConditionType.ENGINE_READY).message


def test_a_set_without_its_job_belongs_to_its_run_and_not_to_an_older_one(new_world: ClusterWorld) -> None:
    new_world.settle()
    key = (LWS_KIND, f"{new_world.engine()}-n")
    new_world.objects[key] = replace(new_world.objects[key], owner="a Job that is gone")
    new_world.reconcile()
    assert not new_world.status.problem
    assert "WaitingForRemoval" not in {row.reason for row in new_world.status.conditions}
    older = ChildObject(
        ObjectRef(LWS_KIND, "demo-g9-0-n", "x"), "an older Job", new_world.objects[key].key, run_uid=OLDER_UID
    )
    new_world.objects[LWS_KIND, "demo-g9-0-n"] = older
    new_world.reconcile()
    assert "WaitingForRemoval" in {row.reason for row in new_world.status.conditions}
    assert (LWS_KIND, "demo-g9-0-n") in new_world.objects, "objects of other runs are never deleted"


def test_a_set_that_still_exists_is_waited_for_because_it_may_create_pods(world: ClusterWorld) -> None:
    kept = world.objects[LWS_KIND, f"{world.engine()}-n"]
    world.finish_client()
    world.reconcile()
    world.reap()
    world.objects[LWS_KIND, f"{world.engine()}-n"] = replace(kept, deleting=True)
    world.reconcile()
    assert world.launched == [world.engine(0)]
    del world.objects[LWS_KIND, f"{world.engine()}-n"]
    world.reconcile()
    assert world.launched == [world.engine(0), world.engine(1)]


def test_without_leader_worker_set_the_run_is_refused_with_a_remedy(new_world: ClusterWorld) -> None:
    new_world.settings = SETTINGS
    decision = new_world.reconcile()
    assert decision.apply == ()
    assert new_world.status_and_reason(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    assert "leaderWorkerSets=true" in new_world.condition(ConditionType.VALIDATED).message
    new_world.settings = replace(SETTINGS, leader_worker_sets=True)
    assert new_world.reconcile().apply, "the run continues after the installation"


def test_a_single_node_engine_uses_no_set() -> None:
    world = ClusterWorld(settings=replace(SETTINGS, leader_worker_sets=True))
    assert finished(world).status.phase is Phase.SUCCEEDED
    assert sets(world) == []


def test_the_environment_is_the_leaders_with_the_gpus_of_all_nodes(world: ClusterWorld) -> None:
    leader = next(pod for pod in world.pods.values() if pod.worker == 0)
    facts = collect_host_facts(parse_run(world.run), leader, ()).facts
    assert (facts[FactName.NODE].value, facts[FactName.GPU_COUNT].value) == ("gpu-0", NODES * 8)


# In a queue. Kueue gates the pods and admits them all at once; the Job waits suspended until then.

GATED: dict[str, Any] = {"gated": True, "phase": "Pending", "scheduled_at": None, "node": "", "ready": False}


@pytest.fixture
def queued() -> ClusterWorld:
    """A run whose pods wait for their queue."""
    world = spread(queueName="bench")
    world.settle()
    start(world, **GATED)
    world.settle()
    return world


def admit(world: ClusterWorld) -> None:
    for worker in range(NODES):
        fields = {"gated": False, "phase": "Running", "scheduled_at": world.now, "node": "a", "ready": worker > 0}
        change(world, worker, **fields)


def evict(world: ClusterWorld) -> None:
    for worker in range(NODES):
        change(world, worker, disrupted="preempted by release", deleted_at=world.now)


def evict_unobserved(world: ClusterWorld) -> None:
    """The queue deletes all pods while the operator is down; the new ones wait."""
    world.lose_pods(world.engine())
    start(world, **GATED)


def evict_and_admit_unobserved(world: ClusterWorld) -> None:
    evict_unobserved(world)
    admit(world)


def outcome(world: ClusterWorld) -> tuple[GroupState, int, int]:
    """State of the first group, its launch, and how many were preempted."""
    row = world.group(0)
    return row.state, row.attempt, row.preemptions


def test_a_queued_group_waits_gated_behind_a_suspended_job(queued: ClusterWorld) -> None:
    assert (sets(queued), queued.jobs[queued.engine()].suspended) == ([f"{queued.engine()}-n"], True)
    assert queued.status_and_reason(ConditionType.QUEUED) == ("True", "WaitingForQuota")
    assert "queue bench" in queued.condition(ConditionType.QUEUED).message
    before = queued.run["status"]
    queued.settle(after_s=30 * 86_400)
    assert queued.run["status"] == before, "waiting has no deadline and holds no GPUs"
    admit(queued)
    queued.run["spec"]["suspend"] = True
    assert queued.reconcile().resume == ()
    queued.settle()
    assert (sets(queued), alive(queued), queued.status.phase) == ([], [], Phase.SUSPENDED)


def test_the_deadlines_of_a_group_count_from_its_admission(queued: ClusterWorld) -> None:
    queued.pass_time(86_400)
    admit(queued)
    (resume,) = queued.reconcile().resume
    assert queued.pods[resume.leader_pod].worker == 0
    decision = queued.reconcile()
    assert (decision.resume, decision.requeue_after_s) == ((), 1800)
    assert queued.status_and_reason(ConditionType.QUEUED) == ("False", "Admitted")


@pytest.mark.parametrize("eviction", [evict, evict_unobserved])
def test_a_group_evicted_before_its_job_is_resumed_waits_on(
    queued: ClusterWorld, eviction: Callable[[ClusterWorld], None]
) -> None:
    admit(queued)
    eviction(queued)
    assert queued.reconcile().resume == ()
    assert outcome(queued) == (GroupState.QUEUED, 0, 0)


@pytest.mark.parametrize(
    "eviction",
    [evict, evict_unobserved, evict_and_admit_unobserved, lambda world: world.lose_pods(world.engine())],
    ids=["observed", "unobserved", "admitted again", "no pod yet"],
)
@pytest.mark.parametrize("measuring", [True, False])
@pytest.mark.parametrize("status", ["kept", "lost"])
def test_every_eviction_is_one_preemption_and_queues_a_new_launch(
    queued: ClusterWorld, eviction: Callable[[ClusterWorld], None], measuring: bool, status: str
) -> None:
    admit(queued)
    if measuring:
        queued.settle()
        change(queued, 0, ready=True)
        queued.settle()
        assert queued.client() in queued.jobs
    else:  # evicted between the observation and the request that resumes the Job
        queued.follow(decide_run(queued.observed(), queued.settings, queued.now))
    eviction(queued)
    if status == "lost":
        queued.lose_status()
    queued.settle()
    assert outcome(queued) == (GroupState.QUEUED, 1, 1)
    assert queued.status_and_reason(ConditionType.QUEUED) == ("True", "Preempted")
    assert (sets(queued), queued.client() in queued.jobs) == ([f"{queued.engine(0, 1)}-n"], False)
    assert queued.launched == [queued.engine(0, 0), queued.engine(0, 1)]


def test_a_pod_that_somebody_deleted_is_a_lost_launch_also_in_a_queue(queued: ClusterWorld) -> None:
    admit(queued)
    queued.settle()
    change(queued, 0, deleted_at=queued.now + timedelta(seconds=30))
    assert [stop.verdict.reason for stop in queued.reconcile().stop] == [EngineReason.LOST]


def test_a_job_suspended_by_somebody_else_gets_no_set_and_is_not_resumed(new_world: ClusterWorld) -> None:
    new_world.reconcile()
    new_world.jobs[new_world.engine()] = replace(new_world.jobs[new_world.engine()], suspended=True)
    new_world.settle()
    assert sets(new_world) == []
    start(new_world)
    assert new_world.reconcile().resume == ()
