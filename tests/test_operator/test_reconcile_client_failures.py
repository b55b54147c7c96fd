"""All ways in which a client can end, and what ends with it."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.outcome.termination import Exit, Termination
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_operator.state.objects import FailureScope
from specbench_testing.cluster_world import ClusterWorld, finish_the_other_arm, first_group_failed
from specbench_testing.operator_builders import operator_run, waiting


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld()
    world.settle()
    return world


def test_a_client_that_lost_its_engine_lets_the_engine_speak_first(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.LOST, "connection refused")
    decision = world.look()
    assert decision.stop == ()
    assert decision.requeue_after_s == 10
    assert world.said(ConditionType.ENGINE_READY) == ("False", "EngineLost")
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    first_group_failed(world, "OOMKilled")


def test_a_client_that_lost_its_engine_gets_another_if_the_engine_has_no_story(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.LOST, "connection refused")
    world.look()
    world.pass_time(10)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    verdict = world.jobs[world.engine(0, 0)].verdict
    assert verdict is not None
    assert (verdict.scope, verdict.reason) == (FailureScope.LAUNCH, "EngineLost")


def test_a_refused_completion_is_reported_with_what_the_engine_said(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.FIRST_REQUEST_FAILED, "404: no such model")
    world.settle()
    first_group_failed(world, "FirstRequestFailed")
    assert world.group(0).message == "404: no such model"
    finish_the_other_arm(world)
    assert world.said(ConditionType.ENGINE_READY) == ("False", "FirstRequestFailed")


def test_bad_input_stops_the_whole_run_with_the_clients_message(world: ClusterWorld) -> None:
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


def test_results_that_cannot_be_stored_are_said_while_the_client_is_retried(world: ClusterWorld) -> None:
    world.serve()
    said = Termination(code=5, reason="S3Away", message="no route").to_message()
    world.end_pod(world.client(), 5, message=said)
    world.start_pod(world.client())
    world.look()
    assert world.said(ConditionType.RESULTS_STORED) == ("False", "S3Away")
    assert world.said(ConditionType.STALLED)[0] == "False"
    assert world.group(0).state is GroupState.MEASURING


def test_a_client_that_can_never_store_gives_its_group_up(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.RESULTS_NOT_STORED, "S3Away", "no route")
    world.settle()
    first_group_failed(world, "S3Away")
    assert world.said(ConditionType.RESULTS_STORED) == ("False", "S3Away")
    assert world.said(ConditionType.ENGINE_READY)[0] != "False", "the engine did its part"


@pytest.mark.parametrize("message", ["", "Traceback: KeyError", '{"code": 1}'])
def test_a_client_that_dies_without_proper_words_gives_its_group_up(world: ClusterWorld, message: str) -> None:
    world.serve()
    world.crash(world.client(), 1, message=message)
    world.settle()
    first_group_failed(world, "ClientFailed")
    assert "exit code 1" in world.group(0).message


def test_a_client_job_that_failed_without_any_pod_tells_what_the_job_says(world: ClusterWorld) -> None:
    world.serve()
    world.fail_job(world.client(), "DeadlineExceeded")
    world.lose_pods(world.client())
    world.settle()
    first_group_failed(world, "ClientFailed")
    assert "DeadlineExceeded" in world.group(0).message


@pytest.mark.parametrize(
    "fields", [waiting("ImagePullBackOff", "not found"), {"phase": "Pending", "unschedulable": "not found"}]
)
def test_a_client_that_cannot_start_does_not_keep_the_gpus_for_ever(
    world: ClusterWorld, fields: dict[str, Any]
) -> None:
    world.start_pod(world.engine(), ready=True)
    world.look()
    world.start_pod(world.client(), **fields)
    assert world.look().requeue_after_s == 300
    world.pass_time(300)
    world.settle()
    first_group_failed(world, "ClientNotStarted")
    assert "not found" in world.group(0).message


UNSCHEDULABLE: dict[str, Any] = {"phase": "Pending", "unschedulable": "0/3 nodes", "scheduled_at": None}


@pytest.mark.parametrize("left", [None, UNSCHEDULABLE], ids=["gone", "unschedulable"])
def test_a_client_that_is_taken_away_after_an_hour_has_its_time_to_start_again(
    world: ClusterWorld, left: dict[str, Any] | None
) -> None:
    world.serve()
    world.look()
    world.pass_time(3600)
    world.lose_pods(world.client())
    if left:
        world.start_pod(world.client(), **left)
    assert world.look().requeue_after_s == 300
    assert world.group(0).state is GroupState.MEASURING
    world.pass_time(299)
    world.look()
    world.start_pod(world.client())
    world.look()
    assert (world.group(0).state, world.group(0).idle_since) == (GroupState.MEASURING, None)


def test_a_retried_client_that_can_never_start_is_not_waited_for_without_end(world: ClusterWorld) -> None:
    world.serve()
    said = Termination(code=5, reason="S3Away", message="no route").to_message()
    world.end_pod(world.client(), 5, message=said)
    world.look()
    world.pass_time(320)
    assert world.look().requeue_after_s is None, "Kubernetes waits that long before it tries again"
    world.start_pod(world.client(), **UNSCHEDULABLE)
    world.look()
    assert world.group(0).message == "0/3 nodes"
    world.pass_time(300)
    world.settle()
    first_group_failed(world, "ClientNotStarted")
    assert "0/3 nodes" in world.group(0).message


def test_a_client_without_words_for_its_reason_gives_its_group_up_all_the_same() -> None:
    world = ClusterWorld(operator_run({"spec.baseline": "Skip"}))
    world.settle()
    world.serve()
    world.fail_client(Exit.ENGINE_FAILED, "", "it broke")
    world.settle()
    assert (world.status.phase, world.group(0).reason) == (Phase.FAILED, "ClientFailed")
    assert "it broke" in world.group(0).message


def test_a_client_that_ended_well_without_manifests_is_run_again_and_not_for_ever(world: ClusterWorld) -> None:
    for attempt in range(3):
        world.serve(0, attempt)
        world.finish_client(0, attempt)
        world.measured.clear()
        world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ResultsMissing")
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2), world.engine(1)]
