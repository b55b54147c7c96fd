"""Edits of a campaign in progress: names are stable, runs are added and removed, and deadlines are propagated."""

from __future__ import annotations

import re

import pytest

from specbench_api.plan.canonical import NOT_MEASURED
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.gate import Gate
from specbench_api.spec.parsing import parse_run
from specbench_api.spec.run import NOTHING_CHANGES, RunSpec
from specbench_operator.campaign.actions import PROPAGATED
from specbench_testing.campaign_world import CampaignWorld

TEMPERATURES = "spec.axes[1].values"


@pytest.fixture
def world() -> CampaignWorld:
    return CampaignWorld({"spec.parallelism": 2})


def test_a_value_that_is_added_adds_runs_and_nothing_else(world: CampaignWorld) -> None:
    world.finish_all()
    before = {name: run["metadata"]["uid"] for name, run in world.runs.items()}
    world.edit(TEMPERATURES, [0, 0.7, 1.0, 1.5])
    world.settle()
    assert world.said(Kind.READY)[0] is ConditionStatus.FALSE
    world.finish_all()
    assert len(world.store.created) == 8
    assert {name: world.runs[name]["metadata"]["uid"] for name in before} == before
    assert world.status.progress == "8/8"
    assert world.status.round is not None
    assert world.status.round.number == 1


def test_axes_in_another_order_change_the_order_and_no_run(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit("spec.axes", list(reversed(world.resource["spec"]["axes"])))
    world.settle()
    assert len(world.store.created) == 6
    assert world.said(Kind.READY) == (ConditionStatus.TRUE, "Finished")


def test_what_is_taken_off_the_matrix_is_deleted_unless_it_has_ended(world: CampaignWorld) -> None:
    first, second = world.planned[:2]
    world.settle()
    world.finish(first)
    world.edit(TEMPERATURES, [1.0])
    world.settle()
    assert first in world.runs, "a record stays"
    assert second not in world.runs, "nobody asks for it any more"
    assert len(world.status.runs) == 3
    row = world.status.runs[-1]
    assert (row.name, row.reason) == (first, "OffTheMatrix")
    assert world.status.counts.total == 2
    world.finish_all()
    assert world.status.progress == "2/2"


def test_a_run_that_is_stalled_without_an_end_and_off_the_matrix_is_deleted(world: CampaignWorld) -> None:
    world.settle()
    name = world.planned[1]
    world.runs[name]["status"] = {"conditions": [{"type": "Stalled", "status": "True", "reason": "BadRequest"}]}
    world.edit(TEMPERATURES, [0])
    world.settle()
    assert name not in world.runs


def test_a_combination_that_comes_back_finds_its_finished_run(world: CampaignWorld) -> None:
    world.finish_all()
    world.edit(TEMPERATURES, [0])
    world.settle()
    world.edit(TEMPERATURES, [0, 0.7, 1.0])
    world.settle()
    assert len(world.store.created) == 6
    assert world.status.progress == "6/6"


def test_a_template_that_measures_something_else_asks_for_other_runs(world: CampaignWorld) -> None:
    world.settle()
    old = set(world.runs)
    world.edit("spec.template.spec.load.repeats", 7)
    world.settle()
    assert not old & set(world.runs)
    world.finish_all()
    assert len(world.runs) == 6
    assert all(run["spec"]["load"]["repeats"] == 7 for run in world.runs.values())


@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "startupDeadlineSeconds", "ttlSecondsAfterFinished"])
def test_deadlines_are_taken_over_by_runs_that_are_there(world: CampaignWorld, field: str) -> None:
    world.settle()
    uids = [run["metadata"]["uid"] for run in world.runs.values()]
    world.edit(f"spec.template.spec.{field}", 4321)
    world.settle()
    assert [run["spec"][field] for run in world.runs.values()] == [4321, 4321]
    assert [run["metadata"]["uid"] for run in world.runs.values()] == uids


@pytest.mark.parametrize(
    "after",
    [
        {"baselineRef": {"campaign": "nightly"}, "confidence": 0.9},
        {"baselineRef": {"uri": "s3://results/runs/default/main/0001"}},
        None,
    ],
    ids=["another way to name it", "an address", "none"],
)
def test_a_gate_is_taken_over_whole_and_nothing_of_the_one_before_stays(after: dict[str, object] | None) -> None:
    world = CampaignWorld({"spec.parallelism": 2, "spec.template.spec.gate": {"baselineRef": {"run": "main"}}})
    world.settle()
    world.edit("spec.template.spec.gate", after)
    world.settle()
    told = [parse_run(run).spec.gate for run in world.runs.values()]
    assert told == [Gate.model_validate(after) if after else None] * 2


def test_whatever_may_change_under_a_run_is_in_no_name_and_is_taken_over() -> None:
    fixed = set(re.findall(r"self\.(\w+) == oldSelf", NOTHING_CHANGES.rule))
    changeable = {str(field.alias) for field in RunSpec.model_fields.values()} - fixed
    assert "activeDeadlineSeconds" in changeable
    assert changeable <= set(NOT_MEASURED)
    assert changeable - {"suspend"} <= set(PROPAGATED)
    assert not fixed & set(PROPAGATED)


def test_where_results_go_changes_for_runs_to_come_alone(world: CampaignWorld) -> None:
    world.settle()
    world.edit("spec.template.spec.results.s3.bucket", "elsewhere")
    world.edit("spec.template.spec.placement.tolerations", [{"key": "gpu", "operator": "Exists"}])
    world.settle()
    first, second = world.planned[:2]
    assert world.runs[first]["spec"]["results"]["s3"]["bucket"] == "results"
    world.finish(first)
    world.finish(second)
    world.settle()
    third = world.runs[world.planned[2]]["spec"]
    assert third["results"]["s3"]["bucket"] == "elsewhere"
    assert len(third["placement"]["tolerations"]) == 1


def test_a_run_whose_deadline_somebody_changed_by_hand_follows_the_template_again(world: CampaignWorld) -> None:
    world.settle()
    run = world.runs[world.planned[0]]
    run["spec"]["activeDeadlineSeconds"] = 60
    world.store.touch(run)
    world.settle()
    assert world.runs[world.planned[0]]["spec"]["activeDeadlineSeconds"] == 14_400
