"""Rounds that are measured again: when the operator adds one, and how the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from specbench_api.outcome.layout import PLAN
from specbench_api.plan.expansion import expand, with_another_round
from specbench_api.plan.names import plan_name
from specbench_api.plan.plan import PlanCell
from specbench_api.spec.conditions import ConditionType, GroupState, Phase
from specbench_api.spec.load import Level
from specbench_api.spec.parsing import parse_run
from specbench_operator.render.client_jobs import plan_config_map
from specbench_operator.run.launches.launch_state import ClientReason
from specbench_testing.cluster_world import AWAY, ClusterWorld
from specbench_testing.fake_api import FakeApi, observe
from specbench_testing.operator_builders import OLDER_UID, operator_run

LOAD = {"concurrency": [1, 2], "repeats": 2}
LAUNCHES = 4
"""Launches of two arms in two repeats; a round has as many."""
CELLS = {(arm, "chat", Level(concurrency=2)) for arm in ("none", "ngram")}
ADDED = ("ConfigMap", plan_name("demo", 1))


def test_the_plan_of_a_run_is_the_one_with_the_most_added_rounds() -> None:
    resource = operator_run({"spec.load": LOAD})
    run = parse_run(resource)
    plans = [expand(run)]
    for _ in range(11):
        plans.append(with_another_round(plans[-1], CELLS))
    other = parse_run({**resource, "metadata": {**resource["metadata"], "uid": OLDER_UID}})
    foreign = plan_config_map(other, plans[1], "", "")
    for plan in plans:
        api = FakeApi.of(resource)
        for created in (foreign, *(plan_config_map(run, each, "", "") for each in plans[: plan.added_rounds + 1])):
            api.put(created)
        assert observe(api).plan_data[PLAN] == plan.to_json()


def measured(edits: dict[str, Any] | None = None) -> ClusterWorld:
    """A run whose points are measured and whose report is being made."""
    world = ClusterWorld(operator_run({"spec.load": LOAD, **(edits or {})}))
    world.measure_all()
    assert world.report in world.jobs
    return world


def retried(edits: dict[str, Any] | None = None) -> ClusterWorld:
    """A run to which a round was added, and whose first engine is launched again."""
    world = measured(edits)
    world.finish_report(following=CELLS)
    return world


def measure_added_round(world: ClusterWorld, first: int) -> None:
    """Take the groups of an added round from launch to release."""
    for group in world.plan.groups[first:]:
        world.measure(group.index)


def test_a_requested_round_is_measured_and_reported_before_the_run_has_finished() -> None:
    world = measured()
    planned = world.plan
    world.store_results(following=CELLS)
    decision = world.reconcile()
    assert [(item["kind"], item["metadata"]["name"]) for item in decision.apply] == [ADDED]
    assert decision.delete == ()
    assert (world.status.phase, world.status.completion_time) == (Phase.ANALYZING, None)
    world.settle()
    assert world.plan == with_another_round(planned, CELLS)
    assert world.report not in world.jobs, "it is of the plan without the round"
    assert world.launched == [f"demo-g{index}-0" for index in range(LAUNCHES + 1)]
    assert (world.status.phase, world.group(LAUNCHES).state) == (Phase.STARTING, GroupState.STARTING)
    measure_added_round(world, len(planned.groups))
    assert (world.status.progress, world.status.phase) == ("12/12", Phase.ANALYZING)
    world.finish_report(following=CELLS)
    assert (world.status.phase, world.status.points.total) == (Phase.SUCCEEDED, 12)
    assert world.launched == [f"demo-g{index}-0" for index in range(2 * LAUNCHES)], (
        "the second round is more than retries allow"
    )


def test_as_many_rounds_as_retries_are_added_one_after_the_other() -> None:
    world = retried({"spec.retries": 2})
    groups = len(world.plan.groups)
    measure_added_round(world, LAUNCHES)
    world.finish_report(following={(arm, "chat", Level(concurrency=1)) for arm in ("none", "ngram")})
    assert [len(cells) for cells in world.plan.rounds_added] == [2, 2]
    measure_added_round(world, groups)
    world.finish_report(following=CELLS)
    assert world.status.phase is Phase.SUCCEEDED


def test_a_search_goes_on_as_its_results_request_and_no_longer_than_its_repeats() -> None:
    """Retries are of other runs."""
    load = {"concurrency": [1, 2], "repeats": 3}
    world = measured({"spec.load": load, "spec.search": {}, "spec.retries": 0})
    assert [group.arm for group in world.plan.groups] == ["none", "ngram"]
    for launches, arms in ((2, ["ngram", "none"]), (4, ["none", "ngram"])):
        world.finish_report(following=CELLS)
        assert [group.arm for group in world.plan.groups[launches:]] == arms
        assert world.status.phase is Phase.STARTING
        measure_added_round(world, launches)
    world.finish_report(following=CELLS)
    assert (world.status.phase, world.status.points.total) == (Phase.SUCCEEDED, 8)


REQUESTS: dict[str, tuple[dict[str, Any], Collection[PlanCell], bool]] = {
    "at a load of the plan": ({}, CELLS, True),
    "at some loads of the plan": ({}, {*CELLS, ("none", "other", Level(concurrency=1))}, True),
    "at no load": ({}, (), False),
    "of another workload": ({}, {("none", "other", Level(concurrency=1))}, False),
    "at another load": ({}, {("none", "chat", Level(concurrency=64))}, False),
    "in a run without retries": ({"spec.retries": 0}, CELLS, False),
    "in a run that takes no turns": ({"spec.load.order": "Sequential"}, CELLS, False),
    "in a run of as many repeats as there may be": ({"spec.load.repeats": 31}, CELLS, False),
}


@pytest.mark.parametrize(("edits", "following", "added"), REQUESTS.values(), ids=REQUESTS)
def test_only_what_the_plan_and_its_retries_allow_is_added(
    edits: dict[str, Any], following: Collection[PlanCell], *, added: bool
) -> None:
    """Whoever may write to the bucket may request anything."""
    world = measured(edits)
    world.finish_report(following=following)
    assert (ADDED in world.objects) == added
    assert world.status.phase is (Phase.STARTING if added else Phase.SUCCEEDED)


def other_results(world: ClusterWorld) -> None:
    """The stored results are of another run."""
    assert world.results is not None
    world.results = world.results.model_copy(update={"uid": OLDER_UID})


def unread_store(world: ClusterWorld) -> None:
    """The store cannot be read."""
    world.trouble = AWAY


@pytest.mark.parametrize(
    ("change", "phase", "reason"),
    [
        (other_results, Phase.FAILED, ClientReason.RESULTS_MISSING),
        (unread_store, Phase.ANALYZING, "S3Away"),
    ],
)
def test_no_round_is_added_without_a_request_in_the_runs_own_results(
    change: Callable[[ClusterWorld], None], phase: Phase, reason: str
) -> None:
    world = measured()
    world.store_results(following=CELLS)
    change(world)
    world.settle()
    assert ADDED not in world.objects
    tools = ConditionType.STALLED if phase is Phase.FAILED else ConditionType.RECONCILING
    assert (world.status.phase, world.condition(tools).reason) == (phase, reason)


def test_no_round_is_added_if_an_arm_has_failed() -> None:
    world = ClusterWorld(operator_run({"spec.load": LOAD}))
    world.settle()
    world.measure(0)
    world.fail_engine(group=1)
    world.measure(3)
    world.finish_report(following=CELLS)
    assert ADDED not in world.objects
    assert world.status.phase is Phase.SUCCEEDED


def lose_added_plan(world: ClusterWorld) -> None:
    """Somebody deletes the ConfigMaps; the planned one is found again by expanding the spec."""
    world.objects = {key: child for key, child in world.objects.items() if key[0] != "ConfigMap"}
    world.plan_data = {}


@pytest.mark.parametrize("lose", [ClusterWorld.lose_status, lose_added_plan], ids=["status", "plans"])
@pytest.mark.parametrize("groups", range(LAUNCHES + 1))
def test_an_added_round_is_kept_and_measured_once_whatever_is_lost(
    lose: Callable[[ClusterWorld], None], groups: int
) -> None:
    """Lost after so many groups of the round were measured."""
    world = retried()
    grown = world.plan
    for group in grown.groups[LAUNCHES : LAUNCHES + groups]:
        world.measure(group.index)
    lose(world)
    world.settle()
    assert world.plan == grown
    assert world.status.points.total == 12
    for group in grown.groups[LAUNCHES + groups :]:
        world.measure(group.index)
    world.finish_report(following=CELLS)
    assert (world.status.phase, world.status.progress) == (Phase.SUCCEEDED, "12/12")


def test_the_engine_of_an_added_round_goes_on_while_its_plan_is_lost_and_the_store_is_away() -> None:
    """What the round measures is known again as soon as the store can be read."""
    world = retried()
    world.serve(LAUNCHES)
    before, grown = world.status, world.plan
    lose_added_plan(world)
    world.trouble = AWAY
    decision = world.reconcile()
    assert (decision.stop, decision.delete, decision.apply, world.status) == ((), (), (), before)
    assert decision.requeue_after_s
    world.trouble = None
    assert [item["metadata"]["name"] for item in world.reconcile().apply] == [plan_name("demo", 1)]
    assert world.plan == grown
    assert world.engine(LAUNCHES) in world.jobs


def test_a_run_that_was_suspended_meanwhile_launches_nothing() -> None:
    world = measured()
    world.run["spec"]["suspend"] = True
    world.finish_report(following=CELLS)
    assert (world.status.phase, world.launched) == (Phase.SUSPENDED, [f"demo-g{index}-0" for index in range(LAUNCHES)])
    world.suspend(suspend=False)
    assert world.launched[LAUNCHES:] == ["demo-g4-0"]


def adopting(results: ClusterWorld, retries: int) -> ClusterWorld:
    """A run of the same name that adopts these results."""
    adopted = {"spec.load": LOAD, "spec.results.adopt": results.plan.uid, "spec.retries": retries}
    world = ClusterWorld(operator_run(adopted))
    world.run["metadata"]["uid"] = OLDER_UID
    world.measured, world.results, world.plan_there = results.measured, results.results, results.plan.to_json()
    world.settle()
    return world


def test_the_results_of_a_finished_run_are_adopted_to_measure_its_spoiled_round_again() -> None:
    """Nothing that is stored is measured or reported again."""
    finished = measured({"spec.retries": 0})
    finished.finish_report(following=CELLS)
    assert finished.status.phase is Phase.SUCCEEDED
    assert adopting(finished, 0).status.phase is Phase.SUCCEEDED
    world = adopting(finished, 1)
    assert (world.launched, len(world.plan.points)) == (["demo-g4-0"], 12)
    assert world.report not in world.jobs


@pytest.mark.parametrize("reported", [True, False])
def test_the_rounds_of_adopted_results_are_kept(*, reported: bool) -> None:
    finished = retried()
    measure_added_round(finished, LAUNCHES)
    finished.finish_report(following=CELLS)
    if not reported:
        finished.results = None
    one, two = adopting(finished, 1), adopting(finished, 2)
    assert (one.launched, one.plan.added_rounds) == ([], 1)
    assert one.status.phase is (Phase.SUCCEEDED if reported else Phase.ANALYZING)
    assert (two.launched, two.plan.added_rounds) == ((["demo-g8-0"], 2) if reported else ([], 1))
    none = adopting(finished, 0)
    assert (none.status.phase, none.launched) == (Phase.INVALID, [])
    assert "spec.retries" in none.condition(ConditionType.VALIDATED).message
