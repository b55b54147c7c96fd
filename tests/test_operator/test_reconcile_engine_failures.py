"""All ways in which an engine can fail or be lost: the reason, the end of its group, and the next launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.spec.conditions import ConditionType, GroupState
from specbench_operator.state.objects import ContainerTerminated
from specbench_operator.state.timestamps import parse_timestamp
from specbench_testing.cluster_world import ClusterWorld, assert_first_group_failed, launched
from specbench_testing.operator_builders import NOON, operator_run, waiting


@pytest.fixture
def world() -> ClusterWorld:
    return launched()


Cause = Callable[[ClusterWorld], object]


def crash(*code: int, **how: Any) -> Cause:
    return lambda world: world.crash(world.engine(), *code, **how)


def ends_with_0(world: ClusterWorld) -> None:
    world.end_pod(world.engine(), 0, reason="Completed")
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], complete=True)


def killed_without_timestamps(world: ClusterWorld) -> None:
    world.crash(world.engine(), 137)
    world.change_pod(world.engine(), terminated=ContainerTerminated(137, "Error"))


def exceeds_its_deadline(world: ClusterWorld) -> None:
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.lose_pods(world.engine())


ENDS: dict[str, tuple[Cause, str, str]] = {
    "out of memory": (
        crash(137, reason="OOMKilled", message="loading weights"),
        "OOMKilled",
        "containers[0].resources.limits.memory: loading weights",
    ),
    "crashed": (crash(3, message="no CUDA"), "Crashed", "the engine ended with exit code 3: no CUDA"),
    "ended with 0": (ends_with_0, "Crashed", "the engine ended with exit code 0"),
    "crashed, and its Job reports it later": (
        lambda world: world.end_pod(world.engine(), 1),
        "Crashed",
        "the engine ended with exit code 1",
    ),
    "killed": (crash(137, ran_s=1799), "Crashed", "exit code 137 (SIGKILL, but not for its memory limit"),
    "killed without timestamps": (killed_without_timestamps, "Crashed", "exit code 137 (SIGKILL"),
    "killed by its startup probe": (crash(137, ran_s=1800), "NeverReady", "(1800 s): see its log"),
    "ended late": (crash(1, ran_s=1860), "Crashed", "exit code 1"),
    "never started": (crash(128, reason="StartError", message="no file"), "ConfigError", "StartError: no file"),
    "not to be run": (crash(128, reason="ContainerCannotRun"), "ConfigError", "ContainerCannotRun"),
    "too long for its Job": (exceeds_its_deadline, "DeadlineExceeded", "spec.activeDeadlineSeconds (14400 s)"),
}


@pytest.mark.parametrize("cause", ENDS)
def test_an_engine_that_ends_fails_its_group_and_the_other_arm_continues(world: ClusterWorld, cause: str) -> None:
    end, reason, message = ENDS[cause]
    world.start_pod(world.engine())
    end(world)
    world.settle()
    assert_first_group_failed(world, reason)
    assert message in world.group(0).message
    assert reason in {event.reason for event in world.events}


def test_an_engine_that_ends_while_it_serves_takes_its_client_and_service_along(world: ClusterWorld) -> None:
    world.serve()
    world.crash(world.engine(), 137, ran_s=1860)
    world.settle()
    assert_first_group_failed(world, "Crashed")
    assert world.client() not in world.jobs
    assert ("Service", world.engine()) not in world.objects


UNSCHEDULED = {"phase": "Pending", "scheduled_at": None}
NO_GPU = "0/3 nodes: insufficient gpu"
NOT_SCHEDULED = "was not scheduled within spec.startupDeadlineSeconds (1800 s)"
NOT_READY = "was not ready within spec.startupDeadlineSeconds (1800 s)"
NO_SECRET = 'secret "x" not found'
WAITS: dict[str, tuple[dict[str, Any], float, str, str, str]] = {
    "image not found": (waiting("ErrImagePull", "not found"), 60, "False", "ImagePullFailed", "not found"),
    "image pull backs off": (waiting("ImagePullBackOff", "not found"), 60, "False", "ImagePullFailed", "not found"),
    "no Secret": (waiting("CreateContainerConfigError", NO_SECRET), 60, "False", "ConfigError", NO_SECRET),
    "no container": (waiting("CreateContainerError", NO_SECRET), 60, "False", "ConfigError", NO_SECRET),
    "unschedulable": ({**UNSCHEDULED, "unschedulable": NO_GPU}, 1800, "False", "Unschedulable", NO_GPU),
    "no scheduler": (UNSCHEDULED, 1800, "Unknown", "Unschedulable", NOT_SCHEDULED),
    "silent scheduler": ({**UNSCHEDULED, "unschedulable": ""}, 1800, "Unknown", "Unschedulable", NOT_SCHEDULED),
    "scheduled without a time": ({**UNSCHEDULED, "node": "n"}, 1800, "Unknown", "NeverReady", NOT_READY),
    "not ready": ({}, 1800, "Unknown", "NeverReady", NOT_READY),
    "starts its container": (waiting("ContainerCreating"), 1800, "Unknown", "NeverReady", NOT_READY),
}
"""Fields of the pod, the time until it fails, EngineReady until then, and the reason and message of the failure."""


@pytest.mark.parametrize("cause", WAITS)
def test_an_engine_that_does_not_start_fails_after_its_time(world: ClusterWorld, cause: str) -> None:
    fields, seconds, ready, reason, message = WAITS[cause]
    world.start_pod(world.engine(), **fields)
    assert world.reconcile().requeue_after_s == seconds
    assert world.status_and_reason(ConditionType.ENGINE_READY) == (ready, reason if ready == "False" else "Starting")
    assert (world.reconcile(after_s=seconds - 1).stop, world.reconcile().requeue_after_s) == ((), 1)
    world.settle(after_s=1)
    assert_first_group_failed(world, reason)
    assert message in world.group(0).message


def test_an_image_pull_that_succeeds_within_a_minute_is_no_failure(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("ErrImagePull", "not found"))
    world.reconcile()
    world.pass_time(59)
    world.change_pod(world.engine(), waiting=None, phase="Running", ready=True)
    world.settle()
    assert world.group(0).state is GroupState.MEASURING


def test_the_image_pull_grace_starts_when_the_pod_is_scheduled(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **UNSCHEDULED, unschedulable=NO_GPU)
    world.reconcile()
    world.pass_time(300)
    world.change_pod(world.engine(), **waiting("ErrImagePull"), unschedulable=None, scheduled_at=world.now)
    assert world.reconcile().requeue_after_s == 60
    assert world.reconcile(after_s=20).requeue_after_s == 40


def test_an_invalid_image_name_fails_the_group_immediately(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("InvalidImageName", "bad"))
    world.settle()
    assert_first_group_failed(world, "ImagePullFailed")
    assert world.group(0).message == "InvalidImageName: bad"


@pytest.mark.parametrize(("warning", "ready"), [("exceeded quota: gpus", "False"), ("", "Unknown")])
def test_an_engine_without_a_pod_reports_the_warning_and_fails_after_the_deadline(
    world: ClusterWorld, warning: str, ready: str
) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], warning=warning)
    world.reconcile()
    assert world.status_and_reason(ConditionType.ENGINE_READY)[0] == ready
    assert (warning or "its pod is not created yet") in world.condition(ConditionType.ENGINE_READY).message
    world.settle(after_s=1800)
    assert_first_group_failed(world, "NeverReady")
    assert (warning or NOT_READY) in world.group(0).message


def test_a_failure_is_still_recorded_after_pods_and_status_are_gone(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 1, message="no CUDA device")
    world.settle()
    world.pods.clear()
    del world.run["status"]
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_an_arm_that_failed_by_itself_is_not_launched_in_later_repeats() -> None:
    world = launched(operator_run({"spec.load": {"concurrency": [1], "repeats": 3, "order": "Interleaved"}}))
    assert [group.arm for group in world.plan.groups] == ["none", "ngram", "none", "ngram"]
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled", message="loading weights")
    world.settle()
    for group in (1, 3):
        world.measure(group)
        world.settle()
    assert world.states() == [GroupState.FAILED, GroupState.DONE, GroupState.FAILED, GroupState.DONE]
    assert world.group(2).reason == "OOMKilled"
    assert world.group(2).message.startswith("not launched, because group 1 of this arm failed")
    assert len(world.launched) == 3


# Lost engines are launched again, up to a limit.


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
