"""Engines that are lost or preempted are launched again, up to a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specbench_api.spec.conditions import GroupState
from specbench_operator.state.timestamps import parse_timestamp
from specbench_testing.cluster_world import ClusterWorld, launched
from specbench_testing.operator_builders import NOON


@pytest.fixture
def world() -> ClusterWorld:
    return launched()


LOSSES: dict[str, Any] = {
    "Job deleted": lambda world: world.lose_job(world.engine()),
    "pod deleted": lambda world: world.change_pod(world.engine(), deleted_at=NOON),
    "pod deleted and ended": lambda world: (
        world.crash(world.engine(), 143),
        world.change_pod(world.engine(), deleted_at=NOON),
    ),
    "pod gone and Job failed": lambda world: (
        world.fail_job(world.engine()),
        world.lose_pods(world.engine()),
    ),
    "pod gone before the Job fails": lambda world: world.lose_pods(world.engine()),
    "evicted": lambda world: (
        world.change_pod(world.engine(), phase="Failed", reason="Evicted", message="disk pressure"),
        world.fail_job(world.engine()),
    ),
    "evicted under node pressure": lambda world: (
        world.change_pod(
            world.engine(), phase="Failed", reason="Evicted", disrupted="The node was low on resource: memory"
        ),
        world.fail_job(world.engine()),
    ),
    "container status unknown": lambda world: world.crash(world.engine(), 137, reason="ContainerStatusUnknown"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_engine_is_launched_again(world: ClusterWorld, loss: str) -> None:
    world.serve()
    world.reconcile()
    LOSSES[loss](world)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert world.client(0, 0) not in world.jobs
    assert (world.group(0).state, world.group(0).attempt) == (GroupState.STARTING, 1)
    assert "EngineLost" in {event.reason for event in world.events}
    world.measure(0, 1)
    assert world.states() == [GroupState.DONE, GroupState.STARTING]


def test_losses_are_counted_when_nothing_of_the_launch_is_left(world: ClusterWorld) -> None:
    for attempt in range(3):
        world.start_pod(world.engine(0, attempt))
        world.reconcile()
        world.lose_job(world.engine(0, attempt))
        world.settle()
    assert (world.group(0).state, world.group(0).attempt) == (GroupState.FAILED, 2)
    world.settle()
    assert world.launched[-1] == world.engine(1), "a failed group stays failed, although only the status records it"


def test_a_launch_with_deleted_jobs_is_counted_when_earlier_jobs_are_left(
    world: ClusterWorld,
) -> None:
    world.serve()
    world.reconcile()
    world.lose_pods(world.engine())
    world.settle()
    world.lose_job(world.engine(0, 1))
    world.settle()
    assert world.engine(0, 0) in world.jobs
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2)]


def test_a_pod_on_a_dead_node_is_waited_for_up_to_a_limit(world: ClusterWorld) -> None:
    world.serve()
    world.change_pod(world.engine(), deleted_at=world.now, disrupted="node lost")
    world.fail_job(world.engine())
    world.reconcile()
    assert world.reconcile().apply == ()
    world.reconcile(after_s=world.settings.gone_after_s)
    assert world.launched[-1] == world.engine(0, 1)


def test_an_engine_job_being_deleted_is_waited_for_and_launched_again(world: ClusterWorld) -> None:
    world.serve()
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], deleting=True)
    decision = world.reconcile()
    assert ("Job", world.engine()) not in {(ref.kind, ref.name) for ref in decision.delete}, (
        "the Job is already being deleted"
    )
    assert world.launched == [world.engine()]
    world.lose_job(world.engine())
    world.settle()
    assert world.launched == [world.engine(), world.engine(0, 1)]


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-01-02T12:00:00"])
def test_an_unreadable_timestamp_in_status_is_none(text: str | None) -> None:
    read = parse_timestamp(text)
    assert read == (NOON if text and text[0] == "2" else None)
