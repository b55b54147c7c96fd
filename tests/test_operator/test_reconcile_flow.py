"""A run from its creation to its results, what a user may change on the way, and its GPU-seconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from specbench_api.outcome.layout import PLAN
from specbench_api.plan.names import plan_name
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_api.spec.status import RunStatus
from specbench_client.documents.finding import Finding, Severity
from specbench_client.documents.recommendation import Objective, Recommendation
from specbench_operator.run.gpu_seconds import GPU_SECONDS_PERIOD_S
from specbench_operator.state.conditions import suspension_event
from specbench_operator.state.objects import ChildKey, ContainerTerminated
from specbench_operator.state.run import WARNING
from specbench_testing.cluster_world import AWAY, ClusterWorld, finished, launched
from specbench_testing.operator_builders import NOON, figure, operator_run, summary_of


@pytest.fixture
def new_world() -> ClusterWorld:
    return ClusterWorld()


def test_a_new_run_gets_its_plan_one_engine_and_one_service(new_world: ClusterWorld) -> None:
    decision = new_world.reconcile()
    assert [(item["kind"], item["metadata"]["name"]) for item in decision.apply] == [
        ("ConfigMap", plan_name("demo")),
        ("Service", "demo-g0-0"),
        ("Job", "demo-g0-0"),
    ]
    assert decision.status.start_time == "2026-01-02T12:00:00Z"
    assert new_world.states() == [GroupState.STARTING, GroupState.WAITING]
    assert new_world.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    assert new_world.status_and_reason(ConditionType.ENGINE_READY) == ("Unknown", "Starting")


def test_the_client_starts_only_when_the_engine_is_ready(new_world: ClusterWorld) -> None:
    new_world.reconcile()
    new_world.start_pod(new_world.engine())
    assert new_world.reconcile().apply == ()
    new_world.change_pod(new_world.engine(), ready=True)
    assert [item["metadata"]["name"] for item in new_world.reconcile().apply] == [new_world.client()]
    assert new_world.status.phase is Phase.RUNNING


SOAK = {"concurrency": [1], "order": "Soak", "durationSeconds": 60, "repeats": 20, "stop": "WhenDecayed"}


@pytest.mark.parametrize(
    ("stop", "ended", "state"),
    [
        ("WhenDecayed", {0: 12}, GroupState.DONE),
        ("WhenDecayed", {0: 13}, GroupState.WAITING),
        ("WhenDecayed", {1: 12}, GroupState.WAITING),
        (None, {0: 12}, GroupState.WAITING),
    ],
    ids=["ended", "a point is missing", "another group", "no stop rule"],
)
def test_a_group_that_its_stop_rule_ended_early_is_done(
    stop: str | None, ended: dict[int, int], state: GroupState
) -> None:
    world = launched(operator_run({"spec.load": {**SOAK, "stop": stop}}))
    world.serve()
    world.finish_client(points=12)
    world.ended_there = ended
    world.reconcile()
    assert (world.group(0).state, world.group(0).measured) == (state, 12)


def test_a_run_ends_successfully_although_its_stop_rule_left_points_out() -> None:
    world = launched(operator_run({"spec.load": SOAK}))
    world.serve()
    world.finish_client(points=12)
    world.ended_there = {0: 12}
    world.settle()
    world.trouble = AWAY
    world.reconcile()
    assert (world.group(0).state, world.group(0).measured) == (GroupState.DONE, 12)
    world.trouble = None
    world.measure(1)
    world.finish_report()
    assert world.status.phase is Phase.SUCCEEDED
    assert world.status_and_reason(ConditionType.RESULTS_STORED) == ("True", "Stored")
    complete = world.condition(ConditionType.MEASUREMENT_COMPLETE)
    assert complete.message == "32 of 40 points measured; ended early by load.stop: none"
    assert world.launched.count(world.engine()) == 1


def test_progress_names_what_is_being_measured(serving: ClusterWorld) -> None:
    first, *_, last = serving.plan.groups
    point = first.points[0]
    assert serving.status.progress == f"0/{len(serving.plan.points)} {point.arm} at {point.level.label}"
    serving.measure(0)
    assert serving.status.progress.split(" ")[0] == f"{len(first.points)}/{len(serving.plan.points)}"
    serving.measure(last.index)
    serving.finish_report()
    assert serving.status.progress == f"{len(serving.plan.points)}/{len(serving.plan.points)}"


def test_a_relaunched_engine_is_ready_only_after_its_own_first_completion(serving: ClusterWorld) -> None:
    serving.answering = (0, 0)
    serving.reconcile()
    serving.lose_job(serving.engine())
    serving.settle()
    serving.serve(0, 1)
    serving.reconcile()
    assert serving.status_and_reason(ConditionType.ENGINE_READY) == ("Unknown", "Starting")
    serving.answering = (0, 1)
    serving.reconcile()
    serving.trouble = AWAY
    serving.reconcile()
    assert serving.status_and_reason(ConditionType.ENGINE_READY) == ("True", "Serving")


def test_a_finished_client_releases_the_engine_before_the_next_launch(new_world: ClusterWorld) -> None:
    new_world.reconcile()
    new_world.serve()
    new_world.finish_client()
    decision = new_world.reconcile()
    assert {ref.name for ref in decision.delete} == {new_world.engine()}
    assert decision.apply == ()
    assert new_world.states()[0] is GroupState.DONE
    assert new_world.reconcile().apply == (), "the engine pod still exists"
    assert new_world.condition(ConditionType.RECONCILING).reason == "WaitingForRelease"
    new_world.reap()
    assert [item["metadata"]["name"] for item in new_world.reconcile().apply] == [
        new_world.engine(1),
        new_world.engine(1),
    ]
    assert new_world.launched == ["demo-g0-0", "demo-g1-0"]


def test_the_report_starts_after_all_groups_and_its_summary_becomes_the_status(world: ClusterWorld) -> None:
    world.measure_all()
    assert world.report in world.jobs
    assert world.status.phase is Phase.ANALYZING
    assert world.status_and_reason(ConditionType.MEASUREMENT_COMPLETE) == ("True", "Finished")
    recommendation = Recommendation(
        objective=Objective.THROUGHPUT, worth=1, simulated=True, trustworthy=True, sentence="use ngram", choices=[],
        candidates=[], limits=[],
    )  # fmt: skip
    world.finish_report(summary_of(world.plan, 2).model_copy(update={"recommendation": recommendation}))
    status = world.status
    assert (status.phase, status.progress, status.trust) == (Phase.SUCCEEDED, "2/2", "Trustworthy")
    assert status.best == "ngram 1.83x at concurrency 1"
    assert status.recommendation == "use ngram"
    assert [(row.arm, row.speedup_text) for row in status.arms] == [("none", ""), ("ngram", "1.83 [1.76, 1.90]")]
    assert status.arms[1].ttft_ms is not None
    assert (status.arms[1].ttft_ms.p50, status.arms[1].ttft_ms.p99, status.arms[1].output_tps) == (12.5, None, None)
    assert status.results is not None
    assert status.results.report.endswith("/report.html")
    assert status.completion_time is not None
    for kind in (ConditionType.READY, ConditionType.TRUSTWORTHY, ConditionType.RESULTS_STORED):
        assert world.status_and_reason(kind)[0] == "True"
    assert (
        world.status_and_reason(ConditionType.RECONCILING)[0]
        == world.status_and_reason(ConditionType.STALLED)[0]
        == "False"
    )


def test_each_step_is_announced_by_one_event(world: ClusterWorld) -> None:
    finished(world)
    world.settle()
    assert [event.reason for event in world.events] == [
        *("EngineStarting", "EngineReady", "GroupMeasured"),
        *("EngineStarting", "EngineReady", "GroupMeasured", "MeasurementComplete"),
        "ResultsReady",
    ]


def test_untrustworthy_results_are_ready_and_report_the_worst_finding(world: ClusterWorld) -> None:
    world.measure_all()
    finding = Finding(check="NeverDrafted", severity=Severity.INVALID, message="0 tokens were drafted")
    world.finish_report(summary_of(world.plan, 2, speedup=figure(1.01, 0.9, 1.1), finding=finding))
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    assert world.status_and_reason(ConditionType.TRUSTWORTHY) == ("False", "NeverDrafted")
    assert "0 tokens were drafted" in world.condition(ConditionType.TRUSTWORTHY).message
    assert (world.status.trust, world.status.best) == ("Untrustworthy", "none faster")
    assert world.status.arms[1].speedup_text == "1.01 [0.90, 1.10] indistinguishable"
    assert "Untrustworthy" in {event.reason for event in world.events}


def test_a_run_with_an_arm_at_fault_is_trustworthy_and_an_event_warns(world: ClusterWorld) -> None:
    world.measure_all()
    fault = Finding(check="ReuseLost", severity=Severity.FAULT, message="20 % instead of 80 %", arm="ngram")
    world.finish_report(summary_of(world.plan, 2, speedup=figure(1.3, 1.2, 1.4), finding=fault))
    assert world.status_and_reason(ConditionType.TRUSTWORTHY) == ("True", "ArmAtFault")
    assert world.status.trust == "Trustworthy"
    assert [event.type for event in world.events if event.reason == "ArmAtFault"] == [WARNING]


def test_a_finished_run_is_not_measured_again_when_its_results_are_deleted(world: ClusterWorld) -> None:
    finished(world)
    world.measured.clear()
    world.jobs.clear()
    world.settle()
    assert len(world.launched) == 2


def test_a_finished_run_updates_its_observed_generation(world: ClusterWorld) -> None:
    finished(world)
    world.run["metadata"]["generation"] = 2
    world.reconcile()
    assert world.status.observed_generation == 2
    assert {row.observed_generation for row in world.status.conditions} == {2}


def test_suspending_releases_the_gpus_and_resuming_continues(world: ClusterWorld) -> None:
    world.measure(0)
    world.serve(1)
    world.run["spec"]["suspend"] = True
    decision = world.reconcile()
    assert {ref.name for ref in decision.delete} == {world.engine(1), world.client(1)}
    assert world.status.phase is Phase.SUSPENDED
    assert (
        world.status_and_reason(ConditionType.RECONCILING)[0]
        == world.status_and_reason(ConditionType.READY)[0]
        == "False"
    )
    assert world.states() == [GroupState.DONE, GroupState.WAITING]
    world.settle()
    world.suspend(suspend=False)
    assert world.launched[-1] == world.engine(1, 1), "remains of the old launch cannot be mistaken for the new one"
    assert world.group(1).suspensions == 1
    reasons = {event.reason for event in world.events}
    assert {"Suspended", "Resumed"} <= reasons
    assert "EngineLost" not in reasons, "a suspension is not a loss"


@pytest.mark.parametrize("ttl_s", [0, 60])
def test_the_ttl_of_a_run_that_is_suspended_or_preempted_begins_at_its_end(ttl_s: int) -> None:
    world = launched(operator_run({"spec.ttlSecondsAfterFinished": ttl_s}))
    world.serve()
    world.suspend()
    world.settle(after_s=3600)
    world.suspend(suspend=False)
    world.start_pod(world.engine(0, 1), ready=True)
    world.settle()
    world.crash(world.engine(0, 1), 137)
    world.change_pod(world.engine(0, 1), disrupted="preempting to accommodate a higher priority pod")
    world.settle(after_s=3600)
    assert (world.group(0).attempt, world.group(0).suspensions, world.group(0).preemptions) == (2, 1, 1)
    world.measure(0, 2)
    world.measure(1)
    world.suspend()
    world.settle(after_s=3600)
    assert world.engine(0, 1) in world.jobs, "it is the record of its launch"
    world.suspend(suspend=False)
    world.finish_report()
    assert ("ConfigMap", plan_name("demo", 0)) in world.objects or ttl_s == 0
    world.suspend()
    world.settle(after_s=ttl_s)
    assert (world.jobs, world.objects, world.status.phase) == ({}, {}, Phase.SUCCEEDED)


def test_an_event_of_a_suspension_is_the_same_when_it_is_tried_again() -> None:
    suspended = RunStatus(phase=Phase.SUSPENDED, progress="0/2")
    tried = [RunStatus(phase=Phase.RUNNING, progress=progress) for progress in ("0/2", "0/2 none at 1")]
    assert len({next(suspension_event(suspended, after)) for after in tried}) == 1


def test_remaining_pods_of_a_suspended_launch_do_not_affect_the_next(serving: ClusterWorld) -> None:
    serving.run["spec"]["suspend"] = True
    serving.reconcile()
    serving.run["spec"]["suspend"] = False
    for job in (serving.engine(), serving.client()):
        serving.change_pod(job, phase="Failed", ready=False, terminated=ContainerTerminated(137, "Error"))
    serving.reconcile()
    serving.reconcile()
    assert serving.launched == [serving.engine(), serving.engine(0, 1)]
    assert serving.group(0).state is GroupState.STARTING


def test_a_slowly_deleted_job_of_a_suspended_run_is_not_lost(serving: ClusterWorld) -> None:
    serving.run["spec"]["suspend"] = True
    before = serving.observed()
    decision = serving.reconcile()
    serving.jobs = {job.ref.name: replace(job, deleting=True) for job in before.jobs}
    serving.reconcile()
    assert (serving.group(0).attempt, serving.group(0).suspensions) == (1, 1)
    serving.run["status"] = before.resource["status"]
    serving.reconcile()
    assert serving.status == decision.status, "the same status without the first write"


def test_a_run_that_is_being_deleted_changes_nothing(new_world: ClusterWorld) -> None:
    new_world.run["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    decision = new_world.reconcile()
    assert (decision.apply, decision.delete, decision.stop, decision.at_rest) == ((), (), (), True)


def test_children_of_an_older_run_with_the_same_name_are_waited_for_unchanged(new_world: ClusterWorld) -> None:
    new_world.older_run_left(new_world.engine(), ChildKey("engine", 0, 0))
    decision = new_world.reconcile()
    assert (decision.apply, decision.delete, decision.stop) == ((), (), ())
    assert decision.requeue_after_s == 5
    assert new_world.status_and_reason(ConditionType.RECONCILING) == ("True", "WaitingForRemoval")
    del new_world.jobs[new_world.engine()]
    new_world.settle()
    assert new_world.launched == [new_world.engine()]


def test_a_job_without_an_owner_is_not_adopted_as_the_report(new_world: ClusterWorld) -> None:
    new_world.older_run_left("demo-report", ChildKey("report"))
    new_world.jobs["demo-report"] = replace(new_world.jobs["demo-report"], owner=None)
    new_world.reconcile()
    assert new_world.launched == []


def test_a_stored_plan_is_kept_when_the_operator_would_plan_differently(world: ClusterWorld) -> None:
    world.plan_data[PLAN] = world.plan_data[PLAN].replace(world.plan.groups[0].points[0].hash, "0" * 64)
    world.measured = {"0" * 64}
    world.settle()
    assert world.states()[0] is GroupState.DONE


def test_a_deleted_client_service_or_plan_is_applied_again(serving: ClusterWorld) -> None:
    serving.lose_job(serving.client())
    serving.reap()
    serving.objects.clear()
    serving.plan_data = {}
    kinds = [(item["kind"], item["metadata"]["name"]) for item in serving.reconcile().apply]
    assert kinds == [("ConfigMap", "demo-plan"), ("Service", serving.engine()), ("Job", serving.client())]


def test_an_unreadable_status_is_treated_as_lost(world: ClusterWorld) -> None:
    world.run["status"] = {"phase": "Dancing"}
    world.settle()
    assert world.status.phase is Phase.STARTING
    assert world.launched == [world.engine()]


# GPU-seconds are added up from observed pods, never twice and never too much.


def test_gpu_seconds_are_summed_over_observed_pods(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.pass_time(30)
    world.change_pod(world.engine(), ready=True)
    world.reconcile()
    assert world.status.gpu_seconds_held == 2 * 30
    world.start_pod(world.client())
    world.reconcile()
    world.reconcile(after_s=20)
    assert world.status.gpu_seconds_held == 60, "the sum alone does not cause a status write every few seconds"
    world.reconcile(after_s=40)
    world.reconcile()
    assert world.status.gpu_seconds_held == 2 * 90
    world.end_pod(world.engine(), 1, ran_s=10)
    world.settle(after_s=600)
    assert world.status.gpu_seconds_held == 2 * 100


def test_fractions_of_seconds_are_never_counted_twice() -> None:
    world = launched(operator_run({"spec.load": {"concurrency": [1], "repeats": 32, "order": "Sequential"}}))
    world.serve()
    for point in world.plan.groups[0].points[:-1]:
        world.pass_time(1.9)
        world.measured.add(point.hash)
        world.reconcile()
    held_s = (world.now - NOON).total_seconds()
    assert 2 * (held_s - 1) < world.status.gpu_seconds_held <= 2 * held_s


def test_a_run_without_gpus_holds_none(new_world: ClusterWorld) -> None:
    new_world = ClusterWorld(operator_run({"spec.placement": {}}))
    finished(new_world)
    assert (new_world.status.gpu_seconds_held, new_world.status.gpu_seconds_until) == (0, None)


def test_a_vanished_pod_loses_at_most_the_time_since_the_last_write(world: ClusterWorld) -> None:
    world.start_pod(world.engine(), ready=True)
    world.reconcile()
    world.reconcile(after_s=GPU_SECONDS_PERIOD_S + 10)
    held = world.status.gpu_seconds_held
    world.pass_time(5)
    world.lose_job(world.engine())
    world.reap()
    world.settle()
    assert world.status.gpu_seconds_held == held == 2 * (GPU_SECONDS_PERIOD_S + 10)
    assert world.now - NOON == timedelta(seconds=GPU_SECONDS_PERIOD_S + 15)
