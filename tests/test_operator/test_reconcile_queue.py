"""Engines with a queue: waiting, preempted and resumed, without holding GPUs or measuring twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from specbench_api.outcome.termination import Exit
from specbench_api.plan.names import ROLE_CLIENT, ROLE_ENGINE
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_operator.reconcile.decide import decide_run
from specbench_operator.state.objects import FailureScope, JobFailure, LaunchVerdict, QueueWait
from specbench_operator.state.run import RunDecision
from specbench_testing.cluster_world import ClusterWorld, finish_the_other_arm
from specbench_testing.operator_builders import operator_run

DAY_S = 86_400.0
FULL = QueueWait("insufficient unused quota for nvidia.com/gpu in flavor h100, 2 more needed")
NO_QUEUE = QueueWait("LocalQueue bench doesn't exist", inadmissible=True)


@pytest.fixture
def world() -> ClusterWorld:
    return queued_world()


def queued_world(**placement: Any) -> ClusterWorld:
    """A run whose first engine waits in its queue."""
    world = ClusterWorld(operator_run({"spec.placement": {"gpus": 2, "queueName": "bench", **placement}}))
    world.settle()
    return world


def serve(world: ClusterWorld, launch: int = 0) -> None:
    """The engine's Job is admitted, gets a pod that is ready, and the client of this launch is at work."""
    world.admit(world.engine())
    world.start_pod(world.engine(), ready=True)
    world.settle()
    world.start_pod(world.client(0, launch), ready=True)
    world.settle()


def preempt(world: ClusterWorld) -> RunDecision:
    """The queue wants its quota back; what was decided when that was seen."""
    world.hold_back(world.engine(), FULL)
    decision = world.look()
    world.settle()
    return decision


def test_an_engine_is_asked_for_and_its_queue_starts_it(world: ClusterWorld) -> None:
    assert world.launched == [world.engine()]
    job = world.jobs[world.engine()]
    assert (job.suspended, job.queue) == (True, "bench")
    assert (world.status.phase, world.group(0).state) == (Phase.QUEUED, GroupState.QUEUED)
    assert world.said(ConditionType.QUEUED) == ("True", "WaitingForQuota")
    assert world.said(ConditionType.RECONCILING) == ("True", "WaitingForQuota")
    assert world.said(ConditionType.READY)[0] == world.said(ConditionType.STALLED)[0] == "False"
    assert world.said(ConditionType.ENGINE_READY) == ("Unknown", "WaitingForQuota")
    assert "EngineQueued" in {event.reason for event in world.events}


def test_the_first_status_says_that_it_is_queued_before_its_job_is_there() -> None:
    world = ClusterWorld(operator_run({"spec.placement": {"gpus": 2, "queueName": "bench"}}))
    world.look()
    assert world.status.phase is Phase.QUEUED
    assert world.said(ConditionType.QUEUED) == ("True", "WaitingForQuota")


def test_waiting_costs_nothing_and_has_no_end(world: ClusterWorld) -> None:
    before = world.run["status"]
    world.pass_time(30 * DAY_S)
    decision = world.settle()
    assert world.run["status"] == before, "time alone changes nothing"
    assert (world.status.gpu_seconds_held, decision.requeue_after_s) == (0, None)


def test_a_queue_is_quoted(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], waits=FULL)
    world.settle()
    for kind in (ConditionType.QUEUED, ConditionType.ENGINE_READY, ConditionType.READY):
        assert FULL.message in world.condition(kind).message


def test_a_queue_that_admits_nobody_is_named_and_no_failure(world: ClusterWorld) -> None:
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], waits=NO_QUEUE)
    world.settle()
    assert world.said(ConditionType.QUEUED) == ("True", "Inadmissible")
    assert world.said(ConditionType.READY) == ("False", "Inadmissible")
    assert world.said(ConditionType.STALLED)[0] == "False", "its queue may be applied a moment later"
    assert [event.type for event in world.events if event.reason == "Inadmissible"] == ["Warning"]
    serve(world)
    assert world.said(ConditionType.QUEUED) == ("False", "Admitted")
    assert world.said(ConditionType.READY) == ("False", "Running")


