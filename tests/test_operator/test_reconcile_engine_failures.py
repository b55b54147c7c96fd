"""All ways in which an engine can fail by itself: the reason, the end of its group, and the release of its GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specbench_api.spec.conditions import ConditionType, GroupState
from specbench_operator.state.objects import ContainerTerminated
from specbench_testing.cluster_world import ClusterWorld, first_group_failed
from specbench_testing.operator_builders import operator_run, waiting


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld()
    world.settle()
    return world


def test_an_engine_that_runs_out_of_memory_is_given_up_and_the_other_arm_goes_on(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled", message="loading weights")
    world.settle()
    first_group_failed(world, "OOMKilled")
    assert "137" in world.group(0).message
    assert "loading weights" in world.group(0).message
    assert "OOMKilled" in {event.reason for event in world.events}


def test_an_engine_that_crashes_is_given_up_with_its_exit_code_and_last_words(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 3, message="no CUDA device")
    world.settle()
    first_group_failed(world, "Crashed")
    assert world.group(0).message == "the engine ended with exit code 3: no CUDA device"


def test_an_engine_that_ends_by_itself_with_code_0_crashed_too(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.end_pod(world.engine(), 0, reason="Completed")
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], complete=True)
    world.settle()
    first_group_failed(world, "Crashed")


def test_an_engine_that_crashes_while_it_is_measured_takes_its_client_with_it(world: ClusterWorld) -> None:
    world.serve()
    world.crash(world.engine(), 139, message="segfault")
    world.settle()
    first_group_failed(world, "Crashed")
    assert world.client() not in world.jobs
    assert ("Service", world.engine()) not in world.objects


def test_a_crash_is_seen_before_the_job_controller_sees_it(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.end_pod(world.engine(), 1)
    world.settle()
    first_group_failed(world, "Crashed")


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_command_that_cannot_start_is_a_config_error(world: ClusterWorld, reason: str) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 128, reason=reason, message="no such file")
    world.settle()
    first_group_failed(world, "ConfigError")


def test_an_image_that_cannot_be_pulled_has_a_minute_to_heal(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("ErrImagePull", "not found"))
    decision = world.look()
    assert decision.requeue_after_s == 60
    assert world.said(ConditionType.ENGINE_READY) == ("False", "ImagePullFailed")
    world.pass_time(59)
    world.change_pod(world.engine(), **waiting("ImagePullBackOff", "not found"))
    assert world.look().stop == ()
    world.change_pod(world.engine(), waiting=None, phase="Running", ready=True)
    world.settle()
    assert world.group(0).state is GroupState.MEASURING


def test_an_image_that_cannot_be_pulled_for_a_minute_is_given_up(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("ImagePullBackOff", "not found"))
    world.look()
    world.pass_time(60)
    world.settle()
    first_group_failed(world, "ImagePullFailed")
    assert "not found" in world.group(0).message


def test_the_minute_of_a_pull_does_not_begin_while_the_pod_waits_for_a_node(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes")
    world.look()
    world.pass_time(300)
    world.change_pod(world.engine(), **waiting("ErrImagePull"), unschedulable=None, scheduled_at=world.now)
    assert world.look().requeue_after_s == 60


def test_an_image_name_that_is_no_name_is_given_up_at_once(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **waiting("InvalidImageName"))
    world.settle()
    first_group_failed(world, "ImagePullFailed")


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "CreateContainerError"])
def test_a_container_that_cannot_be_configured_is_given_up_after_its_grace(world: ClusterWorld, reason: str) -> None:
    world.start_pod(world.engine(), **waiting(reason, 'secret "x" not found'))
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("False", "ConfigError")
    world.pass_time(60)
    world.settle()
    first_group_failed(world, "ConfigError")


def test_the_schedulers_own_words_are_said_at_once_and_the_deadline_gives_up(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes: insufficient gpu")
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("False", "Unschedulable")
    assert "0/3 nodes: insufficient gpu" in world.condition(ConditionType.ENGINE_READY).message
    world.pass_time(1800)
    world.settle()
    first_group_failed(world, "Unschedulable")


def test_an_engine_that_is_not_ready_in_time_is_given_up(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    assert world.look().requeue_after_s == 1800
    world.pass_time(1799)
    assert world.look().requeue_after_s == 1
    world.pass_time(1)
    world.settle()
    first_group_failed(world, "NeverReady")
    assert "1800 s" in world.group(0).message


def test_a_startup_probe_that_gave_up_while_the_operator_was_dead_is_never_ready(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, ran_s=1860)
    world.settle()
    first_group_failed(world, "NeverReady")


def test_an_engine_without_a_pod_tells_why_and_is_given_up_in_time(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], warning="exceeded quota: gpus")
    world.look()
    assert world.said(ConditionType.ENGINE_READY)[0] == "False"
    assert "exceeded quota" in world.condition(ConditionType.ENGINE_READY).message
    world.pass_time(1800)
    world.settle()
    first_group_failed(world, "NeverReady")
    assert "exceeded quota" in world.group(0).message


def test_an_engine_that_waits_in_a_queue_is_not_timed(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], suspended=True, started_at=None)
    world.pass_time(100_000)
    world.settle()
    assert world.group(0).state is GroupState.QUEUED
    started = replace(world.jobs[world.engine()], suspended=False, started_at=world.now)
    world.jobs[world.engine()] = started
    assert world.look().requeue_after_s == 1800


def test_an_engine_that_outlives_its_deadline_is_given_up(world: ClusterWorld) -> None:
    world.serve()
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.lose_pods(world.engine())
    world.settle()
    first_group_failed(world, "DeadlineExceeded")
    assert "14400 s" in world.group(0).message


def test_the_record_of_a_failure_outlives_its_pods(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 1, message="no CUDA device")
    world.settle()
    world.pods.clear()
    del world.run["status"]
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_an_engine_that_should_not_be_there_is_stopped_and_its_number_not_used_again(world: ClusterWorld) -> None:
    world.jobs[world.engine(1)] = replace(
        world.jobs[world.engine()],
        ref=replace(world.jobs[world.engine()].ref, name=world.engine(1)),
        key=replace(world.jobs[world.engine()].key, group=1),
    )
    assert {stop.ref.name for stop in world.look().stop} == {world.engine(1)}
    world.measure(0)
    assert world.launched == [world.engine(0), world.engine(1, 1)]


def test_a_killed_engine_that_nobody_timed_crashed(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137)
    world.change_pod(world.engine(), terminated=ContainerTerminated(137, "Error"))
    world.settle()
    first_group_failed(world, "Crashed")
    assert "SIGKILL" in world.group(0).message


def test_an_arm_that_failed_by_its_own_fault_is_not_launched_again_in_later_repeats() -> None:
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
