"""How runs end when something failed, and invalid specs."""

from __future__ import annotations

import pytest

from specbench_api.outcome.termination import Exit, Termination
from specbench_api.spec.conditions import ConditionType, Phase
from specbench_testing.cluster_world import ClusterWorld, finish_other_arm, finished
from specbench_testing.operator_builders import operator_run


@pytest.fixture
def world() -> ClusterWorld:
    world = ClusterWorld()
    world.settle()
    return world


def test_a_run_with_one_failed_arm_succeeds_with_the_other_arm(world: ClusterWorld) -> None:
    world.start_pod(world.engine())
    world.crash(world.engine(), 137, reason="OOMKilled")
    world.settle()
    finish_other_arm(world)
    status = world.status
    assert status.phase is Phase.SUCCEEDED
    assert (status.points.measured, status.points.failed, status.progress) == (1, 1, "1/2")
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    assert world.status_and_reason(ConditionType.MEASUREMENT_COMPLETE) == ("False", "OOMKilled")
    assert world.status_and_reason(ConditionType.ENGINE_READY) == ("False", "OOMKilled")
    assert "arm none" in world.condition(ConditionType.MEASUREMENT_COMPLETE).message


def test_a_run_without_any_measurement_fails_and_creates_no_report(world: ClusterWorld) -> None:
    for group in (0, 1):
        world.start_pod(world.engine(group))
        world.crash(world.engine(group), 1, message="no CUDA device")
        world.settle()
    assert world.status.phase is Phase.FAILED
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "Crashed")
    assert world.status_and_reason(ConditionType.READY) == ("False", "Crashed")
    assert "no CUDA device" in world.condition(ConditionType.READY).message
    assert world.report not in world.jobs
    assert world.status.completion_time is not None


def test_a_failed_run_is_not_retried_when_its_children_are_gone(world: ClusterWorld) -> None:
    for group in (0, 1):
        world.start_pod(world.engine(group))
        world.crash(world.engine(group), 1)
        world.settle()
    world.pass_time(86_400)
    world.settle()
    world.settle()
    assert world.jobs == {}
    assert len(world.launched) == 2


def measure_all(world: ClusterWorld) -> None:
    world.measure(0)
    world.measure(1)


def test_a_report_that_cannot_be_stored_is_reported(world: ClusterWorld) -> None:
    measure_all(world)
    world.start_pod(world.report)
    message = Termination(code=5, reason="CredentialsRefused", message="denied").to_message()
    world.end_pod(world.report, 5, message=message)
    world.reconcile()
    assert world.status_and_reason(ConditionType.RESULTS_STORED) == ("False", "CredentialsRefused")
    assert world.status.phase is Phase.ANALYZING


def test_a_report_that_cannot_start_is_waited_for_because_it_holds_no_gpus(world: ClusterWorld) -> None:
    measure_all(world)
    world.start_pod(world.report, phase="Pending", unschedulable="0/3 nodes")
    world.reconcile()
    world.pass_time(100_000)
    world.settle()
    assert world.status_and_reason(ConditionType.RECONCILING) == ("True", "Analyzing")
    assert "0/3 nodes" in world.condition(ConditionType.RECONCILING).message
    world.finish_report()
    world.settle()
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")


def test_a_failed_report_is_created_again_when_its_job_is_deleted(world: ClusterWorld) -> None:
    measure_all(world)
    world.start_pod(world.report)
    world.crash(world.report, 1, message="bug")
    world.settle()
    assert world.status.completion_time is None, "the measurements are not reported yet"
    assert f"delete Job {world.report}" in world.condition(ConditionType.STALLED).message
    world.lose_job(world.report)
    world.settle()
    assert world.status_and_reason(ConditionType.STALLED)[0] == "False"
    world.finish_report()
    world.settle()
    assert world.status_and_reason(ConditionType.READY) == ("True", "Finished")
    assert len(world.launched) == 2