def test_deadlines_count_from_admission(world: ClusterWorld) -> None:
    world.pass_time(DAY_S)
    resumed = replace(world.jobs[world.engine()], suspended=False)
    world.jobs[world.engine()] = resumed
    assert world.look().requeue_after_s == 1800, "resumed by its queue, and not yet seen by the Job controller"
    world.admit(world.engine())
    world.start_pod(world.engine())
    world.pass_time(1000)
    assert world.look().requeue_after_s == 800
    world.pass_time(800)
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "NeverReady")


def test_an_idle_engine_is_timed_from_when_it_was_ready(world: ClusterWorld) -> None:
    world.pass_time(DAY_S)
    world.admit(world.engine())
    world.start_pod(world.engine(), ready=True)
    world.settle()
    world.pass_time(world.settings.client_start_deadline_s - 1)
    world.settle()
    assert world.group(0).state is GroupState.MEASURING


def test_a_queued_run_is_measured_to_its_end(world: ClusterWorld) -> None:
    serve(world)
    assert world.said(ConditionType.QUEUED) == ("False", "Admitted")
    world.finish_client()
    world.settle()
    assert world.states() == [GroupState.DONE, GroupState.QUEUED]
    world.admit(world.engine(1))
    finish_the_other_arm(world)
    assert world.status.phase is Phase.SUCCEEDED
    assert world.said(ConditionType.QUEUED) == ("False", "NotQueued")


def test_a_run_without_a_queue_says_so() -> None:
    world = ClusterWorld()
    world.settle()
    assert not world.jobs[world.engine()].suspended
    assert world.said(ConditionType.QUEUED) == ("False", "NotQueued")


def test_a_preempted_engine_keeps_its_job_and_is_measured_again_as_another_launch(world: ClusterWorld) -> None:
    serve(world)
    job = world.jobs[world.engine()]
    decision = preempt(world)
    assert {ref.name for ref in decision.delete} == {world.client(), world.engine()}, "the client, and the Service"
    assert not [ref for ref in decision.delete if ref.name == world.engine() and ref.kind == "Job"]
    assert world.jobs[world.engine()].ref == job.ref, "it keeps its place in the queue"
    assert (world.status.phase, world.said(ConditionType.QUEUED)) == (Phase.QUEUED, ("True", "Preempted"))
    told = world.condition(ConditionType.QUEUED).message
    assert "preempted 1 times" in told
    assert FULL.message in told
    row = world.group(0)
    assert (row.state, row.attempt, row.preemptions, row.measured) == (GroupState.QUEUED, 1, 1, 0)
    assert "Preempted" in {event.reason for event in world.events}
    assert [job for job in world.jobs.values() if job.key.role == ROLE_CLIENT] == []

    world.pass_time(DAY_S)
    world.admit(world.engine())
    pod = world.start_pod(world.engine())
    world.settle()
    assert (world.group(0).state, world.group(0).engine_pod) == (GroupState.STARTING, pod)
    assert world.client(0, 1) not in world.jobs, "it is not ready"
    world.change_pod(world.engine(), ready=True)
    world.settle()
    client = world.jobs[world.client(0, 1)]
    assert (client.engine_pod, client.key.attempt) == (pod, 1)
    assert {name for kind, name in world.objects if kind == "Service"} == {world.engine(0, 1)}
    world.start_pod(world.client(0, 1), ready=True)
    world.settle()
    assert "1 times" in world.condition(ConditionType.QUEUED).message
    world.finish_client(0, 1)
    world.settle()
    assert world.states()[0] is GroupState.DONE
    assert world.launched == [world.engine(0), world.engine(1)]


def test_the_service_of_a_launch_that_started_over_finds_the_pods_of_its_job(world: ClusterWorld) -> None:
    serve(world)
    world.hold_back(world.engine())
    world.look()
    world.admit(world.engine())
    world.reap()
    world.start_pod(world.engine(), ready=True)
    made = {row["kind"]: row for row in world.look().apply}
    assert made["Service"]["metadata"]["name"] == world.engine(0, 1)
    assert made["Service"]["spec"]["selector"]["specbench.io/attempt"] == "0"
    assert f"//{world.engine(0, 1)}." in str(made["Job"]["spec"]["template"]["spec"]["containers"][0]["args"])


def pods_linger(world: ClusterWorld) -> None:
    """The Job is suspended, and its controller has not got to its pod yet."""
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], suspended=True, started_at=None)


