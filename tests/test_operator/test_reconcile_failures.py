"""All ways in which an engine or a client can end, and what ends with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.outcome.exit_codes import Exit
from specbench_api.outcome.termination_message import Termination
from specbench_api.plan.names import ROLE_CLIENT
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.status import GroupStatus
from specbench_operator.run.launches.children import Children
from specbench_operator.run.launches.client import start_delay, termination_of
from specbench_operator.run.launches.engine import preempted_by_queue
from specbench_operator.run.launches.group import judge_launch
from specbench_operator.run.launches.launch_state import LaunchContext
from specbench_operator.state.objects import (
    ChildKey,
    ContainerTerminated,
    FailureScope,
    Job,
    JobFailure,
    LaunchVerdict,
    ObjectRef,
    Pod,
)
from specbench_operator.state.timestamps import parse_timestamp
from specbench_testing.cluster_world import ClusterWorld, finish_other_arm, launched
from specbench_testing.operator_builders import NOON, OLDER_UID, SETTINGS, UID, operator_run, waiting


def assert_first_group_failed(world: ClusterWorld, reason: str) -> None:
    """Check that group 0 failed for this reason, its Job records it, its pods ended, and group 1 continues."""
    engine = world.jobs[world.engine()]
    assert engine.verdict is not None
    assert (engine.verdict.reason, engine.verdict.scope) == (reason, FailureScope.GROUP)
    assert engine.ended
    assert not [pod for pod in world.pods.values() if pod.alive and pod.job == world.engine()]
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, reason)
    assert world.launched == [world.engine(0), world.engine(1)]
    assert world.status_and_reason(ConditionType.STALLED)[0] == "False"


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
CLIENT_ENDS: dict[str, tuple[Cause, str, str]] = {
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


@pytest.mark.parametrize("cause", CLIENT_ENDS)
def test_a_client_that_fails_ends_its_group_and_the_other_arm_continues(world: ClusterWorld, cause: str) -> None:
    end, reason, message = CLIENT_ENDS[cause]
    world.serve()
    end(world)
    world.settle()
    assert_first_group_failed(world, reason)
    assert message in world.group(0).message
    assert (world.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "S3Away")) == (cause == "never stored")
    finish_other_arm(world)
    failed_engine = world.status_and_reason(ConditionType.ENGINE_READY) == ("False", reason)
    assert failed_engine == (cause == "refused completion")


def test_a_client_that_lost_its_engine_waits_for_the_engines_own_failure(serving: ClusterWorld) -> None:
    lose_engine(serving)
    decision = serving.reconcile()
    assert (decision.stop, decision.requeue_after_s) == ((), 10)
    assert serving.status_and_reason(ConditionType.ENGINE_READY) == ("False", "EngineLost")
    serving.crash(serving.engine(), 137, reason="OOMKilled")
    serving.settle()
    assert_first_group_failed(serving, "OOMKilled")


def test_a_client_that_lost_its_engine_gets_another_if_the_engine_reports_no_failure(serving: ClusterWorld) -> None:
    lose_engine(serving)
    serving.reconcile()
    assert serving.reconcile(after_s=9).stop == ()
    serving.settle(after_s=1)
    assert serving.launched == [serving.engine(0, 0), serving.engine(0, 1)]
    verdict = serving.jobs[serving.engine(0, 0)].verdict
    assert verdict is not None
    assert (verdict.scope, verdict.reason, verdict.message) == (FailureScope.LAUNCH, "EngineLost", "connection refused")


def test_a_group_whose_requests_failed_ends_without_another_launch_after_the_engines_own_report(
    serving: ClusterWorld,
) -> None:
    serving.fail_client(Exit.ENGINE_FAILED, EngineReason.REQUESTS_FAILED, "8 of 8 requests failed")
    assert serving.reconcile(after_s=9).stop == ()
    serving.settle(after_s=1)
    assert_first_group_failed(serving, "RequestsFailed")
    finish_other_arm(serving)
    assert serving.engine(0, 1) not in serving.launched


def test_a_storage_failure_is_reported_while_the_client_is_retried(serving: ClusterWorld) -> None:
    end_without_storing(serving)
    serving.start_pod(serving.client())
    serving.reconcile()
    assert serving.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "S3Away")
    assert serving.status_and_reason(ConditionType.STALLED)[0] == "False"
    assert serving.group(0).state is GroupState.MEASURING


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
    assert (world.reconcile(after_s=299).stop, world.reconcile().requeue_after_s) == ((), 1)
    world.settle(after_s=1)
    assert_first_group_failed(world, "ClientNotStarted")
    assert "no client ran for 300 s: " in world.group(0).message
    assert "not found" in world.group(0).message


UNSCHEDULABLE: dict[str, Any] = {"phase": "Pending", "unschedulable": "0/3 nodes", "scheduled_at": None}


@pytest.mark.parametrize("left", [None, UNSCHEDULABLE], ids=["gone", "unschedulable"])
def test_a_client_evicted_after_an_hour_gets_the_full_start_deadline_again(
    serving: ClusterWorld, left: dict[str, Any] | None
) -> None:
    serving.reconcile()
    serving.pass_time(3600)
    serving.lose_pods(serving.client())
    if left:
        serving.start_pod(serving.client(), **left)
    assert serving.reconcile().requeue_after_s == 300
    assert serving.group(0).state is GroupState.MEASURING
    serving.reconcile(after_s=299)
    serving.start_pod(serving.client())
    serving.reconcile()
    assert (serving.group(0).state, serving.group(0).idle_since) == (GroupState.MEASURING, None)


def test_a_retried_client_that_never_starts_fails_after_the_deadline(serving: ClusterWorld) -> None:
    end_without_storing(serving)
    serving.reconcile()
    assert serving.reconcile(after_s=320).requeue_after_s is None, "the back-off of Kubernetes is longer"
    serving.start_pod(serving.client(), **UNSCHEDULABLE)
    serving.reconcile()
    assert serving.group(0).message == "0/3 nodes"
    serving.settle(after_s=300)
    assert_first_group_failed(serving, "ClientNotStarted")
    assert "0/3 nodes" in serving.group(0).message


def test_a_new_client_waits_until_the_pod_of_a_deleted_one_is_gone(serving: ClusterWorld) -> None:
    serving.lose_job(serving.client())
    serving.reconcile()
    assert serving.client() not in serving.jobs, "two clients would load one engine"
    serving.reap()
    serving.reconcile()
    assert serving.client() in serving.jobs


def test_a_new_client_does_not_wait_for_a_pod_on_a_lost_node(serving: ClusterWorld) -> None:
    serving.lose_job(serving.client())
    serving.reconcile(after_s=5 + serving.settings.gone_after_s)
    assert serving.client() in serving.jobs


def test_a_client_on_a_dead_node_ends_its_launch_after_a_while(serving: ClusterWorld) -> None:
    """Its Job creates no other pod while this one exists, and the engine would hold its GPUs for hours."""
    serving.change_pod(serving.client(), deleted_at=serving.now, node="gone")
    decision = serving.reconcile()
    assert decision.requeue_after_s == serving.settings.gone_after_s
    assert serving.launched == [serving.engine()]
    serving.settle(after_s=serving.settings.gone_after_s)
    serving.reap()
    serving.settle()
    assert serving.launched == [serving.engine(), serving.engine(0, 1)]
    assert [event.message for event in serving.events if "does not answer" in event.message]
    serving.measure(0, 1)
    finish_other_arm(serving)
    assert serving.status.phase is Phase.SUCCEEDED


def test_a_client_that_is_drained_is_replaced_by_its_job(serving: ClusterWorld) -> None:
    serving.change_pod(serving.client(), deleted_at=serving.now, disrupted="drained")
    serving.reconcile()
    serving.end_pod(serving.client(), Exit.INTERRUPTED)
    serving.start_pod(serving.client(), ready=True)
    serving.reconcile(after_s=serving.settings.gone_after_s)
    assert serving.launched == [serving.engine()]


def test_a_completed_client_without_manifests_is_relaunched_up_to_the_limit(world: ClusterWorld) -> None:
    for attempt in range(3):
        world.serve(0, attempt)
        world.finish_client(0, attempt)
        world.measured.clear()
        world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ResultsMissing")
    assert world.launched == [world.engine(0, 0), world.engine(0, 1), world.engine(0, 2), world.engine(1)]


# Which pod of a client counts.


KEY = ChildKey(ROLE_CLIENT, 0, 0)
JOB = Job(ObjectRef("Job", "run-g0-0-client", "job-uid"), "run-uid", KEY, NOON)


def pod(age_s: float = 0, phase: str = "Running", **fields: Any) -> Pod:
    name = f"run-g0-0-client-{age_s:g}"
    ref, created = ObjectRef("Pod", name, f"uid-{name}"), NOON - timedelta(seconds=age_s)
    return Pod(ref, "run-uid", KEY, JOB.ref.name, JOB.ref.uid, phase, created, **fields)


def ended(code: int, reason: str, age_s: float = 0, **fields: Any) -> Pod:
    message = Termination(code=code, reason=reason, message="why").to_message().replace("}", ', "later": 8}')
    return pod(age_s, "Failed", terminated=ContainerTerminated(code, "Error", message), **fields)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((ended(Exit.BAD_INPUT, "BadInput"), ended(Exit.RESULTS_NOT_STORED, "Away", 60)), "BadInput"),
        ((pod(terminated=ContainerTerminated(137, "OOMKilled")),), "ClientFailed"),
        ((ended(Exit.BAD_INPUT, "BadInput", disrupted="evicted"), ended(Exit.RESULTS_NOT_STORED, "Away", 60)), "Away"),
        ((pod(), pod(60)), None),
    ],
    ids=["an-earlier-try", "killed", "disrupted", "running"],
)
def test_job_fails_with_the_reason_of_its_newest_pod(pods: tuple[Pod, ...], expected: str | None) -> None:
    for given in (pods, pods[::-1]):
        found = termination_of(given, SETTINGS)
        assert (found.reason if found else None) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((pod(),), None),
        ((pod(phase="Pending", unschedulable="0/3 nodes"),), "0/3 nodes"),
        ((pod(60, "Failed"), pod(phase="Pending")), "its pod is starting"),
        ((pod(60, "Pending"), pod()), None),
        ((), "its pod is not created yet"),
    ],
)
def test_load_waits_for_the_newest_pod(pods: tuple[Pod, ...], expected: str | None) -> None:
    assert start_delay(JOB, pods) == expected


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


ENGINE_ENDS: dict[str, tuple[Cause, str, str]] = {
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


@pytest.mark.parametrize("cause", ENGINE_ENDS)
def test_an_engine_that_ends_fails_its_group_and_the_other_arm_continues(world: ClusterWorld, cause: str) -> None:
    end, reason, message = ENGINE_ENDS[cause]
    world.start_pod(world.engine())
    end(world)
    world.settle()
    assert_first_group_failed(world, reason)
    assert message in world.group(0).message
    assert reason in {event.reason for event in world.events}


def test_an_engine_that_ends_while_it_serves_takes_its_client_and_service_along(serving: ClusterWorld) -> None:
    serving.crash(serving.engine(), 137, ran_s=1860)
    serving.settle()
    assert_first_group_failed(serving, "Crashed")
    assert serving.client() not in serving.jobs
    assert ("Service", serving.engine()) not in serving.objects


UNSCHEDULED = {"phase": "Pending", "scheduled_at": None}
NO_GPU = "0/3 nodes: insufficient gpu"
NOT_SCHEDULED = "was not scheduled within spec.startupDeadlineSeconds (1800 s)"
NOT_READY = "was not ready within spec.startupDeadlineSeconds (1800 s)"
NO_SECRET = 'secret "x" not found'
TRIED = "i/o timeout; it is tried for spec.startupDeadlineSeconds (1800 s)"
WAITS: dict[str, tuple[dict[str, Any], float, str, str, str]] = {
    "image not found": (waiting("ErrImagePull", "not found"), 60, "False", "ImagePullFailed", "not found"),
    "image pull backs off": (waiting("ImagePullBackOff", "not found"), 60, "False", "ImagePullFailed", "not found"),
    "registry does not answer": (waiting("ErrImagePull", "i/o timeout"), 1800, "False", "ImagePullFailed", TRIED),
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


@pytest.mark.parametrize(
    ("message", "bound_s"),
    [
        ("rpc error: code = NotFound desc = r.example/x:1: not found", 60),
        ("failed to authorize: unexpected status from GET request to https://r.example/token: 401 Unauthorized", 60),
        ("dial tcp: lookup r.example on 10.96.0.10:53: no such host", 60),
        ("unexpected status from HEAD request to https://r.example/v2/x/manifests/1: 503 Service Unavailable", 1800),
        ("toomanyrequests: You have reached your unauthenticated pull rate limit", 1800),
        ("dial tcp 192.0.2.1:443: connect: connection refused", 1800),
        ("", 1800),
    ],
)
def test_an_image_pull_that_succeeds_in_time_is_no_failure(world: ClusterWorld, message: str, bound_s: float) -> None:
    world.start_pod(world.engine(), **waiting("ErrImagePull", message))
    assert world.reconcile().requeue_after_s == bound_s
    world.pass_time(bound_s - 1)
    world.change_pod(world.engine(), waiting=None, phase="Running", ready=True)
    world.settle()
    assert world.group(0).state is GroupState.MEASURING


def test_the_image_pull_grace_starts_when_the_pod_is_scheduled(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), **UNSCHEDULED, unschedulable=NO_GPU)
    world.reconcile()
    world.pass_time(300)
    world.change_pod(world.engine(), **waiting("ErrImagePull", "denied"), unschedulable=None, scheduled_at=world.now)
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
    assert_first_group_failed(world, "Unschedulable")
    assert (warning or NOT_SCHEDULED) in world.group(0).message


def test_a_failure_is_still_recorded_after_pods_and_status_are_gone(world: ClusterWorld) -> None:
    world.fail_engine(1, message="no CUDA device")
    world.pods.clear()
    del world.run["status"]
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_an_arm_that_failed_by_itself_is_not_launched_in_later_repeats() -> None:
    world = launched(operator_run({"spec.load": {"concurrency": [1], "repeats": 3, "order": "Interleaved"}}))
    assert [group.arm for group in world.plan.groups] == ["none", "ngram", "ngram", "none", "none", "ngram"]
    world.fail_engine(137, reason="OOMKilled", message="loading weights")
    for group in (1, 2, 5):
        world.measure(group)
        world.settle()
    failed, done = GroupState.FAILED, GroupState.DONE
    assert world.states() == [failed, done, done, failed, failed, done]
    assert world.group(3).reason == "OOMKilled"
    assert world.group(3).message.startswith("not launched, because group 1 of this arm failed")
    assert len(world.launched) == 4


def test_an_arm_whose_client_failed_is_launched_in_later_repeats() -> None:
    world = launched(operator_run({"spec.load": {"concurrency": [1], "repeats": 3, "order": "Interleaved"}}))
    world.serve()
    world.crash(world.client(), 1)
    world.settle()
    world.measure(1)
    assert world.launched[-1] == world.engine(2)


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
def test_a_lost_engine_is_launched_again(serving: ClusterWorld, loss: str) -> None:
    serving.reconcile()
    LOSSES[loss](serving)
    serving.settle()
    assert serving.launched == [serving.engine(0, 0), serving.engine(0, 1)]
    assert serving.client(0, 0) not in serving.jobs
    assert (serving.group(0).state, serving.group(0).attempt) == (GroupState.STARTING, 1)
    assert "EngineLost" in {event.reason for event in serving.events}
    serving.measure(0, 1)
    assert serving.states() == [GroupState.DONE, GroupState.STARTING]


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
    serving: ClusterWorld,
) -> None:
    serving.reconcile()
    serving.lose_pods(serving.engine())
    serving.settle()
    serving.lose_job(serving.engine(0, 1))
    serving.settle()
    assert serving.engine(0, 0) in serving.jobs
    assert serving.launched == [serving.engine(0, 0), serving.engine(0, 1), serving.engine(0, 2)]


@pytest.mark.parametrize("disrupted", ["node lost", None])
def test_a_pod_on_a_dead_node_is_waited_for_up_to_a_limit(serving: ClusterWorld, disrupted: str | None) -> None:
    serving.change_pod(serving.engine(), node="gpu-7", deleted_at=serving.now + MINUTE, disrupted=disrupted)
    serving.fail_job(serving.engine())
    serving.reconcile()
    assert "node gpu-7" in serving.condition(ConditionType.ENGINE_READY).message
    assert [event.reason for event in serving.events if "node gpu-7" in event.message]
    serving.lose_pods(serving.client())
    reason = "WaitingForRelease"
    for after_s, node in ((59, ""), (1, "node gpu-7"), (serving.settings.gone_after_s - 1, "node gpu-7")):
        assert serving.reconcile(after_s=after_s).apply == ()
        waits = serving.condition(ConditionType.RECONCILING)
        assert (waits.reason, node in waits.message, "out-of-service" in waits.message) == (reason, True, bool(node))
    serving.reconcile(after_s=1)
    assert serving.launched[-1] == serving.engine(0, 1)
    serving.reconcile()
    assert "gpu-7" not in serving.condition(ConditionType.RECONCILING).message


def test_no_engine_is_launched_beside_a_pod_on_a_dead_node_if_the_administrator_says_so(serving: ClusterWorld) -> None:
    serving.settings = replace(serving.settings, gone_after_s=math.inf)
    for job in (serving.engine(), serving.client()):
        serving.change_pod(job, node="gpu-7", deleted_at=serving.now, disrupted="node lost")
    for _ in range(3):
        serving.reconcile(after_s=1e6)
    assert (serving.launched, serving.settings.gone_after_s) == ([serving.engine()], math.inf)
    serving.reap()  # the node is deleted, and Kubernetes removes its pods
    serving.settle()
    assert serving.launched[-1] == serving.engine(0, 1)


def test_a_run_that_waits_for_an_earlier_run_on_a_dead_node_names_the_node(serving: ClusterWorld) -> None:
    serving.change_pod(serving.engine(), run_uid=OLDER_UID, node="gpu-7", deleted_at=serving.now)
    waiting_run = ClusterWorld(now=serving.now, pods=serving.pods)
    assert waiting_run.reconcile(after_s=1).apply == ()
    waits = waiting_run.condition(ConditionType.RECONCILING)
    assert (waits.reason, "node gpu-7" in waits.message) == ("WaitingForRemoval", True)
    waiting_run.reconcile(after_s=serving.settings.gone_after_s)
    assert waiting_run.launched == [waiting_run.engine()]


def test_a_report_on_a_dead_node_is_made_again_elsewhere(world: ClusterWorld) -> None:
    world.measure_all()
    world.start_pod(world.report, node="gone", deleted_at=world.now)
    first = world.jobs[world.report]
    world.reconcile(after_s=world.settings.gone_after_s - 1)
    assert world.jobs[world.report] == first
    for _ in range(2):
        world.reconcile(after_s=1)
    assert world.jobs[world.report].ref.uid != first.ref.uid
    world.finish_report()
    assert world.status.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("disrupted", ["drained", None])
def test_an_engine_that_its_node_ended_names_the_node(serving: ClusterWorld, disrupted: str | None) -> None:
    serving.change_pod(serving.engine(), node="gpu-7", phase="Failed", reason="Terminated", disrupted=disrupted)
    serving.reconcile()
    assert "node gpu-7" in serving.condition(ConditionType.ENGINE_READY).message


@pytest.mark.parametrize("ready", [False, True])
def test_an_engine_whose_pod_lost_its_labels_is_lost_and_the_next_one_waits_for_it(
    world: ClusterWorld, *, ready: bool
) -> None:
    world.start_pod(world.engine(), ready=ready)
    world.reconcile()
    world.lose_pods(world.engine())  # no list of the operator has it
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], unlisted_pods=1)
    world.settle(after_s=1)
    assert (world.group(0).reason, "labels" in (world.group(0).message or "")) == ("EngineLost", True)
    assert (world.launched, world.jobs[world.engine()].ended) == ([world.engine()], True)
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], unlisted_pods=0)
    world.settle()
    assert world.launched == [world.engine(), world.engine(0, 1)]


def test_an_engine_job_being_deleted_is_waited_for_and_launched_again(serving: ClusterWorld) -> None:
    serving.jobs[serving.engine()] = replace(serving.jobs[serving.engine()], deleting=True)
    decision = serving.reconcile()
    assert ("Job", serving.engine()) not in {(ref.kind, ref.name) for ref in decision.delete}, (
        "the Job is already being deleted"
    )
    assert serving.launched == [serving.engine()]
    serving.lose_job(serving.engine())
    serving.settle()
    assert serving.launched == [serving.engine(), serving.engine(0, 1)]


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-01-02T12:00:00"])
def test_an_unreadable_timestamp_in_status_is_none(text: str | None) -> None:
    read = parse_timestamp(text)
    assert read == (NOON if text and text[0] == "2" else None)


# How one launch is judged by its Jobs and pods: tables of single judgements.

MINUTE = timedelta(minutes=1)
ENGINE = Job(ObjectRef("Job", "engine", "job"), UID, ChildKey("engine", 0, 0), NOON, started_at=NOON)
CLIENT = Job(ObjectRef("Job", "client", "c"), UID, ChildKey("client", 0, 0), NOON + MINUTE, engine_pod="p1")
P1 = Pod(ObjectRef("Pod", "pod-1", "p1"), UID, ENGINE.key, "engine", "job", "Running", NOON, ready=True)
P2 = replace(P1, ref=ObjectRef("Pod", "pod-2", "p2"))
FAILED = JobFailure("BackoffLimitExceeded", "", NOON)
SUSPENDED = replace(ENGINE, suspended=True)
RESUMED = replace(ENGINE, started_at=CLIENT.created_at + MINUTE)
UNMARKED = replace(CLIENT, engine_pod="")
LOST_NODE = {"worker": 1, "disrupted": "preempted by a release", "phase": "Failed"}
VERDICT = LaunchVerdict(FailureScope.GROUP, "NeverReady", "too late", NOON)


@pytest.mark.parametrize(
    ("engine", "client", "known_pod", "pods", "previous_pod"),
    [
        (replace(SUSPENDED, failure=FAILED), CLIENT, "pod-1", (), None),
        (replace(RESUMED, complete=True), CLIENT, "", (), None),
        (SUSPENDED, CLIENT, "", (P2,), "p1"),
        (SUSPENDED, UNMARKED, "pod-1", (P2, P1), "p1"),
        (SUSPENDED, None, "pod-1", (P2, P1), "p1"),
        (SUSPENDED, None, "pod-1", (P2,), ""),
        (SUSPENDED, UNMARKED, "", (P1,), ""),
        (SUSPENDED, None, "", (P1,), None),
        (RESUMED, None, "pod-1", (P2,), None),
        (RESUMED, UNMARKED, "pod-1", (P2,), None),
        (ENGINE, CLIENT, "", (P1,), None),
        (ENGINE, CLIENT, "", (P2,), "p1"),
        (ENGINE, CLIENT, "", (P1, P2), None),
        (ENGINE, CLIENT, "", (replace(P1, deleted_at=NOON), P2), "p1"),
        (ENGINE, CLIENT, "", (replace(P1, phase="Failed"), P2), "p1"),
        (ENGINE, CLIENT, "", (replace(P2, deleted_at=NOON),), None),
        (ENGINE, CLIENT, "", (), None),
        (RESUMED, CLIENT, "", (), "p1"),
        (RESUMED, CLIENT, "", (P1,), None),
        (replace(ENGINE, started_at=CLIENT.created_at), CLIENT, "", (), None),
        (replace(ENGINE, started_at=None), CLIENT, "", (), None),
    ],
)
def test_a_queue_has_preempted_a_launch_if_its_job_has_lost_the_launchs_own_pod(
    engine: Job, client: Job | None, known_pod: str, pods: tuple[Pod, ...], previous_pod: str | None
) -> None:
    found = preempted_by_queue(engine, pods, client, known_pod=known_pod)
    assert (found.reason, found.previous_pod) == ("Preempted", previous_pod) if found else previous_pod is None


@pytest.mark.parametrize(
    ("engine", "pod", "reason", "scope"),
    [
        ({}, LOST_NODE, "Preempted", FailureScope.LAUNCH),
        ({"verdict": VERDICT}, LOST_NODE, "NeverReady", FailureScope.GROUP),
        ({"deleting": True}, LOST_NODE, "EngineLost", FailureScope.LAUNCH),
        ({"failure": JobFailure("DeadlineExceeded", "", NOON)}, LOST_NODE, "DeadlineExceeded", FailureScope.GROUP),
        ({}, {**LOST_NODE, "reason": "Evicted"}, "EngineLost", FailureScope.LAUNCH),
        ({}, {**LOST_NODE, "phase": "Running"}, "Serving", None),
        ({}, {**LOST_NODE, "phase": "Running", "deleted_at": NOON}, "Preempted", FailureScope.LAUNCH),
        ({}, {**LOST_NODE, "phase": "Running", "terminated": ContainerTerminated(1)}, "Preempted", FailureScope.LAUNCH),
        ({}, {"worker": 1, "phase": "Failed"}, "EngineLost", FailureScope.LAUNCH),
        ({}, {"worker": 1, "deleted_at": NOON}, "EngineLost", FailureScope.LAUNCH),
    ],
)
def test_the_loss_of_a_node_is_a_preemption_unless_the_job_has_ended_otherwise(
    engine: dict[str, Any], pod: dict[str, Any], reason: str, scope: FailureScope | None
) -> None:
    run = parse_run(operator_run({"spec.placement": {"gpus": 1, "nodes": 2}}))
    pods = (replace(P1, worker=0), replace(P2, **pod))
    children = Children((replace(ENGINE, **engine), CLIENT), pods, (), ())
    found = judge_launch(children, 0, 0, LaunchContext(run.spec, SETTINGS, NOON + MINUTE))
    assert (found.reason, found.scope) == (reason, scope)


@pytest.mark.parametrize(("known", "launch"), [(True, "Preempted"), (False, "Queued")])
def test_the_pod_in_status_shows_that_a_suspended_job_had_started(known: bool, launch: str) -> None:
    row = GroupStatus(index=0, arm="none", state="Starting", engine_pod="pod-1") if known else None
    run = parse_run(operator_run())
    found = judge_launch(Children((SUSPENDED,), (), (), ()), 0, 0, LaunchContext(run.spec, SETTINGS, NOON, known=row))
    assert (found.stage if launch == "Queued" else found.reason) == launch