def test_a_point_deleted_during_the_report_is_measured_again_first(world: ClusterWorld) -> None:
    measure_all(world)
    assert world.report in world.jobs
    world.measured -= {point.hash for point in world.plan.groups[1].points}
    world.settle()
    assert world.report not in world.jobs
    assert world.launched[-1] == world.engine(1, 1)


def test_bad_input_ends_the_run_when_its_jobs_are_deleted_before_the_gpus_are_free(world: ClusterWorld) -> None:
    world.serve()
    world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3")
    world.reconcile()
    for job in list(world.jobs):
        world.lose_job(job)
    world.settle()
    assert world.status_and_reason(ConditionType.STALLED) == ("True", "BadInput")
    assert world.status.completion_time is not None
    assert world.launched == [world.engine()]


@pytest.mark.parametrize(
    ("phase", "kind", "message"),
    [("Succeeded", ConditionType.READY, "ngram is 1.83 times as fast"), ("Failed", ConditionType.STALLED, "row 3")],
)
def test_a_finished_run_restores_its_conditions_when_they_are_overwritten(
    phase: str, kind: ConditionType, message: str
) -> None:
    world = ClusterWorld()
    if phase == "Succeeded":
        finished(world)
    else:
        world.settle()
        world.serve()
        world.fail_client(Exit.BAD_INPUT, "BadInput", "row 3")
        world.settle()
    conditions = {row.type: (row.status, row.reason) for row in world.status.conditions}
    for row in world.run["status"]["conditions"]:
        if row["type"] in ("Ready", "Reconciling", "Stalled", "Complete", "Failed"):
            reconciling = "True" if row["type"] == "Reconciling" else "False"
            row |= {"status": reconciling, "reason": "ApiUnreachable", "message": "no answer"}
    world.settle()
    assert world.status.phase == phase
    assert world.status_and_reason(kind)[0] == "True"
    assert world.condition(kind).message.endswith(message)
    assert {row.type: (row.status, row.reason) for row in world.status.conditions} == conditions


def test_an_unsupported_spec_creates_nothing_and_reports_the_field_and_a_remedy() -> None:
    drafter = {"name": "e", "method": "eagle", "model": "m"}
    world = ClusterWorld(operator_run({"spec.engine.kind": "llama-cpp", "spec.drafters[0]": drafter}))
    decision = world.reconcile()
    assert (decision.apply, decision.at_rest) == ((), True)
    assert world.status.phase is Phase.INVALID
    assert world.status_and_reason(ConditionType.VALIDATED) == ("False", "InvalidSpec")
    message = world.condition(ConditionType.VALIDATED).message
    assert "spec.drafters[0].method" in message
    assert "use draft_model or ngram" in message
    assert world.status_and_reason(ConditionType.STALLED)[0] == "True"
    assert (
        world.status_and_reason(ConditionType.RECONCILING)[0]
        == world.status_and_reason(ConditionType.READY)[0]
        == "False"
    )
    assert [event.reason for event in world.events] == ["Invalid"]
    world.reconcile()
    assert len(world.events) == 1


def test_a_plan_that_exceeds_a_config_map_is_an_invalid_spec() -> None:
    many = {"concurrency": list(range(1, 17)), "repeats": 32}
    workloads = [
        {"name": f"workload-of-a-long-name-{number}", "dataset": {"source": "jsonl", "uri": f"{number}.jsonl"}}
        for number in range(4)
    ]
    world = ClusterWorld(operator_run({"spec.load": many, "spec.workloads": workloads}))
    assert world.reconcile().apply == ()
    assert world.status_and_reason(ConditionType.VALIDATED)[0] == "False"
    assert "fewer workloads" in world.condition(ConditionType.VALIDATED).message


def test_a_run_that_becomes_invalid_releases_its_gpus(world: ClusterWorld) -> None:
    world.serve()
    world.run["spec"]["engine"]["kind"] = "unheard-of"
    decision = world.reconcile()
    assert {ref.name for ref in decision.delete} == {world.engine(), world.client()}
