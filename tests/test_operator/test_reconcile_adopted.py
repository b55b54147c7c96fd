"""A run that adopts the results of a lost run continues there and measures nothing twice."""

from __future__ import annotations

import pytest

from specbench_api.plan.canonical import differing_fields
from specbench_api.plan.expansion import expand, restore
from specbench_api.plan.plan import Plan
from specbench_api.spec.conditions import ConditionType, Phase
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.results import S3
from specbench_operator.render.client_jobs import results_uri
from specbench_operator.state.objects import ChildKey
from specbench_testing.cluster_world import AWAY, ClusterWorld, finished
from specbench_testing.operator_builders import OLDER_UID, operator_run
from specbench_testing.resources import edit


def reborn(older_plan: Plan, stored: ClusterWorld | None = None) -> ClusterWorld:
    """The same run made again, as `specbench recover` has it, with what the old one left in S3."""
    run = operator_run({"spec": restore(older_plan, S3(bucket="results")).spec.to_dict()})
    world = ClusterWorld(run)
    world.plan_there = older_plan.to_json()
    if stored:
        world.measured, world.summary = set(stored.measured), stored.summary
    return world


@pytest.fixture
def plan() -> Plan:
    run = operator_run()
    run["metadata"]["uid"] = OLDER_UID
    return expand(parse_run(run))


def test_its_results_lie_where_the_old_ones_do(plan: Plan) -> None:
    world = reborn(plan)
    world.look()
    assert world.plan == plan
    assert results_uri(parse_run(world.run)) == f"s3://results/runs/default/demo/{OLDER_UID}"
    assert world.status.results is not None
    assert world.status.results.uri.endswith(OLDER_UID)
    assert Plan.from_json(world.plan_json or "").uid == OLDER_UID


def test_only_what_is_missing_is_launched(plan: Plan) -> None:
    world = reborn(plan)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    assert world.launched == [world.engine(1)]
    world.measure(1)
    world.finish_report()
    world.settle()
    assert (world.status.phase, world.status.progress) == (Phase.SUCCEEDED, "2/2")
    assert world.launched == [world.engine(1)]


def test_a_finished_run_gets_its_whole_status_back_and_nothing_is_launched(plan: Plan) -> None:
    before = ClusterWorld(operator_run())
    finished(before)
    world = reborn(plan, before)
    world.settle()
    assert world.launched == []
    assert world.report not in world.jobs
    told, meant = world.status, before.status
    assert (told.phase, told.arms, told.best, told.trust) == (meant.phase, meant.arms, meant.best, meant.trust)
    assert (told.points, told.progress) == (meant.points, meant.progress)
    assert world.said(ConditionType.TRUSTWORTHY) == ("True", "Trustworthy")


def test_a_uid_under_which_nothing_lies_is_refused_and_nothing_is_created(plan: Plan) -> None:
    world = reborn(plan)
    world.plan_there = None
    decision = world.look()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    said = world.condition(ConditionType.VALIDATED).message
    assert f"spec.results.adopt: there are no results at s3://results/runs/default/demo/{OLDER_UID}" in said


def test_results_of_another_plan_are_refused_with_what_differs(plan: Plan) -> None:
    world = reborn(plan)
    world.run["spec"]["load"]["repeats"] = 3
    decision = world.look()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    assert "have another plan: load, groups differ" in world.condition(ConditionType.VALIDATED).message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.placement.queueName", "another-clusters"),
        ("spec.placement.tolerations", [{"operator": "Exists"}]),
        ("spec.placement.priorityClassName", "high"),
        ("spec.placement.pinNode", "None"),
        ("spec.model.tokenSecret", {"name": "hub", "key": "token"}),
    ],
)
def test_what_is_not_measured_may_be_another(plan: Plan, path: str, value: object) -> None:
    """Another cluster has other queues. The points have the same hashes, and are found."""
    world = reborn(plan)
    edit(world.run, path, value)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    assert world.said(ConditionType.VALIDATED) == ("True", "Valid")
    assert world.launched == [world.engine(1)]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.drafters[0].name", "renamed"),
        ("spec.workloads[0].name", "renamed"),
        ("spec.load.concurrency", [8, 1]),
        ("spec.placement.queueName", "another-clusters"),
    ],
    ids=["other names of arms", "other names of workloads", "levels in another order", "another queue"],
)
def test_under_other_names_or_in_another_order_it_goes_on_by_the_plan_that_lies_there(path: str, value: object) -> None:
    older = operator_run({"spec.load.concurrency": [1, 8]})
    older["metadata"]["uid"] = OLDER_UID
    plan = expand(parse_run(older))
    world = reborn(plan)
    edit(world.run, path, value)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    assert world.said(ConditionType.VALIDATED) == ("True", "Valid")
    assert world.launched == [world.engine(1)]
    told = Plan.from_json(world.plan_json or "")
    assert differing_fields(told, plan) == [], "its client finds its own plan there"
    assert told.placement == expand(parse_run(world.run)).placement
    assert [row.arm for row in world.status.groups] == [group.arm for group in plan.groups]


def test_no_plan_is_kept_before_s3_has_told_by_which_one_it_goes_on(plan: Plan) -> None:
    world = reborn(plan)
    edit(world.run, "spec.drafters[0].name", "renamed")
    world.trouble = AWAY
    world.settle()
    assert world.plan_json is None
    world.trouble = None
    world.settle()
    assert differing_fields(Plan.from_json(world.plan_json or ""), plan) == []


def test_other_hardware_is_another_plan(plan: Plan) -> None:
    world = reborn(plan)
    edit(world.run, "spec.placement.nodeSelector", {"gpu": "H200"})
    world.look()
    assert world.status.phase is Phase.INVALID
    assert "groups" in world.condition(ConditionType.VALIDATED).message
    assert "placement" in world.condition(ConditionType.VALIDATED).message


def test_a_plan_that_cannot_be_read_is_refused(plan: Plan) -> None:
    world = reborn(plan)
    world.plan_there = '{"schemaVersion": "specbench.io/plan/v0"}'
    world.look()
    assert "written by another version" in world.condition(ConditionType.VALIDATED).message


def test_while_s3_is_away_nothing_is_refused_and_nothing_launched(plan: Plan) -> None:
    world = reborn(plan)
    world.trouble = AWAY
    world.settle()
    assert world.launched == []
    assert world.said(ConditionType.VALIDATED) == ("True", "Valid")


def test_a_run_that_adopts_nothing_asks_for_no_plan_in_s3() -> None:
    world = ClusterWorld()
    assert world.plan_there is None
    world.settle()
    assert len(world.launched) == 1


def test_children_that_the_lost_run_left_are_not_taken_over(plan: Plan) -> None:
    world = reborn(plan)
    world.older_run_left(world.engine(0), ChildKey("engine", 0, 0))
    decision = world.look()
    assert decision.delete == ()
    assert world.launched == []
    assert world.said(ConditionType.RECONCILING) == ("True", "WaitingForRemoval")
