"""A run from its creation to its results, and what a user may change on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specbench_api.outcome.finding import Finding, Severity
from specbench_api.outcome.recommendation import Objective, Recommendation
from specbench_api.plan.names import plan_name
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_operator.state.objects import ChildKey, ContainerTerminated
from specbench_testing.cluster_world import AWAY, ClusterWorld, finished
from specbench_testing.operator_builders import figure, operator_run, summary_of


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld()


def test_a_new_run_gets_its_plan_one_engine_and_one_service(world: ClusterWorld) -> None:
    decision = world.look()
    assert [(item["kind"], item["metadata"]["name"]) for item in decision.apply] == [
        ("ConfigMap", plan_name("demo")),
        ("Service", "demo-g0-0"),
        ("Job", "demo-g0-0"),
    ]
    assert decision.status.phase is Phase.STARTING
    assert decision.status.start_time == "2026-01-02T12:00:00Z"
    assert world.states() == [GroupState.STARTING, GroupState.WAITING]
    assert world.said(ConditionType.VALIDATED) == ("True", "Valid")
    assert world.said(ConditionType.ENGINE_READY) == ("Unknown", "Starting")
    assert world.said(ConditionType.RECONCILING) == ("True", "Starting")
    assert world.said(ConditionType.STALLED)[0] == "False"


def test_the_client_starts_only_when_the_engine_is_ready(world: ClusterWorld) -> None:
    world.look()
    world.start_pod(world.engine())
    assert world.look().apply == ()
    world.change_pod(world.engine(), ready=True)
    assert [item["metadata"]["name"] for item in world.look().apply] == [world.client()]
    assert world.status.phase is Phase.RUNNING


def test_an_engine_counts_as_ready_when_its_first_completion_is_known(world: ClusterWorld) -> None:
    world.look()
    world.serve()
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("Unknown", "Starting")
    world.answering = (0, 0)
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("True", "Serving")
    world.trouble = AWAY
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("True", "Serving")


def test_an_engine_that_is_launched_again_has_not_answered_for_the_one_before_it(world: ClusterWorld) -> None:
    world.settle()
    world.serve()
    world.answering = (0, 0)
    world.look()
    world.lose_job(world.engine())
    world.settle()
    world.serve(0, 1)
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("Unknown", "Starting")
    world.answering = (0, 1)
    world.look()
    assert world.said(ConditionType.ENGINE_READY) == ("True", "Serving")


def test_a_finished_client_releases_the_engine_before_the_next_is_launched(world: ClusterWorld) -> None:
    world.look()
    world.serve()
    world.finish_client()
    decision = world.look()
    assert {ref.name for ref in decision.delete} == {world.engine()}
    assert decision.apply == ()
    assert world.states()[0] is GroupState.DONE
    assert world.look().apply == (), "its pod is still there"
    assert world.condition(ConditionType.RECONCILING).reason == "WaitingForRelease"
    world.reap()
    assert [item["metadata"]["name"] for item in world.look().apply] == [world.engine(1), world.engine(1)]
    assert world.launched == ["demo-g0-0", "demo-g1-0"]


def test_the_report_is_made_when_all_groups_are_done_and_its_summary_becomes_the_status(world: ClusterWorld) -> None:
    world.settle()
    world.measure(0)
    world.measure(1)
    assert world.report in world.jobs
    assert world.status.phase is Phase.ANALYZING
    assert world.said(ConditionType.MEASUREMENT_COMPLETE) == ("True", "Finished")
    said = Recommendation(
        objective=Objective.THROUGHPUT, worth=1, simulated=True, trustworthy=True, sentence="use ngram", choices=[],
        candidates=[], limits=[],
    )  # fmt: skip
    world.finish_report(summary_of(world.plan, 2).model_copy(update={"recommendation": said}))
    world.settle()
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
        assert world.said(kind)[0] == "True"
    assert world.said(ConditionType.RECONCILING)[0] == world.said(ConditionType.STALLED)[0] == "False"


def test_people_are_told_once_of_each_step(world: ClusterWorld) -> None:
    finished(world)
    world.settle()
    assert [event.reason for event in world.events] == [
        *("EngineStarting", "EngineReady", "GroupMeasured"),
        *("EngineStarting", "EngineReady", "GroupMeasured", "MeasurementComplete"),
        "ResultsReady",
    ]


def test_numbers_that_cannot_be_trusted_end_ready_and_untrustworthy_with_the_worst_finding(world: ClusterWorld) -> None:
    world.settle()
    world.measure(0)
    world.measure(1)
    finding = Finding(check="NeverDrafted", severity=Severity.INVALID, message="0 tokens were drafted")
    world.finish_report(summary_of(world.plan, 2, speedup=figure(1.01, 0.9, 1.1), finding=finding))
    world.settle()
    assert world.said(ConditionType.READY) == ("True", "Finished")
    assert world.said(ConditionType.TRUSTWORTHY) == ("False", "NeverDrafted")
    assert "0 tokens were drafted" in world.condition(ConditionType.TRUSTWORTHY).message
    assert (world.status.trust, world.status.best) == ("Untrustworthy", "none faster")
    assert world.status.arms[1].speedup_text == "indistinguishable"
    assert "Untrustworthy" in {event.reason for event in world.events}


def test_a_finished_run_is_left_alone_until_its_children_have_outlived_their_time(world: ClusterWorld) -> None:
    finished(world)
    before = world.observed()
    decision = world.look()
    assert world.observed() == before
    assert decision.at_rest
    assert decision.requeue_after_s == pytest.approx(86_400, abs=60)
    world.pass_time(86_400)
    world.settle()
    assert (world.jobs, world.objects) == ({}, {})
    assert world.status.phase is Phase.SUCCEEDED
    assert world.look().requeue_after_s is None


def test_a_finished_run_is_not_measured_again_when_its_results_are_deleted(world: ClusterWorld) -> None:
    finished(world)
    world.measured.clear()
    world.jobs.clear()
    world.settle()
    assert len(world.launched) == 2


def test_a_finished_run_follows_its_generation_so_that_tools_see_it_as_current(world: ClusterWorld) -> None:
    finished(world)
    world.run["metadata"]["generation"] = 2
    world.look()
    assert world.status.observed_generation == 2
    assert {row.observed_generation for row in world.status.conditions} == {2}


def test_suspending_gives_the_gpus_back_and_resuming_goes_on_where_it_was(world: ClusterWorld) -> None:
    world.settle()
    world.measure(0)
    world.serve(1)
    world.run["spec"]["suspend"] = True
    decision = world.look()
    assert {ref.name for ref in decision.delete} == {world.engine(1), world.client(1)}
    assert world.status.phase is Phase.SUSPENDED
    assert world.said(ConditionType.RECONCILING)[0] == world.said(ConditionType.READY)[0] == "False"
    assert world.states() == [GroupState.DONE, GroupState.WAITING]
    world.settle()
    world.run["spec"]["suspend"] = False
    world.settle()
    assert world.launched[-1] == world.engine(1, 1), "what is left of the old launch cannot be taken for the new one"
    assert world.group(1).suspensions == 1
    reasons = {event.reason for event in world.events}
    assert {"Suspended", "Resumed"} <= reasons
    assert "EngineLost" not in reasons, "nobody's fault is counted"


def test_an_engine_that_may_be_suspended_and_resumed_any_number_of_times_is_never_given_up(world: ClusterWorld) -> None:
    world.settle()
    for attempt in range(5):
        world.serve(0, attempt)
        world.run["spec"]["suspend"] = True
        world.settle()
        world.run["spec"]["suspend"] = False
        world.settle()
    assert world.launched == [world.engine(0, attempt) for attempt in range(6)]
    assert (world.group(0).state, world.group(0).attempt, world.group(0).suspensions) == (GroupState.STARTING, 5, 5)


def test_what_is_left_of_a_suspended_launch_says_nothing_of_the_next(world: ClusterWorld) -> None:
    world.settle()
    world.serve()
    world.run["spec"]["suspend"] = True
    world.look()
    world.run["spec"]["suspend"] = False
    for job in (world.engine(), world.client()):
        world.change_pod(job, phase="Failed", ready=False, terminated=ContainerTerminated(137, "Error"))
    world.look()
    world.look()
    assert world.launched == [world.engine(), world.engine(0, 1)]
    assert world.group(0).state is GroupState.STARTING


def test_an_engine_whose_job_goes_slowly_while_its_run_is_suspended_is_not_lost(world: ClusterWorld) -> None:
    world.settle()
    world.serve()
    world.run["spec"]["suspend"] = True
    before = world.observed()
    decision = world.look()
    world.jobs = {job.ref.name: replace(job, deleting=True) for job in before.jobs}
    world.look()
    assert (world.group(0).attempt, world.group(0).suspensions) == (1, 1)
    world.run["status"] = before.resource["status"]
    world.look()
    assert world.status == decision.status, "also where the first status was never written"


def test_a_run_that_is_created_suspended_creates_nothing() -> None:
    world = ClusterWorld(operator_run({"spec.suspend": True}))
    assert world.look().apply == ()
    assert world.status.phase is Phase.SUSPENDED


def test_a_run_that_is_being_deleted_is_left_to_the_garbage_collector(world: ClusterWorld) -> None:
    world.settle()
    world.run["metadata"]["deletionTimestamp"] = "2026-01-02T12:00:00Z"
    decision = world.look()
    assert (decision.apply, decision.delete, decision.stop) == ((), (), ())


def test_children_of_an_older_run_of_the_same_name_are_waited_for_and_never_touched(world: ClusterWorld) -> None:
    world.older_run_left(world.engine(), ChildKey("engine", 0, 0))
    decision = world.look()
    assert (decision.apply, decision.delete, decision.stop) == ((), (), ())
    assert decision.requeue_after_s == 5
    assert world.said(ConditionType.RECONCILING) == ("True", "WaitingForRemoval")
    assert "Job demo-g0-0" in world.condition(ConditionType.RECONCILING).message
    del world.jobs[world.engine()]
    world.settle()
    assert world.launched == [world.engine()]


def test_children_that_nobody_owns_are_named_with_what_to_do(world: ClusterWorld) -> None:
    world.older_run_left(world.engine(), ChildKey("engine", 0, 0))
    world.jobs[world.engine()] = replace(world.jobs[world.engine()], owner=None)
    assert world.look().apply == ()
    assert "because nobody owns them: delete them by hand" in world.condition(ConditionType.RECONCILING).message


def test_a_plan_survives_an_operator_that_would_draw_another(world: ClusterWorld) -> None:
    world.settle()
    assert world.plan_json is not None
    world.plan_json = world.plan_json.replace(world.plan.groups[0].points[0].hash, "0" * 64)
    world.measured = {"0" * 64}
    world.settle()
    assert world.states()[0] is GroupState.DONE


def test_a_deleted_client_a_deleted_service_and_a_deleted_plan_are_simply_applied_again(world: ClusterWorld) -> None:
    world.settle()
    world.serve()
    world.lose_job(world.client())
    world.reap()
    world.objects.clear()
    world.plan_json = None
    kinds = [(item["kind"], item["metadata"]["name"]) for item in world.look().apply]
    assert kinds == [("ConfigMap", "demo-plan"), ("Service", world.engine()), ("Job", world.client())]


def test_an_unreadable_status_is_a_lost_status(world: ClusterWorld) -> None:
    world.settle()
    world.run["status"] = {"phase": "Dancing"}
    world.settle()
    assert world.status.phase is Phase.STARTING
    assert world.launched == [world.engine()]