def pods_are_gone(world: ClusterWorld) -> None:
    world.hold_back(world.engine())
    world.reap()


def client_saw_it_first(world: ClusterWorld) -> None:
    world.fail_client(Exit.ENGINE_FAILED, "EngineLost")
    world.hold_back(world.engine())


def resumed_while_away(world: ClusterWorld) -> None:
    pods_are_gone(world)
    world.pass_time(60)
    world.admit(world.engine())


def replaced_while_away(world: ClusterWorld) -> None:
    resumed_while_away(world)
    world.start_pod(world.engine())


def ready_again_while_away(world: ClusterWorld) -> None:
    resumed_while_away(world)
    world.start_pod(world.engine(), ready=True)


def replaced_under_a_job_that_nobody_suspended(world: ClusterWorld) -> None:
    world.lose_pods(world.engine())
    world.start_pod(world.engine(), ready=True)


WAYS: list[Callable[[ClusterWorld], None]] = [
    pods_linger,
    pods_are_gone,
    client_saw_it_first,
    resumed_while_away,
    replaced_while_away,
    ready_again_while_away,
    replaced_under_a_job_that_nobody_suspended,
]


@pytest.mark.parametrize("befalls", WAYS)
@pytest.mark.parametrize("status", ["kept", "lost"])
def test_however_it_is_found_out_a_preemption_counts_once_and_ends_the_client(
    world: ClusterWorld, befalls: Callable[[ClusterWorld], None], status: str
) -> None:
    serve(world)
    befalls(world)
    if status == "lost":
        world.run.pop("status")
    world.settle()
    world.settle()
    assert (world.group(0).preemptions, world.group(0).attempt) == (1, 1)
    assert world.client() not in world.jobs or world.jobs[world.client()].ended
    assert world.jobs[world.engine()].verdict is None
    if world.jobs[world.engine()].suspended:
        world.hold_back(world.engine())
        world.reap()
        world.admit(world.engine())
    if not [pod for pod in world.pods.values() if pod.key.role == ROLE_ENGINE and pod.deleted_at is None]:
        world.start_pod(world.engine())
    world.change_pod(world.engine(), ready=True)
    world.settle()
    assert world.jobs[world.client(0, 1)].engine_pod == world.group(0).engine_pod
    assert world.launched == [world.engine()]


def test_an_engine_that_is_taken_away_while_it_loads_is_counted_too(world: ClusterWorld) -> None:
    world.admit(world.engine())
    world.start_pod(world.engine())
    world.settle()
    world.hold_back(world.engine())
    world.reap()
    world.settle()
    assert (world.group(0).preemptions, world.said(ConditionType.QUEUED)) == (1, ("True", "Preempted"))


def look_torn(world: ClusterWorld, meanwhile: Callable[[], None]) -> None:
    """Look as the operator does, which lists Jobs first: something happens before it lists pods."""
    jobs = world.observed().jobs
    meanwhile()
    world.follow(decide_run(replace(world.observed(), jobs=jobs), world.settings, world.now))


def test_a_job_that_is_admitted_between_two_lists_is_not_taken_for_a_preempted_one(world: ClusterWorld) -> None:
    def admitted() -> None:
        world.admit(world.engine())
        world.start_pod(world.engine(), ready=True)

    look_torn(world, admitted)
    world.settle()
    assert (world.group(0).preemptions, world.group(0).state) == (0, GroupState.MEASURING)
    assert world.client() in world.jobs


@pytest.mark.parametrize("at_work", [True, False])
def test_a_pod_that_comes_between_two_lists_is_not_taken_for_the_one_that_is_past(
    world: ClusterWorld, at_work: bool
) -> None:
    if at_work:
        serve(world)
    else:
        world.admit(world.engine())
        world.start_pod(world.engine())
        world.settle()
    world.hold_back(world.engine())
    world.reap()

    def admitted() -> None:
        world.admit(world.engine())
        world.start_pod(world.engine(), ready=True)

    look_torn(world, admitted)
    world.settle()
    assert (world.group(0).preemptions, world.group(0).state) == (1, GroupState.MEASURING)
    assert world.jobs[world.client(0, 1)].engine_pod == world.group(0).engine_pod


