"""GPU-seconds are added up from observed pods, never twice and never too much."""

from __future__ import annotations

from datetime import timedelta

import pytest

from specbench_operator.run.status.run_status import GPU_SECONDS_PERIOD_S
from specbench_testing.cluster_world import ClusterWorld, finished, launched
from specbench_testing.operator_builders import NOON, operator_run


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld()


def test_gpu_seconds_are_summed_over_observed_pods(world: ClusterWorld) -> None:
    world.settle()
    world.start_pod(world.engine())
    world.pass_time(30)
    world.change_pod(world.engine(), ready=True)
    world.reconcile()
    assert world.status.gpu_seconds_held == 2 * 30
    world.start_pod(world.client())
    world.reconcile()
    world.reconcile(after_s=20)
    assert world.status.gpu_seconds_held == 60, "the sum alone does not cause a status write every few seconds"
    world.reconcile(after_s=40)
    world.reconcile()
    assert world.status.gpu_seconds_held == 2 * 90
    world.end_pod(world.engine(), 1, ran_s=10)
    world.settle(after_s=600)
    assert world.status.gpu_seconds_held == 2 * 100


def test_fractions_of_seconds_are_never_counted_twice() -> None:
    world = launched(operator_run({"spec.load": {"concurrency": [1], "repeats": 32, "order": "Sequential"}}))
    world.serve()
    for point in world.plan.groups[0].points[:-1]:
        world.pass_time(1.9)
        world.measured.add(point.hash)
        world.reconcile()
    held_s = (world.now - NOON).total_seconds()
    assert 2 * (held_s - 1) < world.status.gpu_seconds_held <= 2 * held_s


def test_a_run_without_gpus_holds_none(world: ClusterWorld) -> None:
    world = ClusterWorld(operator_run({"spec.placement": {}}))
    finished(world)
    assert (world.status.gpu_seconds_held, world.status.gpu_seconds_until) == (0, None)


def test_a_vanished_pod_loses_at_most_the_time_since_the_last_write(world: ClusterWorld) -> None:
    world.settle()
    world.start_pod(world.engine(), ready=True)
    world.reconcile()
    world.reconcile(after_s=GPU_SECONDS_PERIOD_S + 10)
    held = world.status.gpu_seconds_held
    world.pass_time(5)
    world.lose_job(world.engine())
    world.reap()
    world.settle()
    assert world.status.gpu_seconds_held == held == 2 * (GPU_SECONDS_PERIOD_S + 10)
    assert world.now - NOON == timedelta(seconds=GPU_SECONDS_PERIOD_S + 15)
