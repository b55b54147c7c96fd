"""A run that adopts the results of a lost run continues there and measures nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

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


def adopting_world(older_plan: Plan, stored: ClusterWorld | None = None) -> ClusterWorld:
    """The run as `specbench recover` recreates it, with what the old run left in S3."""
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


def test_an_adopting_run_stores_its_results_at_the_old_location(plan: Plan) -> None:
    world = adopting_world(plan)
    world.reconcile()
    assert world.plan == plan
    assert results_uri(parse_run(world.run)) == f"s3://results/runs/default/demo/{OLDER_UID}"
    assert world.status.results is not None
    assert world.status.results.uri.endswith(OLDER_UID)
    assert Plan.from_json(world.plan_json or "").uid == OLDER_UID


def test_an_adopting_run_launches_only_the_missing_groups(plan: Plan) -> None:
    world = adopting_world(plan)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    assert world.launched == [world.engine(1)]
    world.measure(1)
    world.finish_report()
    world.settle()
    assert (world.status.phase, world.status.progress) == (Phase.SUCCEEDED, "2/2")
    assert world.launched == [world.engine(1)]


def test_adopting_a_finished_run_restores_its_status_and_launches_nothing(plan: Plan) -> None:
    before = ClusterWorld(operator_run())
    finished(before)
    world = adopting_world(plan, before)
    world.settle()
    assert world.launched == []
    assert world.report not in world.jobs
    status, expected = world.status, before.status
    assert (status.phase, status.arms, status.best, status.trust) == (
        expected.phase,
        expected.arms,
        expected.best,
        expected.trust,
    )
    assert (status.points, status.progress) == (expected.points, expected.progress)
    assert world.status_and_reason(ConditionType.TRUSTWORTHY) == ("True", "Trustworthy")


def test_a_point_that_is_measured_again_gets_a_new_report(plan: Plan) -> None:
    """As the message about a damaged point advises, it was removed. The stored summary still counts all points."""
    before = ClusterWorld(operator_run())
    finished(before)
    world = adopting_world(plan, before)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    world.measure(1)
    world.settle()
    assert (world.status.phase, world.report in world.jobs) == (Phase.ANALYZING, True)
    world.finish_report()
    world.settle()
    assert world.status.phase is Phase.SUCCEEDED


def test_an_adopted_uid_without_results_is_refused_and_creates_nothing(plan: Plan) -> None:
    world = adopting_world(plan)
    world.plan_there = None
    decision = world.reconcile()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    message = world.condition(ConditionType.VALIDATED).message
    assert f"spec.results.adopt: there are no results at s3://results/runs/default/demo/{OLDER_UID}" in message


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("spec.load.repeats", 3, "load, groups"),
        ("spec.drafters[0].name", "renamed", "arms, groups"),
        ("spec.workloads[0].name", "renamed", "workloads, groups"),
    ],
)
def test_results_of_another_plan_are_refused_with_the_differing_fields(
    plan: Plan, path: str, value: object, names: str
) -> None:
    world = adopting_world(plan)
    edit(world.run, path, value)
    decision = world.reconcile()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    assert f"have another plan: {names} differ" in world.condition(ConditionType.VALIDATED).message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.placement.queueName", "another-clusters"),
        ("spec.placement.tolerations", [{"operator": "Exists"}]),
        ("spec.placement.priorityClassName", "high"),
        ("spec.placement.pinNode", "None"),
        ("spec.model.tokenSecretRef", {"name": "hub", "key": "token"}),
    ],
)
def test_fields_that_are_not_measured_may_differ_from_the_adopted_plan(plan: Plan, path: str, value: object) -> None:
    """Another cluster has other queues; the points have the same hashes and are found."""
    world = adopting_world(plan)
    edit(world.run, path, value)
    world.measured = {point.hash for point in plan.groups[0].points}
    world.settle()
    assert world.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")
    assert world.launched == [world.engine(1)]


def test_other_hardware_is_another_plan(plan: Plan) -> None:
    world = adopting_world(plan)
    edit(world.run, "spec.placement.nodeSelector", {"gpu": "H200"})
    world.reconcile()
    assert world.status.phase is Phase.INVALID
    assert "groups" in world.condition(ConditionType.VALIDATED).message
    assert "placement" in world.condition(ConditionType.VALIDATED).message


def test_an_unreadable_plan_is_refused(plan: Plan) -> None:
    world = adopting_world(plan)
    world.plan_there = '{"schemaVersion": "specbench.io/plan/v0"}'
    world.reconcile()
    assert "written by another version" in world.condition(ConditionType.VALIDATED).message


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "image": lambda plan: plan["engine"].update(image="registry.example/miner:1"),
    "command": lambda plan: plan["engine"].update(command=["sh", "-c", "id"]),
    "environment": lambda plan: plan["engine"].update(env=[{"name": "LD_PRELOAD", "value": "/tmp/a.so"}]),
    "model": lambda plan: plan["target"].update(uri="s3://of-others/model"),
    "prompts": lambda plan: plan["workloads"][0]["dataset"].update(uri="s3://of-others/prompts.jsonl", name=None),
    "arguments of a drafter": lambda plan: plan["arms"][1]["drafter"].update(args=["--trust-remote-code"]),
    "load": lambda plan: plan["load"].update(warmupRequests=1_000_000),
    "name of an arm": lambda plan: [
        each.update({key: "../x"}) for key, rows in (("name", "arms"), ("arm", "groups")) for each in plan[rows][:1]
    ],
    "number of a group": lambda plan: plan["groups"][0].update(index=1000),
}
"""Changes of a stored plan that leave the hashes of its points as they are."""


@pytest.mark.parametrize("changed", FORGED)
def test_a_stored_plan_whose_contents_do_not_match_its_hashes_is_refused(plan: Plan, changed: str) -> None:
    """Whoever may write to the bucket would otherwise choose the engine's image, also against the fence."""
    world = adopting_world(plan)
    forged = json.loads(plan.to_json())
    FORGED[changed](forged)
    world.plan_there = json.dumps(forged)
    decision = world.reconcile()
    assert (decision.apply, world.status.phase) == ((), Phase.INVALID)
    assert "spec.results.adopt: " in world.condition(ConditionType.VALIDATED).message


def test_while_s3_is_unreachable_nothing_is_refused_or_launched(plan: Plan) -> None:
    world = adopting_world(plan)
    world.trouble = AWAY
    world.settle()
    assert world.launched == []
    assert world.status_and_reason(ConditionType.VALIDATED) == ("True", "Valid")


def test_a_run_without_adoption_needs_no_plan_in_s3() -> None:
    world = ClusterWorld()
    assert world.plan_there is None
    world.settle()
    assert len(world.launched) == 1


def test_children_of_the_lost_run_are_not_adopted(plan: Plan) -> None:
    world = adopting_world(plan)
    world.older_run_left(world.engine(0), ChildKey("engine", 0, 0))
    decision = world.reconcile()
    assert decision.delete == ()
    assert world.launched == []
    assert world.status_and_reason(ConditionType.RECONCILING) == ("True", "WaitingForRemoval")