@pytest.mark.parametrize("at_work", [True, False])
def test_a_pod_that_goes_between_two_lists_is_not_lost_before_its_job_was_looked_at_again(
    world: ClusterWorld, at_work: bool
) -> None:
    if at_work:
        serve(world)
    else:
        world.admit(world.engine())
        world.start_pod(world.engine())
        world.settle()
    look_torn(world, lambda: world.hold_back(world.engine()))
    assert world.said(ConditionType.ENGINE_READY) == ("False", "EngineLost")
    world.settle()
    assert (world.group(0).preemptions, world.group(0).attempt) == (1, 1)
    assert world.jobs[world.engine()].verdict is None


def test_a_pod_that_somebody_deletes_is_lost_all_the_same(world: ClusterWorld) -> None:
    serve(world)
    world.change_pod(world.engine(), deleted_at=world.now + timedelta(seconds=5))
    assert world.look().requeue_after_s == 5
    world.pass_time(5)
    world.settle()
    assert (world.group(0).attempt, world.group(0).preemptions) == (1, 0)
    assert world.launched[-1] == world.engine(0, 1)


def test_a_client_that_had_just_finished_is_not_measured_again(world: ClusterWorld) -> None:
    serve(world)
    world.finish_client()
    world.hold_back(world.engine())
    world.settle()
    assert world.states() == [GroupState.DONE, GroupState.QUEUED]
    assert world.launched == [world.engine(0), world.engine(1)]


def test_preemptions_have_a_budget_of_their_own_and_losses_keep_theirs() -> None:
    world = queued_world(preemptionBudget=4)
    for launch in range(4):
        serve(world, launch)
        preempt(world)
    assert (world.group(0).attempt, world.group(0).preemptions) == (4, 4)
    world.run.pop("status")
    world.settle()
    assert world.group(0).preemptions == 4, "its Job remembers"
    world.admit(world.engine())
    world.start_pod(world.engine(), ready=True)
    world.settle()
    world.lose_job(world.engine())
    world.settle()
    assert (world.group(0).state, world.group(0).attempt) == (GroupState.QUEUED, 5), "the first loss"
    assert world.launched == ["demo-g0-0", "demo-g0-5"]


@pytest.mark.parametrize("budget", [0, 2])
def test_an_exhausted_budget_gives_the_arm_up_and_leaves_nothing_in_the_queue(budget: int) -> None:
    world = queued_world(preemptionBudget=budget)
    for launch in range(budget + 1):
        serve(world, launch)
        preempt(world)
    row = world.group(0)
    assert (row.state, row.reason, row.attempt) == (GroupState.FAILED, "Preempted", budget)
    assert f"preempted {budget + 1} times, more than spec.placement.preemptionBudget ({budget})" in row.message
    assert world.engine(0) not in world.jobs, "a deadline would not end a Job that is suspended"
    assert world.launched == [world.engine(0), world.engine(1)], "the other arm goes on"
    world.admit(world.engine(1))
    finish_the_other_arm(world)
    assert world.said(ConditionType.MEASUREMENT_COMPLETE) == ("False", "Preempted")
    assert world.status.phase is Phase.SUCCEEDED


def test_a_lost_engine_counts_as_lost_also_where_it_is_queued(world: ClusterWorld) -> None:
    for attempt in range(3):
        world.admit(world.engine(0, attempt))
        world.start_pod(world.engine(0, attempt))
        world.settle()
        world.lose_job(world.engine(0, attempt))
        world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "EngineLost")


def preempted_by_the_scheduler(world: ClusterWorld, engine: str) -> None:
    world.crash(engine, 137)
    world.change_pod(engine, disrupted="preempting to accommodate a higher priority pod")


def on_a_tainted_node(world: ClusterWorld, engine: str) -> None:
    world.change_pod(engine, deleted_at=world.now, disrupted="Taint manager: deleting due to NoExecute taint")


def on_a_node_that_shuts_down(world: ClusterWorld, engine: str) -> None:
    world.change_pod(engine, phase="Failed", reason="Terminated", disrupted="in response to imminent node shutdown")


def gone_with_its_node(world: ClusterWorld, engine: str) -> None:
    world.lose_pods(engine)
    world.fail_job(engine, "PodFailurePolicy")


