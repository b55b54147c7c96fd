"""Runs that measure servers which are already running: each launch is a client alone, one after another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specbench_api.fence.model import ForcedValues
from specbench_api.launch.launcher import LAUNCHES_MAX
from specbench_api.outcome.exit_codes import Exit
from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE
from specbench_api.spec.conditions import ConditionType, EngineReason, GroupState, Phase
from specbench_operator.state.objects import ChildKey, FailureScope
from specbench_testing.cluster_world import ClusterWorld
from specbench_testing.operator_builders import OLDER_UID, SETTINGS, fenced, operator_run
from specbench_testing.resources import endpoint_edits

LOAD = {"concurrency": [1], "repeats": 2}


def external_world(**more: Any) -> ClusterWorld:
    """A run of two servers with two repeats: the four groups none, b, b, none."""
    edits = {**endpoint_edits("none", "b"), "spec.load": LOAD, "spec.placement": {}}
    return ClusterWorld(run=operator_run({**edits, **{f"spec.{name}": value for name, value in more.items()}}))


@pytest.fixture
def world() -> ClusterWorld:
    return external_world()


def start_client(world: ClusterWorld, group: int = 0, attempt: int = 0) -> None:
    world.settle()
    world.start_pod(world.client(group, attempt), ready=True)
    world.settle()


@pytest.fixture
def measuring(world: ClusterWorld) -> ClusterWorld:
    start_client(world)
    return world


def measure(world: ClusterWorld, group: int, attempt: int = 0) -> None:
    start_client(world, group, attempt)
    world.finish_client(group, attempt)
    world.settle()


def test_a_new_run_gets_its_plan_and_one_client_and_no_engine(world: ClusterWorld) -> None:
    decision = world.reconcile()
    assert [(item["kind"], item["metadata"]["name"]) for item in decision.apply] == [
        ("ConfigMap", "demo-plan"),
        ("Job", world.client()),
    ]
    container = decision.apply[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][container["args"].index("--endpoint") + 1] == "http://engine-none:8001"
    assert (decision.status.phase, decision.status.start_time) == (Phase.STARTING, "2026-01-02T12:00:00Z")
    assert world.status_and_reason(ConditionType.QUEUED) == ("False", "NotQueued")
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("Unknown", "Starting")


def test_a_run_measures_its_servers_in_turns_and_succeeds(world: ClusterWorld) -> None:
    endpoints = []
    for group, row in enumerate(world.plan.groups):
        start_client(world, group)
        assert [name for name, job in world.jobs.items() if not job.ended] == [world.client(group)]
        assert world.status.phase is Phase.RUNNING
        world.answering = (group, 0)
        world.reconcile()
        assert world.status_and_reason(ConditionType.ENGINE_READY) == ("True", "Serving")
        endpoints.append(row.arm)
        world.finish_client(group)
        world.settle()
    assert endpoints == ["none", "b", "b", "none"]
    assert world.status.phase == "Analyzing"
    world.finish_report()
    assert world.status.phase == "Succeeded"
    assert world.status.gpu_seconds_held == 0
    assert {job.key.role for job in world.jobs.values()} & {ROLE_ENGINE} == set()


def test_the_next_client_waits_until_the_pod_of_the_last_one_has_ended(measuring: ClusterWorld) -> None:
    measuring.measured |= {point.hash for point in measuring.plan.groups[0].points}
    measuring.jobs[measuring.client()] = replace(measuring.jobs[measuring.client()], complete=True)
    assert measuring.reconcile().apply == ()
    message = measuring.condition(ConditionType.RECONCILING).message
    assert message == "the next client starts when the last one has ended"
    measuring.end_pod(measuring.client(), 0)
    assert [item["metadata"]["name"] for item in measuring.reconcile().apply] == [measuring.client(1)]


def test_a_client_that_has_measured_everything_is_not_deleted_before_it_ends(measuring: ClusterWorld) -> None:
    measuring.measured |= {point.hash for point in measuring.plan.groups[0].points}
    decision = measuring.reconcile()
    assert (decision.delete, decision.stop, decision.apply) == ((), (), ())
    measuring.change_pod(measuring.client(), deleted_at=measuring.now)
    decision = measuring.reconcile()
    assert [ref.name for ref in decision.delete] == [measuring.client()], "its node may be lost, and it would never end"


def test_an_unreachable_server_is_tried_again_and_then_fails_its_group_alone(world: ClusterWorld) -> None:
    for attempt in range(LAUNCHES_MAX):
        start_client(world, 0, attempt)
        world.fail_client(Exit.ENGINE_FAILED, EngineReason.LOST, "connection refused", attempt=attempt)
        world.settle(after_s=SETTINGS.engine_lost_settle_s + 1)
        verdict = world.jobs[world.client(0, attempt)].verdict
        assert verdict is not None
        assert (verdict.scope, verdict.reason) == (FailureScope.LAUNCH, EngineReason.LOST)
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, EngineReason.LOST)
    assert world.client(1) in world.jobs


def test_a_server_that_fails_the_first_completion_is_not_measured_again(measuring: ClusterWorld) -> None:
    measuring.fail_client(Exit.ENGINE_FAILED, EngineReason.FIRST_REQUEST_FAILED, "HTTP 401")
    measuring.settle()
    assert measuring.group(0).reason == EngineReason.FIRST_REQUEST_FAILED
    measure(measuring, 1)
    measure(measuring, 2)
    assert measuring.group(3).state is GroupState.FAILED
    assert measuring.group(3).message.startswith("not launched, because group 1 of this arm failed")


def test_a_suspended_run_stops_its_client_and_continues_with_a_new_launch(measuring: ClusterWorld) -> None:
    measuring.suspend()
    assert measuring.status.phase is Phase.SUSPENDED
    assert measuring.jobs == {}
    measuring.run["spec"]["suspend"] = False
    start_client(measuring, 0, 1)
    assert (measuring.group(0).attempt, measuring.group(0).suspensions) == (1, 1)


def test_a_client_that_exceeds_its_deadline_ends_its_group(measuring: ClusterWorld) -> None:
    measuring.crash(measuring.client(), 130)
    measuring.fail_job(measuring.client(), "DeadlineExceeded")
    measuring.settle()
    assert measuring.group(0).reason == EngineReason.DEADLINE_EXCEEDED
    assert "spec.activeDeadlineSeconds (14400 s)" in measuring.group(0).message


def test_nothing_starts_while_a_client_of_an_earlier_run_of_the_name_may_send_load(world: ClusterWorld) -> None:
    key = ChildKey(ROLE_CLIENT, 0, 0)
    world.older_run_left(world.client(), key)
    pod = world.start_pod(world.client())
    world.pods[pod] = replace(world.pods[pod], run_uid=OLDER_UID)
    del world.jobs[world.client()]
    assert world.reconcile().apply == ()
    assert world.status_and_reason(ConditionType.RECONCILING) == ("True", "WaitingForRemoval")
    del world.pods[pod]
    assert world.client() in [item["metadata"]["name"] for item in world.reconcile().apply]


def test_a_queue_that_the_fence_forces_on_engines_does_not_apply(world: ClusterWorld) -> None:
    world.settings = fenced(secrets_opt_in=False, force=ForcedValues(queue_name="shared"))
    world.settle()
    assert world.group(0).state is not GroupState.QUEUED
    assert not world.jobs[world.client()].suspended


def test_a_url_that_is_no_longer_allowed_stops_the_client(measuring: ClusterWorld) -> None:
    measuring.settings = fenced(secrets_opt_in=False, endpoints=("http://other:8000",))
    measuring.settle()
    assert measuring.jobs == {}
    assert measuring.status.phase is Phase.INVALID
    message = measuring.condition(ConditionType.VALIDATED).message
    assert message.startswith("spec.engine.endpoints[0]: http://engine-none:8001 is not allowed on this cluster")
