"""S3 is authoritative: stored points are never measured again, and nothing is launched while S3 cannot be read."""

from __future__ import annotations

import pytest

from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_operator.state.objects import ObjectRef
from specbench_testing.cluster_world import AWAY, NO_BUCKET, ClusterWorld, finished
from specbench_testing.operator_builders import summary_of


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld()


def test_groups_already_measured_in_s3_are_not_launched(world: ClusterWorld) -> None:
    world.measured = {point.hash for point in world.plan.groups[0].points}
    world.settle()
    assert world.launched == [world.engine(1)]
    assert world.states() == [GroupState.DONE, GroupState.STARTING]


def test_a_run_without_status_and_children_is_rebuilt_from_s3(world: ClusterWorld) -> None:
    finished(world)
    fresh = ClusterWorld(measured=world.measured, summary=world.summary)
    fresh.settle()
    assert fresh.launched == []
    assert fresh.report not in fresh.jobs
    assert fresh.status.phase is Phase.SUCCEEDED
    assert fresh.status.arms == world.status.arms


def test_a_summary_older_than_the_measurements_is_recreated(world: ClusterWorld) -> None:
    world.measured = {point.hash for point in world.plan.points}
    world.summary = summary_of(world.plan, 1)
    world.settle()
    assert world.report in world.jobs
    assert world.status.phase is Phase.ANALYZING


@pytest.mark.parametrize(
    ("trouble", "expected"), [(AWAY, ("Unknown", "S3Away")), (NO_BUCKET, ("False", "BucketMissing"))]
)
def test_no_engine_is_launched_while_s3_is_unreachable(
    world: ClusterWorld, trouble: object, expected: tuple[str, str]
) -> None:
    world.trouble = trouble  # type: ignore[assignment]
    decision = world.reconcile()
    assert [item["kind"] for item in decision.apply] == ["ConfigMap"]
    assert decision.requeue_after_s == 15
    assert world.status_and_reason(ConditionType.RESULTS_STORED) == expected
    assert world.status_and_reason(ConditionType.RECONCILING)[0] == "True"
    assert world.status.phase is Phase.PENDING
    world.trouble = None
    world.settle()
    assert world.launched == [world.engine()]


def test_an_active_engine_continues_without_s3_and_is_released_after_its_client(
    world: ClusterWorld,
) -> None:
    world.settle()
    world.serve()
    world.trouble = AWAY
    decision = world.reconcile()
    assert (decision.apply, decision.delete, decision.stop) == ((), (), ())
    world.finish_client()
    assert ObjectRef("Job", world.engine(), world.jobs[world.engine()].ref.uid) in world.reconcile().delete
    world.settle()
    assert world.launched == [world.engine()]
    assert world.states()[0] is GroupState.MEASURING
    world.trouble = None
    world.settle()
    assert world.states()[0] is GroupState.DONE


def test_the_report_waits_for_s3(world: ClusterWorld) -> None:
    world.settle()
    world.measure(0)
    world.serve(1)
    world.finish_client(1)
    world.reconcile()
    world.trouble = AWAY
    world.settle()
    assert world.report not in world.jobs
    assert world.status.phase is Phase.ANALYZING
    assert world.status_and_reason(ConditionType.RECONCILING) == ("True", "S3Away")


@pytest.mark.parametrize("plan_json", ["{}", "not json", "another run's"])
def test_an_invalid_stored_plan_is_replaced(world: ClusterWorld, plan_json: str) -> None:
    world.settle()
    assert world.plan_json is not None
    other = world.plan_json.replace(world.plan.uid, "another")
    world.plan_json = other if plan_json == "another run's" else plan_json
    world.measured = {point.hash for point in world.plan.groups[0].points}
    world.settle()
    assert world.states()[0] is GroupState.DONE