DISRUPTIONS: dict[str, Callable[[ClusterWorld, str], None]] = {
    "the scheduler preempts it": preempted_by_the_scheduler,
    "its node is tainted": on_a_tainted_node,
    "its node shuts down": on_a_node_that_shuts_down,
    "its node is gone, and the pod with it": gone_with_its_node,
}


@pytest.mark.parametrize("how", DISRUPTIONS)
def test_a_disrupted_engine_is_a_preemption_and_launched_again_as_another_job(how: str) -> None:
    world = ClusterWorld()
    world.settle()
    for attempt in range(4):
        world.start_pod(world.engine(0, attempt), ready=True)
        world.settle()
        DISRUPTIONS[how](world, world.engine(0, attempt))
        world.settle()
        assert (world.group(0).attempt, world.group(0).preemptions) == (attempt + 1, attempt + 1)
    assert world.said(ConditionType.QUEUED) == ("False", "NotQueued"), "nothing of it is in a queue"
    verdict = world.jobs[world.engine(0, 0)].verdict
    assert verdict is not None
    assert (verdict.reason, verdict.scope) == ("Preempted", FailureScope.LAUNCH)
    world.run.pop("status")
    world.settle()
    assert world.group(0).preemptions == 4, "the Jobs remember"


@pytest.mark.parametrize("how", DISRUPTIONS)
def test_disruptions_exhaust_the_same_budget_and_are_counted_no_further(how: str) -> None:
    world = ClusterWorld(operator_run({"spec.placement": {"gpus": 2, "preemptionBudget": 0}}))
    world.settle()
    world.start_pod(world.engine(), ready=True)
    world.settle()
    DISRUPTIONS[how](world, world.engine())
    world.settle()
    row = world.group(0)
    assert (row.state, row.reason) == (GroupState.FAILED, "Preempted")
    world.settle()
    assert world.group(0) == row
    assert world.jobs[world.engine()].verdict is not None
    assert world.launched == [world.engine(0), world.engine(1)]


@pytest.mark.parametrize("at_work", [True, False])
def test_a_suspended_run_leaves_its_queue_and_joins_it_again_when_it_is_resumed(
    world: ClusterWorld, at_work: bool
) -> None:
    if at_work:
        serve(world)
        world.hold_back(world.engine())
    world.run["spec"]["suspend"] = True
    world.settle()
    assert world.jobs == {}
    assert (world.status.phase, world.said(ConditionType.QUEUED)) == (Phase.SUSPENDED, ("False", "NotQueued"))
    world.run["spec"]["suspend"] = False
    world.settle()
    row = world.group(0)
    assert (row.state, row.attempt, row.suspensions, row.preemptions) == (GroupState.QUEUED, 1, 1, 0)


def test_a_job_that_was_stopped_and_then_suspended_does_not_stay() -> None:
    """Its deadline does not run, so its queue might start it once more."""
    world = queued_world()
    job = world.jobs[world.engine()]
    verdict = LaunchVerdict(FailureScope.GROUP, "Crashed", "exit code 1", world.now)
    world.jobs[world.engine()] = replace(job, verdict=verdict)
    world.settle()
    assert world.engine() not in world.jobs


def test_a_job_that_failed_while_it_was_suspended_is_over(world: ClusterWorld) -> None:
    world.admit(world.engine())
    world.start_pod(world.engine())
    world.crash(world.engine(), message="no such model")
    world.jobs[world.engine()] = replace(
        world.jobs[world.engine()], suspended=True, failure=JobFailure("BackoffLimitExceeded", "", world.now)
    )
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "Crashed")


def test_a_client_that_a_queue_holds_back_is_named_and_its_engine_gives_its_gpus_back(world: ClusterWorld) -> None:
    world.admit(world.engine())
    world.start_pod(world.engine(), ready=True)
    world.settle()
    world.jobs[world.client()] = replace(world.jobs[world.client()], suspended=True, started_at=None)
    world.settle()
    assert "suspended, and not by specbench" in world.group(0).message
    world.pass_time(world.settings.client_start_deadline_s)
    world.settle()
    assert (world.group(0).state, world.group(0).reason) == (GroupState.FAILED, "ClientNotStarted")
    assert "suspended, and not by specbench" in world.group(0).message
