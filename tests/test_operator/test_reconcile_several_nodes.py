"""Engines on several nodes: created behind a Job, and judged, lost and removed as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.outcome.provenance import FactName
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_api.spec.parsing import parse_run
from specbench_operator.reconcile.launches.host_facts import collect_host_facts
from specbench_operator.render.engine_job import LWS_KIND
from specbench_operator.state.objects import ChildObject, ContainerTerminated, ObjectRef
from specbench_testing.cluster_world import ClusterWorld, finished
from specbench_testing.operator_builders import NOON, OLDER_UID, SETTINGS, operator_run

NODES = 3


def spread(edits: dict[str, Any] | None = None) -> ClusterWorld:
    run = operator_run({"spec.placement": {"gpus": 8, "nodes": NODES}, **(edits or {})})
    return ClusterWorld(run, settings=replace(SETTINGS, leader_worker_sets=True))


def sets(world: ClusterWorld) -> list[str]:
    return [name for kind, name in world.objects if kind == LWS_KIND]


def start(world: ClusterWorld, group: int = 0, attempt: int = 0, *, ready: bool = True) -> None:
    """The pods of a set appear: a leader, which is probed, and its workers."""
    for worker in range(NODES):
        world.start_pod(world.engine(group, attempt), worker=worker, node=f"gpu-{worker}", ready=ready or worker > 0)


def serve(world: ClusterWorld, group: int = 0, attempt: int = 0) -> None:
    start(world, group, attempt)
    world.pass_time(1)
    world.look()
    world.start_pod(world.client(group, attempt), ready=True)
    world.pass_time(1)
    world.look()


def change(world: ClusterWorld, worker: int, **fields: Any) -> None:
    (name,) = [name for name, pod in world.pods.items() if pod.worker == worker and pod.alive]
    world.pods[name] = replace(world.pods[name], **fields)


def alive(world: ClusterWorld) -> list[int]:
    return sorted(pod.worker or 0 for pod in world.pods.values() if pod.alive and pod.key.role == "engine")


def test_the_job_comes_first_and_the_set_is_its_own() -> None:
    world = spread()
    assert [manifest["kind"] for manifest in world.look().apply] == ["ConfigMap", "Service", "Job"]
    (manifest,) = world.look().apply
    assert manifest["kind"] == LWS_KIND
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", world.jobs[world.engine()].ref.uid)
    assert manifest["spec"]["leaderWorkerTemplate"]["size"] == NODES
    assert world.look().apply == ()


def test_no_client_runs_before_the_leader_is_ready_and_workers_do_not_count() -> None:
    world = spread()
    world.settle()
    start(world, ready=False)
    world.look()
    assert world.group(0).state is GroupState.STARTING
    change(world, 0, ready=True)
    world.look()
    assert world.client() in world.jobs
    assert world.status.engine_nodes == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_whole_run_leaves_no_set_and_no_pod() -> None:
    world = spread()
    world.settle()
    for group in (0, 1):
        assert sets(world) == [f"{world.engine(group)}-n"]
        serve(world, group)
        world.finish_client(group)
        world.settle()
        assert sets(world) == ([] if group else [f"{world.engine(1)}-n"])
    world.finish_report()
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED
    assert alive(world) == []


def test_the_second_arm_waits_until_every_pod_of_the_first_is_gone() -> None:
    world = spread()
    world.settle()
    serve(world)
    world.finish_client()
    for _ in range(3):
        world.look()
    assert alive(world) == [0, 1, 2], "they are being deleted"
    assert world.launched == [world.engine(0)]
    world.reap()
    world.look()
    assert world.launched == [world.engine(0), world.engine(1)]


def test_gpu_seconds_count_every_node() -> None:
    world = spread()
    world.settle()
    serve(world)
    world.pass_time(98)
    world.look()
    assert world.status.gpu_seconds_held == pytest.approx(NODES * 8 * 100, abs=NODES * 8)


def test_a_pod_whose_container_was_started_again_still_holds_its_gpus() -> None:
    world = spread()
    world.settle()
    serve(world)
    world.look()
    before = world.status.gpu_seconds_held
    change(world, 1, terminated=ContainerTerminated(1, "Error", "", world.now, world.now), restarts=1)
    world.pass_time(60)
    world.look()
    assert world.status.gpu_seconds_held - before == pytest.approx(NODES * 8 * 60, abs=NODES * 8 * 2)


@pytest.mark.parametrize("worker", range(NODES))
def test_a_pod_that_came_again_is_a_lost_engine_and_the_group_is_launched_anew(worker: int) -> None:
    world = spread()
    world.settle()
    serve(world)
    (name,) = [name for name, pod in world.pods.items() if pod.worker == worker]
    del world.pods[name]
    world.start_pod(world.engine(), worker=worker, node="other", ready=True)
    world.pass_time(1)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert sets(world) == [f"{world.engine(0, 1)}-n"], "the set of the lost launch is gone, whole"
    assert (world.group(0).attempt, world.group(0).reason) == (1, "Starting")


def test_a_node_that_is_missing_is_a_lost_engine_too() -> None:
    world = spread()
    world.settle()
    serve(world)
    world.pods = {name: pod for name, pod in world.pods.items() if pod.worker != 2}
    decision = world.look()
    assert [stop.verdict.reason for stop in decision.stop] == [EngineReason.LOST]
    assert "1 of 2 further nodes exist" in world.group(0).message


def leader_crashed(world: ClusterWorld) -> None:
    """Its collective had lost a rank."""
    change(world, 0, terminated=ContainerTerminated(1, "Error", "NCCL error", world.now, world.now), restarts=1)


def another_came(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), worker=2, node="other")


@pytest.mark.parametrize("follows", [leader_crashed, another_came, lambda _world: None])
@pytest.mark.parametrize(
    ("goes", "reason"),
    [
        ({"disrupted": "preempted by release-1", "deleted_at": NOON}, EngineReason.PREEMPTED),
        ({"disrupted": "taint manager", "phase": "Failed"}, EngineReason.PREEMPTED),
    ],
    ids=["going", "ended"],
)
def test_a_worker_that_was_taken_away_is_a_preemption_whatever_follows_from_it(
    follows: Callable[[ClusterWorld], None], goes: dict[str, Any], reason: EngineReason
) -> None:
    world = spread()
    world.settle()
    serve(world)
    change(world, 2, **goes)
    world.pass_time(1)
    follows(world)
    world.look()
    row = world.group(0)
    assert (row.state, row.preemptions, row.attempt, row.reason) == (GroupState.WAITING, 1, 1, reason)
    assert "node 2 of the group" in row.message
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


@pytest.mark.parametrize(
    "fields",
    [{"disrupted": "it will be preempted"}, {"deleted_at": NOON}],
    ids=["marked, and at work", "deleted, and not marked"],
)
def test_a_worker_is_taken_away_only_where_its_pod_says_so_and_goes(fields: dict[str, Any]) -> None:
    world = spread()
    world.settle()
    serve(world)
    change(world, 2, **fields)
    world.look()
    assert world.group(0).preemptions == 0


def test_a_worker_that_its_node_put_out_was_not_taken_away() -> None:
    world = spread()
    world.settle()
    serve(world)
    change(world, 2, phase="Failed", reason="Evicted", disrupted="The node was low on resource: memory")
    world.look()
    assert (world.group(0).preemptions, world.group(0).reason) == (0, EngineReason.LOST)


@pytest.mark.parametrize("worker", [0, 2])
@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [(137, "OOMKilled", EngineReason.OOM_KILLED), (1, "Error", EngineReason.CRASHED)],
)
def test_a_container_that_was_started_again_ends_the_arm_with_its_reason(
    worker: int, code: int, reason: str, told: EngineReason
) -> None:
    world = spread()
    world.settle()
    serve(world)
    ended = ContainerTerminated(code, reason, "last words", world.now, world.now)
    change(world, worker, terminated=ended, restarts=1)
    world.look()
    assert world.group(0).state is GroupState.FAILED
    assert world.group(0).reason == told
    assert ("node 2 of the group" in world.group(0).message) == (worker == 2)
    world.settle()
    assert f"{world.engine(0)}-n" not in sets(world), "no pod of it comes again"
    assert world.launched == [world.engine(0), world.engine(1)]


def test_a_worker_for_which_there_is_no_node_is_named() -> None:
    world = spread()
    world.settle()
    start(world, ready=False)
    change(world, 2, phase="Pending", ready=False, unschedulable="0/2 nodes have 8 GPUs", scheduled_at=None)
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("False", "Unschedulable")
    assert "node 2 of the group" in world.condition(ConditionType.ENGINE_READY).message


def test_a_set_whose_job_is_gone_is_still_the_runs_and_one_of_an_older_run_is_not() -> None:
    world = spread()
    world.settle()
    key = (LWS_KIND, f"{world.engine()}-n")
    world.objects[key] = replace(world.objects[key], owner="a Job that is gone")
    world.look()
    assert not world.status.problem
    assert "WaitingForRemoval" not in {row.reason for row in world.status.conditions}
    older = ChildObject(
        ObjectRef(LWS_KIND, "demo-g9-0-n", "x"), "an older Job", world.objects[key].key, run_uid=OLDER_UID
    )
    world.objects[LWS_KIND, "demo-g9-0-n"] = older
    world.look()
    assert "WaitingForRemoval" in {row.reason for row in world.status.conditions}
    assert (LWS_KIND, "demo-g9-0-n") in world.objects, "what is not the run's own is never touched"


def test_a_set_that_is_still_there_may_make_pods_yet_and_is_waited_for() -> None:
    world = spread()
    world.settle()
    serve(world)
    kept = world.objects[LWS_KIND, f"{world.engine()}-n"]
    world.finish_client()
    world.look()
    world.reap()
    world.objects[LWS_KIND, f"{world.engine()}-n"] = replace(kept, deleting=True)
    world.look()
    assert world.launched == [world.engine(0)]
    del world.objects[LWS_KIND, f"{world.engine()}-n"]
    world.look()
    assert world.launched == [world.engine(0), world.engine(1)]


def test_suspending_gives_every_node_back() -> None:
    world = spread()
    world.settle()
    serve(world)
    world.run["spec"]["suspend"] = True
    world.settle()
    assert sets(world) == []
    assert alive(world) == []


def test_without_leader_worker_set_a_run_is_told_what_to_install_and_nothing_is_made() -> None:
    world = spread()
    world.settings = SETTINGS
    decision = world.look()
    assert decision.apply == ()
    assert world.said(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    assert "leaderWorkerSets=true" in world.condition(ConditionType.VALIDATED).message
    world.settings = replace(SETTINGS, leader_worker_sets=True)
    assert world.look().apply, "once it is there, the run goes on"


def test_an_engine_on_one_node_is_a_job_as_before() -> None:
    world = ClusterWorld(settings=replace(SETTINGS, leader_worker_sets=True))
    assert finished(world).status.phase is Phase.SUCCEEDED
    assert sets(world) == []


def test_the_place_that_is_told_is_the_leaders_with_the_gpus_of_all() -> None:
    world = spread()
    world.settle()
    serve(world)
    leader = next(pod for pod in world.pods.values() if pod.worker == 0)
    facts = collect_host_facts(parse_run(world.run), leader, ()).facts
    assert (facts[FactName.NODE].value, facts[FactName.GPU_COUNT].value) == ("gpu-0", NODES * 8)
