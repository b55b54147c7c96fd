"""All ways in which a client can end, and what ends with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specbench_api.outcome.termination import Exit, Termination
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_operator.state.objects import FailureScope
from specbench_testing.cluster_world import ClusterWorld, assert_first_group_failed, finish_other_arm
from specbench_testing.operator_builders import waiting


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld()
    world.settle()
    return world


def lose_engine(world: ClusterWorld) -> None:
    world.fail_client(Exit.ENGINE_FAILED, EngineReason.LOST, "connection refused")


def end_without_storing(world: ClusterWorld) -> None:
    """The client's first pod ends; its Job will retry it."""
    message = Termination(code=Exit.RESULTS_NOT_STORED, reason="S3Away", message="no route").to_message()
    world.end_pod(world.client(), Exit.RESULTS_NOT_STORED, message=message)


def job_fails_without_a_pod(world: ClusterWorld) -> None:
    world.fail_job(world.client(), "DeadlineExceeded")
    world.lose_pods(world.client())


Cause = Callable[[ClusterWorld], object]
ENDS: dict[str, tuple[Cause, str, str]] = {
    "refused completion": (
        lambda world: world.fail_client(Exit.ENGINE_FAILED, EngineReason.FIRST_REQUEST_FAILED, "404: no such model"),
        "FirstRequestFailed",
        "404: no such model",
    ),
    "never stored": (
        lambda world: world.fail_client(Exit.RESULTS_NOT_STORED, "S3Away", "no route"),
        "S3Away",
        "no route",
    ),
    "without a reason": (
        lambda world: world.fail_client(Exit.ENGINE_FAILED, "", "it broke"),
        "ClientFailed",
        "it broke",
    ),
    "without a message": (
        lambda world: world.crash(world.client(), 1),
        "ClientFailed",
        "the client ended with exit code 1",
    ),
    "with a traceback": (
        lambda world: world.crash(world.client(), 1, message="Traceback: KeyError"),
        "ClientFailed",
        "exit code 1: Error: Traceback: KeyError",
    ),
    "with other JSON": (
        lambda world: world.crash(world.client(), 1, message='{"code": 1}'),
        "ClientFailed",
        "exit code 1",
    ),
    "out of memory": (
        lambda world: world.crash(world.client(), 137, reason="OOMKilled"),
        "ClientFailed",
        "exit code 137: OOMKilled: raise spec.placement.client.resources.limits.memory",
    ),
    "without a pod": (job_fails_without_a_pod, "ClientFailed", "DeadlineExceeded: Job has failed"),
}


@pytest.mark.parametrize("cause", ENDS)
def test_a_client_that_fails_ends_its_group_and_the_other_arm_continues(world: ClusterWorld, cause: str) -> None:
    end, reason, message = ENDS[cause]
    world.serve()
    end(world)
    world.settle()
    assert_first_group_failed(world, reason)
    assert message in world.group(0).message
    assert (world.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "S3Away")) == (cause == "never stored")
    finish_other_arm(world)
    failed_engine = world.status_and_reason(ConditionType.ENGINE_READY) == ("False", reason)
    assert failed_engine == (cause == "refused completion")


def test_a_client_that_lost_its_engine_waits_for_the_engines_own_failure(world: ClusterWorld) -> None:
    world.serve()
    lose_engine(world)
    decision = world.reconcile()
    assert (decision.stop, decision.requeue_after_s) == ((), 10)
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "EngineLost")
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    assert_first_group_failed(world, "OOMKilled")


def test_a_client_that_lost_its_engine_gets_another_if_the_engine_reports_no_failure(world: ClusterWorld) -> None:
    world.serve()
    lose_engine(world)
    world.reconcile()
    world.pass_time(10)
    world.settle()
    assert world.launched == [world.engine(0, 0), world.engine(0, 1)]
    verdict = world.jobs[world.engine(0, 0)].verdict
    assert verdict is not None
    assert (verdict.scope, verdict.reason, verdict.message) == (FailureScope.LAUNCH, "EngineLost", "connection refused")


def test_bad_input_stops_the_whole_run_with_the_clients_message(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput", "prompts.jsonl: row 3: prompt is empty")
    world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "BadInput")
    assert "row 3" in world.condition(ConditionType.STALLED).message
    assert world.status_and_reason(ConditionType.RECONCILING)[0] == "False"
    assert world.launched == [world.engine()]
    assert world.status.completion_time is not None
    assert not [pod for pod in world.pods.values() if pod.alive]


def test_a_storage_failure_is_reported_while_the_client_is_retried(world: ClusterWorld) -> None:
    world.serve()
    end_without_storing(world)
    world.start_pod(world.client())
    world.reconcile()
    assert world.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "S3Away")
    assert world.status_and_reason(ConditionType.STALLED)[0] == "False"
    assert world.group(0).state is GroupState.MEASURING


