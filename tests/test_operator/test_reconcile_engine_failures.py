"""All ways in which an engine can fail by itself: the reason, the end of its group, and the release of its GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from specbench_api.spec.conditions import ConditionType, GroupState
from specbench_operator.state.objects import ContainerTerminated
from specbench_testing.cluster_world import ClusterWorld, assert_first_group_failed
from specbench_testing.operator_builders import operator_run, waiting


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld()
    world.settle()
    return world


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
    world.pass_time(seconds - 1)
    assert (world.reconcile().stop, world.reconcile().requeue_after_s) == ((), 1)
    world.pass_time(1)
    world.settle()
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
    world.pass_time(20)
    assert world.reconcile().requeue_after_s == 40


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
    world.pass_time(1800)
    world.settle()
    assert_first_group_failed(world, "NeverReady")
    assert (warning or NOT_READY) in world.group(0).message


def test_an_engine_that_waits_in_a_queue_has_no_deadline(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], suspended=True, started_at=None)
    world.pass_time(100_000)
    world.settle()
    assert world.group(0).state is GroupState.QUEUED
    world.admit(world.engine())
    assert world.reconcile().requeue_after_s == 1800


def test_a_failure_is_still_recorded_after_pods_and_status_are_gone(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 1, message="no CUDA device")
    world.settle()
    world.pods.clear()
    del world.run["status"]
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_an_arm_that_failed_by_itself_is_not_launched_in_later_repeats() -> None:
    world = ClusterWorld(operator_run({"spec.load": {"concurrency": [1], "repeats": 3, "order": "Interleaved"}}))
    world.settle()
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
