"""Every way in which an engine or a client may fail: how it is named, what it ends, and that the GPUs come back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.outcome.ending import Exit, Termination
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_operator.reconcile.held import EVERY_S
from specbench_operator.state import Scope
from specbench_testing.operator import NOON, World, operator_run, waiting


@pytest.fixture
def world() -> World:
    world = World()
    world.settle()
    return world


def given_up(world: World, reason: str, scope: Scope = Scope.GROUP) -> None:
    """Group 0 failed for this reason, its engine says so for good, nothing of it lives, and group 1 goes on."""
    engine = world.jobs[world.engine()]
    assert engine.verdict is not None
    assert (engine.verdict.reason, engine.verdict.scope) == (reason, scope)
    assert engine.ended
    assert not [pod for pod in world.pods.values() if pod.alive and pod.job == world.engine()]
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, reason)
    assert world.launched == [world.engine(0), world.engine(1)]
    assert world.said(ConditionType.STALLED)[0] == "False"


def test_an_engine_that_runs_out_of_memory_is_given_up_and_the_other_arm_goes_on(world: World) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled", message="loading weights")
    world.settle()
    given_up(world, "OOMKilled")
    assert "137" in world.group(0).message
    assert "loading weights" in world.group(0).message
    assert "OOMKilled" in {event.reason for event in world.events}


def test_an_engine_that_crashes_is_given_up_with_its_exit_code_and_last_words(world: World) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 3, message="no CUDA device")
    world.settle()
    given_up(world, "Crashed")
    assert world.group(0).message == "it ended with exit code 3: no CUDA device"


def test_an_engine_that_ends_by_itself_with_code_0_crashed_too(world: World) -> None:
    world.start_pod(world.engine())
    world.end_pod(world.engine(), 0, reason="Completed")
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], complete=True)
    world.settle()
    given_up(world, "Crashed")


def test_an_engine_that_crashes_while_it_is_measured_takes_its_client_with_it(world: World) -> None:
    world.serve()
    world.crash(world.engine(), 139, message="segfault")
    world.settle()
    given_up(world, "Crashed")
    assert world.client() not in world.jobs
    assert ("Service", world.engine()) not in world.things


def test_a_crash_is_seen_before_the_job_controller_sees_it(world: World) -> None:
    world.start_pod(world.engine())
    world.end_pod(world.engine(), 1)
    world.settle()
    given_up(world, "Crashed")


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_a_program_that_cannot_be_started_is_a_config_error(world: World, reason: str) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 128, reason=reason, message="no such file")
    world.settle()
    given_up(world, "ConfigError")


def test_an_image_that_cannot_be_pulled_has_a_minute_to_heal(world: World) -> None:
    world.start_pod(world.engine(), **waiting("ErrImagePull", "not found"))
    decision = world.look()
    assert decision.look_again_s == 60
    assert world.said(ConditionType.ENGINE_READY) == ("False", "ImagePullFailed")
    world.pass_time(59)
    world.change_pod(world.engine(), **waiting("ImagePullBackOff", "not found"))
    assert world.look().stop == ()
    world.change_pod(world.engine(), waiting=None, phase="Running", ready=True)
    world.settle()
    assert world.group(0).state is GroupState.MEASURING


def test_an_image_that_cannot_be_pulled_for_a_minute_is_given_up(world: World) -> None:
    world.start_pod(world.engine(), **waiting("ImagePullBackOff", "not found"))
    world.look()
    world.pass_time(60)
    world.settle()
    given_up(world, "ImagePullFailed")
    assert "not found" in world.group(0).message


def test_the_minute_of_a_pull_does_not_begin_while_the_pod_waits_for_a_node(world: World) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes")
    world.look()
    world.pass_time(300)
    world.change_pod(world.engine(), **waiting("ErrImagePull"), unschedulable=None, scheduled_at=world.now)
    assert world.look().look_again_s == 60


def test_an_image_name_that_is_no_name_is_given_up_at_once(world: World) -> None:
    world.start_pod(world.engine(), **waiting("InvalidImageName"))
    world.settle()
    given_up(world, "ImagePullFailed")


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "CreateContainerError"])
def test_a_container_that_cannot_be_configured_is_given_up_after_its_grace(world: World, reason: str) -> None:
    world.start_pod(world.engine(), **waiting(reason, 'secret "x" not found'))
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("False", "ConfigError")
    world.pass_time(60)
    world.settle()
    given_up(world, "ConfigError")


def test_the_schedulers_own_words_are_said_at_once_and_the_deadline_gives_up(world: World) -> None:
    world.start_pod(world.engine(), phase="Pending", scheduled_at=None, unschedulable="0/3 nodes: insufficient gpu")
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("False", "Unschedulable")
    assert "0/3 nodes: insufficient gpu" in world.condition(ConditionType.ENGINE_READY).message
    world.pass_time(1800)
    world.settle()
    given_up(world, "Unschedulable")


def test_an_engine_that_is_not_ready_in_time_is_given_up(world: World) -> None:
    world.start_pod(world.engine())
    assert world.look().look_again_s == 1800
    world.pass_time(1799)
    assert world.look().look_again_s == 1
    world.pass_time(1)
    world.settle()
    given_up(world, "NeverReady")
    assert "1800 s" in world.group(0).message


def test_a_startup_probe_that_gave_up_while_the_operator_was_dead_is_never_ready(world: World) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, ran_s=1860)
    world.settle()
    given_up(world, "NeverReady")


def test_an_engine_without_a_pod_tells_why_and_is_given_up_in_time(world: World) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], trouble="exceeded quota: gpus")
    world.look()
    assert world.said(ConditionType.ENGINE_READY)[0] == "False"
    assert "exceeded quota" in world.condition(ConditionType.ENGINE_READY).message
    world.pass_time(1800)
    world.settle()
    given_up(world, "NeverReady")
    assert "exceeded quota" in world.group(0).message


def test_an_engine_that_waits_in_a_queue_is_not_timed(world: World) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], suspended=True, started_at=None)
    world.pass_time(100_000)
    world.settle()
    assert world.group(0).state is GroupState.STARTING
    started = replace(world.jobs[world.engine()], suspended=False, started_at=world.now)
    world.jobs[world.engine()] = started
    assert world.look().look_again_s == 1800


def test_an_engine_that_outlives_its_deadline_is_given_up(world: World) -> None:
    world.serve()
    world.fail_job(world.engine(), "DeadlineExceeded")
    world.lose_pods(world.engine())
    world.settle()
    given_up(world, "DeadlineExceeded")
    assert "14400 s" in world.group(0).message


LOSSES: dict[str, Any] = {
    "its Job was deleted": lambda world: world.lose_job(world.engine()),
    "its pod was deleted": lambda world: world.change_pod(world.engine(), deleted_at=NOON),
    "its pod was deleted and ended": lambda world: (
        world.crash(world.engine(), 143),
        world.change_pod(world.engine(), deleted_at=NOON),
    ),
    "its pod vanished with the Job failed": lambda world: (
        world.fail_job(world.engine()),
        world.lose_pods(world.engine()),
    ),
    "it was preempted": lambda world: (
        world.crash(world.engine(), 137),
        world.change_pod(world.engine(), disrupted="preempted by a pod of higher priority"),
    ),
    "it was evicted": lambda world: (
        world.change_pod(world.engine(), phase="Failed", reason="Evicted", message="disk pressure"),
        world.fail_job(world.engine()),
    ),
    "its end was seen by nobody": lambda world: world.crash(world.engine(), 137, reason="ContainerStatusUnknown"),
}


@pytest.mark.parametrize("how", LOSSES)
def test_an_engine_that_is_lost_without_its_fault_is_launched_again(world: World, how: str) -> None:
    world.serve()
    world.look()
    LOSSES[how](world)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    assert world.client(0, 0) not in world.jobs
    assert (world.group(0).state, world.group(0).attempt) == (GroupState.STARTING, 1)
    assert "EngineLost" in {event.reason for event in world.events}
    world.measure(0, 1)
    assert world.states() == [GroupState.DONE, GroupState.STARTING]


@pytest.mark.parametrize("how", LOSSES)
def test_three_losses_are_enough(world: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt in range(3):
        world.serve(0, attempt)
        world.look()
        if attempt < 2:
            world.lose_job(world.engine(0, attempt))
            world.settle()
    monkeypatch.setattr(world, "engine", lambda: "demo-g0-2")
    LOSSES[how](world)
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "EngineLost")
    assert world.launched == ["demo-g0-0", "demo-g0-1", "demo-g0-2", "demo-g1-0"]
    assert "3 launches" in world.group(0).message


def test_losses_are_counted_also_when_nothing_of_the_launch_is_left(world: World) -> None:
    for attempt in range(3):
        world.start_pod(world.engine(0, attempt))
        world.look()
        world.lose_job(world.engine(0, attempt))
        world.settle()
    assert (world.group(0).state, world.group(0).attempt) == (GroupState.FAILED, 2)
    world.settle()
    assert world.launched[-1] == world.engine(1), "given up stays given up, though only status knows"


def test_a_pod_on_a_dead_node_is_not_waited_for_without_end(world: World) -> None:
    world.serve()
    world.change_pod(world.engine(), deleted_at=world.now, disrupted="node lost")
    world.fail_job(world.engine())
    world.look()
    assert world.look().apply == ()
    world.pass_time(world.settings.gone_after_s)
    world.look()
    assert world.launched[-1] == world.engine(0, 1)


def test_a_client_that_lost_its_engine_lets_the_engine_speak_first(world: World) -> None:
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.LOST, "connection refused")
    decision = world.look()
    assert decision.stop == ()
    assert decision.look_again_s == 10
    assert world.said(ConditionType.ENGINE_READY) == ("False", "EngineLost")
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    given_up(world, "OOMKilled")


def test_a_client_that_lost_its_engine_gets_another_if_the_engine_has_no_story(world: World) -> None:
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.LOST, "connection refused")
    world.look()
    world.pass_time(10)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    verdict = world.jobs[world.engine(0, 0)].verdict
    assert verdict is not None
    assert (verdict.scope, verdict.reason) == (Scope.LAUNCH, "EngineLost")


def test_a_refused_completion_is_reported_with_what_the_engine_said(world: World) -> None:
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.REFUSED, "404: no such model")
    world.settle()
    given_up(world, "CompletionRefused")
    assert world.group(0).message == "404: no such model"
    finish_the_other_arm(world)
    assert world.said(ConditionType.ENGINE_READY) == ("False", "CompletionRefused")


def test_bad_input_stops_the_whole_run_with_the_clients_message(world: World) -> None:
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput", "prompts.jsonl: row 3: prompt is empty")
    world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.said(ConditionType.STALLED) == ("True", "BadInput")
    assert "row 3" in world.condition(ConditionType.STALLED).message
    assert world.said(ConditionType.RECONCILING)[0] == "False"
    assert world.launched == [world.engine()]
    assert world.status.completion_time is not None
    assert not [pod for pod in world.pods.values() if pod.alive]


def test_results_that_cannot_be_stored_are_said_while_the_client_is_retried(world: World) -> None:
    world.serve()
    said = Termination(code=5, reason="S3Away", message="no route").to_message()
    world.end_pod(world.client(), 5, message=said)
    world.start_pod(world.client())
    world.look()
    assert world.said(ConditionType.RESULTS_DURABLE) == ("False", "S3Away")
    assert world.said(ConditionType.STALLED)[0] == "False"
    assert world.group(0).state is GroupState.MEASURING


def test_a_client_that_can_never_store_gives_its_group_up(world: World) -> None:
    world.serve()
    world.fail_client(Exit.NOT_DURABLE, "S3Away", "no route")
    world.settle()
    given_up(world, "S3Away")
    assert world.said(ConditionType.RESULTS_DURABLE) == ("False", "S3Away")
    assert world.said(ConditionType.ENGINE_READY)[0] != "False", "the engine did its part"


@pytest.mark.parametrize("message", ["", "Traceback: KeyError", '{"code": 1}'])
def test_a_client_that_dies_without_proper_words_gives_its_group_up(world: World, message: str) -> None:
    world.serve()
    world.crash(world.client(), 1, message=message)
    world.settle()
    given_up(world, "ClientFailed")
    assert "exit code 1" in world.group(0).message


def test_a_client_job_that_failed_without_any_pod_tells_what_the_job_says(world: World) -> None:
    world.serve()
    world.fail_job(world.client(), "DeadlineExceeded")
    world.lose_pods(world.client())
    world.settle()
    given_up(world, "ClientFailed")
    assert "DeadlineExceeded" in world.group(0).message


@pytest.mark.parametrize(
    "fields", [waiting("ImagePullBackOff", "not found"), {"phase": "Pending", "unschedulable": "not found"}]
)
def test_a_client_that_cannot_start_does_not_keep_the_gpus_for_ever(world: World, fields: dict[str, Any]) -> None:
    world.start_pod(world.engine(), ready=True)
    world.look()
    world.start_pod(world.client(), **fields)
    assert world.look().look_again_s == 300
    world.pass_time(300)
    world.settle()
    given_up(world, "ClientNotStarted")
    assert "not found" in world.group(0).message


def test_a_client_that_ended_well_without_manifests_is_run_again_and_not_for_ever(world: World) -> None:
    for attempt in range(3):
        world.serve(0, attempt)
        world.finish_client(0, attempt)
        world.measured.clear()
        world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ResultsMissing")
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2), world.engine(1)]


def finish_the_other_arm(world: World) -> None:
    world.measure(1)
    world.finish_report()
    world.settle()


def test_a_run_with_one_failed_arm_succeeds_with_what_it_has(world: World) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    finish_the_other_arm(world)
    status = world.status
    assert status.phase is Phase.SUCCEEDED
    assert (status.points.measured, status.points.failed, status.progress) == (1, 1, "1/2")
    assert world.said(ConditionType.READY) == ("True", "Finished")
    assert world.said(ConditionType.LOAD_FINISHED) == ("False", "OOMKilled")
    assert world.said(ConditionType.ENGINE_READY) == ("False", "OOMKilled")
    assert "arm none" in world.condition(ConditionType.LOAD_FINISHED).message


def test_a_run_in_which_nothing_was_measured_has_failed_and_makes_no_report(world: World) -> None:
    for group in (0, 1):
        world.start_pod(world.engine(group))
        world.crash(world.engine(group), 1, message="no CUDA device")
        world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.said(ConditionType.STALLED) == ("True", "Crashed")
    assert world.said(ConditionType.READY) == ("False", "Crashed")
    assert "no CUDA device" in world.condition(ConditionType.READY).message
    assert world.report not in world.jobs
    assert world.status.completion_time is not None


def test_a_failed_run_is_not_tried_again_when_its_children_are_gone(world: World) -> None:
    for group in (0, 1):
        world.start_pod(world.engine(group))
        world.crash(world.engine(group), 1)
        world.settle()
    world.pass_time(86_400)
    world.settle()
    world.settle()
    assert world.jobs == {}
    assert len(world.launched) == 2


def measured_all(world: World) -> None:
    world.measure(0)
    world.measure(1)


def test_a_report_that_fails_stalls_the_run_and_keeps_the_measurements(world: World) -> None:
    measured_all(world)
    world.start_pod(world.report)
    world.crash(world.report, 1, message="bug")
    world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.said(ConditionType.STALLED) == ("True", "ClientFailed")
    assert "the report failed" in world.condition(ConditionType.STALLED).message
    assert world.status.progress == "2/2"


def test_a_report_that_cannot_be_stored_is_said(world: World) -> None:
    measured_all(world)
    world.start_pod(world.report)
    said = Termination(code=5, reason="CredentialsRefused", message="denied").to_message()
    world.end_pod(world.report, 5, message=said)
    world.look()
    assert world.said(ConditionType.RESULTS_DURABLE) == ("False", "CredentialsRefused")
    assert world.status.phase is Phase.ANALYSING


def test_a_report_that_ended_well_without_a_summary_stalls_the_run(world: World) -> None:
    measured_all(world)
    world.finish_report()
    world.summary = None
    world.settle()
    assert world.said(ConditionType.STALLED) == ("True", "ResultsMissing")


def test_a_report_that_can_never_start_stalls_the_run(world: World) -> None:
    measured_all(world)
    world.start_pod(world.report, phase="Pending", unschedulable="0/3 nodes")
    world.look()
    world.pass_time(300)
    world.settle()
    assert world.said(ConditionType.STALLED) == ("True", "ClientNotStarted")


def test_a_point_that_is_lost_after_the_report_began_is_measured_again_before_the_report(world: World) -> None:
    measured_all(world)
    assert world.report in world.jobs
    world.measured -= {point.hash for point in world.plan.groups[1].points}
    world.settle()
    assert world.report not in world.jobs
    assert world.launched[-1] == world.engine(1, 1)


def test_the_record_of_a_failure_outlives_its_pods(world: World) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 1, message="no CUDA device")
    world.settle()
    world.pods.clear()
    del world.run["status"]
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_an_engine_that_should_not_be_there_is_deleted(world: World) -> None:
    world.jobs[world.engine(1)] = replace(
        world.jobs[world.engine()],
        ref=replace(world.jobs[world.engine()].ref, name=world.engine(1)),
        place=replace(world.jobs[world.engine()].place, group=1),
    )
    assert {ref.name for ref in world.look().delete} == {world.engine(1)}


def test_a_spec_that_cannot_be_run_creates_nothing_and_says_where_and_what_instead() -> None:
    drafter = {"name": "e", "method": "eagle", "model": "m"}
    world = World(operator_run({"spec.engine.kind": "llama-cpp", "spec.drafters[0]": drafter}))
    decision = world.look()
    assert (decision.apply, decision.at_rest) == ((), True)
    assert world.status.phase is Phase.INVALID
    assert world.said(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    message = world.condition(ConditionType.VALIDATED).message
    assert "spec.drafters[e].method" in message
    assert "use draft_model or ngram" in message
    assert world.said(ConditionType.STALLED)[0] == "True"
    assert world.said(ConditionType.RECONCILING)[0] == world.said(ConditionType.READY)[0] == "False"
    assert [event.reason for event in world.events] == ["Invalid"]
    world.look()
    assert len(world.events) == 1


def test_a_plan_that_no_config_map_holds_is_an_invalid_spec() -> None:
    many = {"concurrency": list(range(1, 17)), "repeats": 32}
    workloads = [
        {"name": f"workload-of-a-long-name-{number}", "dataset": {"source": "jsonl", "uri": f"{number}.jsonl"}}
        for number in range(4)
    ]
    world = World(operator_run({"spec.load": many, "spec.workloads": workloads}))
    assert world.look().apply == ()
    assert world.said(ConditionType.VALIDATED)[0] == "False"
    assert "fewer workloads" in world.condition(ConditionType.VALIDATED).message


def test_a_run_that_became_invalid_gives_its_gpus_back(world: World) -> None:
    world.serve()
    world.run["spec"]["engine"]["kind"] = "unheard-of"
    decision = world.look()
    assert {ref.name for ref in decision.delete} == {world.engine(), world.client()}


def test_a_pod_that_vanished_costs_at_most_what_lies_since_the_last_write(world: World) -> None:
    world.start_pod(world.engine(), ready=True)
    world.look()
    world.pass_time(EVERY_S + 10)
    world.look()
    held = world.status.gpu_seconds_held
    world.pass_time(5)
    world.lose_job(world.engine())
    world.reap()
    world.settle()
    assert world.status.gpu_seconds_held == held == 2 * (EVERY_S + 10)
    assert world.now - NOON == timedelta(seconds=EVERY_S + 15)