@pytest.mark.parametrize(
    "fields", [waiting("ImagePullBackOff", "not found"), {"phase": "Pending", "unschedulable": "not found"}]
)
def test_a_client_that_cannot_start_releases_the_gpus_after_the_deadline(
    world: ClusterWorld, fields: dict[str, Any]
) -> None:
    world.start_pod(world.engine(), ready=True)
    world.reconcile()
    world.start_pod(world.client(), **fields)
    assert world.reconcile().requeue_after_s == 300
    world.pass_time(299)
    assert (world.reconcile().stop, world.reconcile().requeue_after_s) == ((), 1)
    world.pass_time(1)
    world.settle()
    assert_first_group_failed(world, "ClientNotStarted")
    assert "no client ran for 300 s: " in world.group(0).message
    assert "not found" in world.group(0).message


UNSCHEDULABLE: dict[str, Any] = {"phase": "Pending", "unschedulable": "0/3 nodes", "scheduled_at": None}


@pytest.mark.parametrize("left", [None, UNSCHEDULABLE], ids=["gone", "unschedulable"])
def test_a_client_evicted_after_an_hour_gets_the_full_start_deadline_again(
    world: ClusterWorld, left: dict[str, Any] | None
) -> None:
    world.serve()
    world.reconcile()
    world.pass_time(3600)
    world.lose_pods(world.client())
    if left:
        world.start_pod(world.client(), **left)
    assert world.reconcile().requeue_after_s == 300
    assert world.group(0).state is GroupState.MEASURING
    world.pass_time(299)
    world.reconcile()
    world.start_pod(world.client())
    world.reconcile()
    assert (world.group(0).state, world.group(0).idle_since) == (GroupState.MEASURING, None)


def test_a_retried_client_that_never_starts_fails_after_the_deadline(world: ClusterWorld) -> None:
    world.serve()
    end_without_storing(world)
    world.reconcile()
    world.pass_time(320)
    assert world.reconcile().requeue_after_s is None, "the back-off of Kubernetes is longer"
    world.start_pod(world.client(), **UNSCHEDULABLE)
    world.reconcile()
    assert world.group(0).message == "0/3 nodes"
    world.pass_time(300)
    world.settle()
    assert_first_group_failed(world, "ClientNotStarted")
    assert "0/3 nodes" in world.group(0).message


def test_a_new_client_waits_until_the_pod_of_a_deleted_one_is_gone(world: ClusterWorld) -> None:
    world.serve()
    world.lose_job(world.client())
    world.reconcile()
    assert world.client() not in world.jobs, "two clients would load one engine"
    world.reap()
    world.reconcile()
    assert world.client() in world.jobs


def test_a_new_client_does_not_wait_for_a_pod_on_a_lost_node(world: ClusterWorld) -> None:
    world.serve()
    world.lose_job(world.client())
    world.pass_time(5 + world.settings.gone_after_s)
    world.reconcile()
    assert world.client() in world.jobs


def test_a_client_on_a_dead_node_ends_its_launch_after_a_while(world: ClusterWorld) -> None:
    """Its Job creates no other pod while this one exists, and the engine would hold its GPUs for hours."""
    world.serve()
    world.change_pod(world.client(), deleted_at=world.now, node="gone")
    decision = world.reconcile()
    assert decision.requeue_after_s == world.settings.gone_after_s
    assert world.launched == [world.engine()]
    world.pass_time(world.settings.gone_after_s)
    world.settle()
    world.reap()
    world.settle()
    assert world.launched == [world.engine(), world.engine(0, 1)]
    assert [event.message for event in world.events if "does not answer" in event.message]
    world.measure(0, 1)
    finish_other_arm(world)
    assert world.status.phase is Phase.SUCCEEDED


def test_a_client_that_is_drained_is_replaced_by_its_job(world: ClusterWorld) -> None:
    world.serve()
    world.change_pod(world.client(), deleted_at=world.now, disrupted="drained")
    world.reconcile()
    world.end_pod(world.client(), Exit.INTERRUPTED)
    world.start_pod(world.client(), ready=True)
    world.pass_time(world.settings.gone_after_s)
    world.reconcile()
    assert world.launched == [world.engine()]


def test_a_completed_client_without_manifests_is_relaunched_up_to_the_limit(world: ClusterWorld) -> None:
    for attempt in range(3):
        world.serve(0, attempt)
        world.finish_client(0, attempt)
        world.measured.clear()
        world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ResultsMissing")
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2), world.engine(1)]
