"""All ways in which an engine can fail by itself: the reason, the end of its group, and the release of its GPUs."""

from __future__ import annotations

from dataclasses import replace

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


def test_an_oom_killed_engine_fails_its_group_and_the_other_arm_continues(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled", message="loading weights")
    world.settle()
    assert_first_group_failed(world, "OOMKilled")
    assert "137" in world.group(0).message
    assert "loading weights" in world.group(0).message
    assert "OOMKilled" in {event.reason for event in world.events}


def test_a_crashed_engine_fails_with_its_exit_code_and_termination_message(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 3, message="no CUDA device")
    world.settle()
    assert_first_group_failed(world, "Crashed")
    assert world.group(0).message == "the engine ended with exit code 3: no CUDA device"


def test_an_engine_that_exits_with_0_counts_as_crashed(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.end_pod(world.engine(), 0, reason="Completed")
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], complete=True)
    world.settle()
    assert_first_group_failed(world, "Crashed")


def test_an_engine_crash_during_measurement_removes_its_client_and_service(world: ClusterWorld) -> None:
    world.serve()
    world.crash(world.engine(), 139, message="segfault")
    world.settle()
    assert_first_group_failed(world, "Crashed")
    assert world.client() not in world.jobs
    assert ("Service", world.engine()) not in world.objects


def test_a_crash_is_detected_before_the_job_controller_reports_it(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.end_pod(world.engine(), 1)
    world.settle()
    assert_first_group_failed(world, "Crashed")


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_command_that_cannot_start_is_a_config_error(world: ClusterWorld, reason: str) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 128, reason=reason, message="no such file")
    world.settle()
    assert_first_group_failed(world, "ConfigError")


def test_an_image_pull_may_fail_for_up_to_a_minute(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("ErrImagePull", "not found"))
    decision = world.reconcile()
    assert decision.requeue_after_s == 60
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "ImagePullFailed")
    world.pass_time(59)
    world.change_pod(world.engine(), **waiting("ImagePullBackOff", "not found"))
    assert world.reconcile().stop == ()
    world.change_pod(world.engine(), waiting=None, phase="Running", ready=True)
    world.settle()
    assert world.group(0).state is GroupState.MEASURING


def test_an_image_pull_that_fails_for_a_minute_fails_the_group(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("ImagePullBackOff", "not found"))
    world.reconcile()
    world.pass_time(60)
    world.settle()
    assert_first_group_failed(world, "ImagePullFailed")
    assert "not found" in world.group(0).message


def test_the_image_pull_grace_starts_when_the_pod_is_scheduled(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes")
    world.reconcile()
    world.pass_time(300)
    world.change_pod(world.engine(), **waiting("ErrImagePull"), unschedulable=None, scheduled_at=world.now)
    assert world.reconcile().requeue_after_s == 60


def test_an_invalid_image_name_fails_the_group_immediately(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("InvalidImageName"))
    world.settle()
    assert_first_group_failed(world, "ImagePullFailed")


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "CreateContainerError"])
def test_a_container_config_error_fails_the_group_after_its_grace(world: ClusterWorld, reason: str) -> None:
    world.start_pod(world.engine(), **waiting(reason, 'secret "x" not found'))
    world.reconcile()
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "ConfigError")
    world.pass_time(60)
    world.settle()
    assert_first_group_failed(world, "ConfigError")


def test_unschedulable_is_reported_immediately_and_fails_after_the_deadline(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes: insufficient gpu")
    world.reconcile()
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "Unschedulable")
    assert "0/3 nodes: insufficient gpu" in world.condition(ConditionType.ENGINE_READY).message
    world.pass_time(1800)
    world.settle()
    assert_first_group_failed(world, "Unschedulable")


@pytest.mark.parametrize("unschedulable", [None, ""], ids=["no condition", "no message"])
def test_a_pod_without_a_node_at_the_deadline_is_unschedulable(world: ClusterWorld, unschedulable: str | None) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable=unschedulable)
    world.reconcile()
    world.pass_time(1800)
    world.settle()
    assert_first_group_failed(world, "Unschedulable")
    assert "was not scheduled within spec.startupDeadlineSeconds (1800 s)" in world.group(0).message


def test_an_engine_that_is_not_ready_in_time_fails_as_never_ready(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    assert world.reconcile().requeue_after_s == 1800
    world.pass_time(1799)
    assert world.reconcile().requeue_after_s == 1
    world.pass_time(1)
    world.settle()
    assert_first_group_failed(world, "NeverReady")
    assert "1800 s" in world.group(0).message


def test_a_failed_startup_probe_counts_as_never_ready(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, ran_s=1860)
    world.settle()
    assert_first_group_failed(world, "NeverReady")


def test_an_engine_without_a_pod_reports_the_warning_and_fails_after_the_deadline(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], warning="exceeded quota: gpus")
    world.reconcile()
    assert world.status_and_reason(ConditionType.ENGINE_READY)[0] == "False"
    assert "exceeded quota" in world.condition(ConditionType.ENGINE_READY).message
    world.pass_time(1800)
    world.settle()
    assert_first_group_failed(world, "NeverReady")
    assert "exceeded quota" in world.group(0).message


def test_an_engine_that_waits_in_a_queue_has_no_deadline(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], suspended=True, started_at=None)
    world.pass_time(100_000)
    world.settle()
    assert world.group(0).state is GroupState.QUEUED
    started = replace(world.jobs[world.engine()], suspended=False, started_at=world.now)
    world.jobs[world.engine()] = started
    assert world.reconcile().requeue_after_s == 1800


def test_an_engine_that_exceeds_its_deadline_fails(world: ClusterWorld) -> None:
    world.serve()
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.lose_pods(world.engine())
    world.settle()
    assert_first_group_failed(world, "DeadlineExceeded")
    assert "14400 s" in world.group(0).message


def test_a_failure_is_still_recorded_after_pods_and_status_are_gone(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 1, message="no CUDA device")
    world.settle()
    world.pods.clear()
    del world.run["status"]
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_an_engine_launched_out_of_order_is_stopped_and_its_number_retired(world: ClusterWorld) -> None:
    world.jobs[world.engine(1)] = replace(
        world.jobs[world.engine()],
        ref=replace(world.jobs[world.engine()].ref, name=world.engine(1)),
        key=replace(world.jobs[world.engine()].key, group=1),
    )
    assert {stop.ref.name for stop in world.reconcile().stop} == {world.engine(1)}
    world.measure(0)
    assert world.launched == [world.engine(0), world.engine(1, 1)]


def test_a_killed_engine_without_timestamps_counts_as_crashed(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137)
    world.change_pod(world.engine(), terminated=ContainerTerminated(137, "Error"))
    world.settle()
    assert_first_group_failed(world, "Crashed")
    assert "SIGKILL" in world.group(0).message


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
