"""Launch numbers are never used twice, whatever is lost, because records, progress and pods are identified by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specbench_api.spec.conditions import GroupState, Phase
from specbench_operator.run.launches.launch_state import SUSPENDED
from specbench_testing.cluster_world import AWAY, ClusterWorld, launched
from specbench_testing.operator_builders import operator_run

QUEUED: dict[str, Any] = {"spec.placement": {"gpus": 2, "queueName": "bench", "preemptionBudget": 50}}


def suspend(world: ClusterWorld, *, suspended: bool = True) -> None:
    world.run["spec"]["suspend"] = suspended


def test_a_launch_missing_from_status_keeps_its_number_when_status_writes_fail() -> None:
    world = launched()
    world.start_pod(world.engine())
    world.lose_status()
    suspend(world)
    for _ in range(3):
        world.reconcile_without_status_write()
        world.reap()
    assert [pod for pod in world.pods.values() if pod.alive] == [], "its GPUs are released"
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 1)
    assert world.jobs[world.engine(0, 0)].verdict.reason == SUSPENDED  # type: ignore[union-attr]


def test_no_engine_is_launched_before_the_stopped_job_has_ended() -> None:
    """The Job is new: its controller may still create a pod before it sees the deadline."""
    world = launched()
    world.lose_status()
    suspend(world)
    world.reconcile()
    stopped = world.jobs[world.engine()]
    assert stopped.verdict is not None
    world.jobs[world.engine()] = replace(stopped, failure=None)
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0)]
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_launch_whose_first_status_write_fails_keeps_its_number() -> None:
    """The last written row has the same number, for a launch that was not made yet."""
    world = ClusterWorld()
    suspend(world)
    world.settle()
    suspend(world, suspended=False)
    world.reconcile_without_status_write()
    assert (world.group(0).attempt, world.group(0).state) == (0, GroupState.WAITING)
    suspend(world)
    world.reconcile_without_status_write()
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_a_queued_launch_leaves_its_queue_once_it_is_in_status() -> None:
    world = launched(operator_run(QUEUED))
    world.lose_status()
    suspend(world)
    for _ in range(3):
        world.reconcile_without_status_write()
    world.reconcile()
    assert world.engine() in world.jobs, "this reconcile writes it to the status"
    world.reconcile()
    assert world.engine() not in world.jobs
    suspend(world, suspended=False)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


@pytest.mark.parametrize("s3_was_away", [False, True])
def test_results_restore_the_launch_number_when_status_and_jobs_are_lost(s3_was_away: bool) -> None:
    world = launched()
    for attempt in range(4):
        world.serve(0, attempt)
        suspend(world)
        world.settle()
        suspend(world, suspended=False)
        world.settle()
    world.launches_there = {0: 4}
    world.jobs.clear()
    world.pods.clear()
    world.lose_status()
    if s3_was_away:
        world.trouble = AWAY
        world.settle()
        assert world.group(0).attempt == 0, "the number is not known yet"
        world.trouble = None
    world.settle()
    assert world.launched[-1] == world.engine(0, 5)
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions) == (GroupState.STARTING, 5, 5), "none of them counts as lost"
    assert world.jobs[world.engine(0, 5)].prior_launches.suspensions == 5
    world.measure(0, 5)
    assert world.launched[-1] == world.engine(1, 0), "each group has its own numbers"


def test_an_older_remaining_job_does_not_hide_a_newer_launch() -> None:
    world = launched()
    world.serve()
    world.lose_pods(world.engine())
    world.settle()
    world.serve(0, 1)
    world.launches_there = {0: 1}
    world.lose_job(world.engine(0, 1))
    world.lose_job(world.client(0, 1))
    world.lose_status()
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2)]


def test_a_launch_of_a_temporarily_invalid_run_keeps_its_number() -> None:
    world = launched()
    world.start_pod(world.engine())
    world.lose_status()
    world.run["spec"]["placement"]["nodes"] = 2
    world.settle()
    assert world.status.phase is Phase.INVALID
    assert [pod for pod in world.pods.values() if pod.alive] == []
    world.run["spec"]["placement"].pop("nodes")
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]


def test_an_engine_launched_out_of_order_is_stopped_and_its_number_retired() -> None:
    world = launched()
    world.measure(0)
    world.serve(1)
    world.settle()
    world.measured.clear()
    assert {stop.ref.name for stop in world.reconcile().stop} <= {world.engine(1)}
    world.settle()
    assert (world.group(1).state, world.group(1).attempt, world.group(1).suspensions) == (GroupState.WAITING, 1, 1)
    assert world.engine(1) not in world.jobs
