"""The budget of a campaign: estimate, spending, and what happens when it is exhausted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.campaign_world import GPUS, CampaignWorld

TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE
HOUR = 3600


def with_budget(hours: float, **edits: object) -> CampaignWorld:
    return CampaignWorld({"spec.budget.gpuHours": hours, "spec.parallelism": 6, **edits})


def at_work(world: CampaignWorld) -> None:
    world.settle()
    for name in world.planned:
        world.launch(name)


def obey(world: CampaignWorld) -> None:
    """The runs' operator sees which of them are suspended."""
    for name, run in world.runs.items():
        if run["spec"]["suspend"] and run["status"]["phase"] == "Running":
            world.release(name)


def test_without_a_budget_nothing_is_bounded_and_what_is_spent_is_told() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    at_work(world)
    world.pass_time(HOUR)
    world.finish_all()
    assert world.said(Kind.BUDGET_EXHAUSTED) == (FALSE, "NoBudget")
    assert world.status.gpu_hours_spent == 6 * GPUS
    assert world.status.budget == "12.0 GPU-hours"


@pytest.mark.parametrize(("hours", "reason"), [(1000, "WithinBudget"), (0.5, "EstimateOverBudget")])
def test_the_estimate_is_compared_with_the_budget_before_anything_is_spent(hours: float, reason: str) -> None:
    world = with_budget(hours)
    world.settle()
    assert world.said(Kind.BUDGET_EXHAUSTED) == (FALSE, reason)
    assert world.status.gpu_hours_estimated is not None
    assert f"{world.status.gpu_hours_estimated:g}" in world.message(Kind.BUDGET_EXHAUSTED)
    assert (reason in world.events) is (reason == "EstimateOverBudget")


def test_a_spent_budget_suspends_what_is_at_work_and_begins_nothing() -> None:
    world = with_budget(6, **{"spec.parallelism": 3})
    at_work_of_three = world.planned[:3]
    world.settle()
    for name in at_work_of_three:
        world.launch(name)
    world.finish(at_work_of_three[0])
    world.pass_time(1.6 * HOUR)
    world.look()
    assert world.said(Kind.BUDGET_EXHAUSTED) == (TRUE, "BudgetExhausted")
    assert world.said(Kind.RECONCILING) == (TRUE, "BudgetExhausted"), "two give their GPUs back"
    obey(world)
    world.settle()
    assert world.said(Kind.STALLED) == (TRUE, "BudgetExhausted")
    assert world.said(Kind.READY)[0] is FALSE
    assert world.status.phase is CampaignPhase.FAILED
    assert world.events.count("BudgetExhausted") == 1
    assert len(world.store.created) == 3
    assert [run["spec"]["suspend"] for run in world.runs.values()] == [False, True, True]


def test_a_larger_budget_goes_on_where_the_campaign_stood() -> None:
    world = with_budget(6)
    at_work(world)
    world.pass_time(HOUR)
    world.look()
    obey(world)
    world.settle()
    world.edit("spec.parallelism", 5)
    world.settle()
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is TRUE, "more places are no more money"
    world.edit("spec.budget.gpuHours", 100)
    world.finish_all()
    assert world.said(Kind.READY) == (TRUE, "Finished")
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert len(world.store.created) == 6


def test_a_campaign_that_ends_with_its_last_gpu_hour_has_ended() -> None:
    world = with_budget(12)
    at_work(world)
    world.pass_time(HOUR - 30)
    world.look()
    world.pass_time(30)
    for name in world.planned:
        world.finish(name)
    world.settle()
    assert world.said(Kind.READY) == (TRUE, "Finished")
    assert world.said(Kind.BUDGET_EXHAUSTED) == (FALSE, "Finished"), "nothing was cut off"
    world.delete(world.planned[0])
    world.settle()
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is TRUE
    assert len(world.store.created) == 6


def test_what_is_held_and_not_told_yet_counts_for_the_stop_and_not_in_status() -> None:
    world = with_budget(2)
    world.settle()
    name = world.planned[0]
    world.launch(name)
    run = world.runs[name]
    world.store.now += timedelta(seconds=HOUR - 10)
    run["status"] |= {"gpuSecondsHeld": float(GPUS * (HOUR - 30)), "gpuSecondsUntil": format_timestamp(world.now)}
    world.store.touch(run)
    world.settle()
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert world.requeue_after_s == pytest.approx(30), "that is all it can last"
    version = world.resource["metadata"]["resourceVersion"]
    world.store.now += timedelta(seconds=29)
    world.look()
    assert world.resource["metadata"]["resourceVersion"] == version
    world.store.now += timedelta(seconds=1)
    world.look()
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is TRUE


def test_a_run_whose_figure_stands_still_is_not_taken_to_hold_for_ever() -> None:
    world = with_budget(2)
    world.settle()
    world.launch(world.planned[0])
    world.store.now += timedelta(hours=10)
    world.look()
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is FALSE


def test_once_spent_it_stays_spent_though_a_run_gave_back_earlier_than_estimated() -> None:
    world = with_budget(2)
    world.settle()
    name = world.planned[0]
    world.launch(name)
    run = world.runs[name]
    run["status"]["gpuSecondsHeld"] = float(2 * HOUR - 60)
    world.store.touch(run)
    world.store.now += timedelta(seconds=40)
    world.look()
    assert world.runs[name]["spec"]["suspend"]
    run["status"] |= {"phase": "Suspended", "gpuSecondsHeld": float(2 * HOUR - 50)}
    world.store.touch(run)
    world.settle()
    assert world.said(Kind.STALLED) == (TRUE, "BudgetExhausted")
    assert world.runs[name]["spec"]["suspend"]


def test_what_deleted_runs_held_stays_spent() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    at_work(world)
    world.pass_time(HOUR)
    world.settle()
    world.delete(world.planned[0])
    world.settle()
    assert world.status.gpu_hours_spent == 6 * GPUS
    assert world.status.gpu_seconds_deleted == GPUS * HOUR
    world.launch(world.planned[0])
    world.pass_time(HOUR)
    world.settle()
    assert world.status.gpu_hours_spent == 12 * GPUS


def tell_again(world: CampaignWorld, name: str, kept: float) -> None:
    """The run's operator counts what it finds of the run's pods: this share of what they held."""
    uid = world.runs[name]["metadata"]["uid"]
    world.held[uid] = round(world.held.get(uid, 0.0) * kept, 1)
    told = {"gpuSecondsHeld": world.held[uid], "gpuSecondsUntil": format_timestamp(world.now)} if kept else {}
    world.runs[name]["status"] = {"phase": "Running", **told}
    world.store.touch(world.runs[name])


@pytest.mark.parametrize("kept", [1, 0.25, 0], ids=["all its pods", "some", "none"])
@pytest.mark.parametrize("seen_empty", [True, False], ids=["seen empty", "not seen empty"])
def test_what_a_run_held_counts_once_when_its_status_is_lost(kept: float, seen_empty: bool) -> None:
    world = CampaignWorld({"spec.parallelism": 1})
    world.settle()
    name = world.planned[0]
    world.launch(name)
    world.pass_time(HOUR)
    world.settle()
    world.runs[name].pop("status")
    if seen_empty:
        world.settle()
        assert world.status.gpu_hours_spent == GPUS, "it is not forgotten before it is told again"
        world.runs[name]["status"] = {"phase": "Invalid"}
        world.store.touch(world.runs[name])
        world.settle()
        assert world.status.gpu_hours_spent == GPUS, "what refuses a run counts nothing"
    tell_again(world, name, kept)
    world.settle()
    assert world.status.gpu_hours_spent == GPUS
    tell_again(world, name, 1)
    world.pass_time(HOUR)
    world.settle()
    assert world.status.gpu_hours_spent == 2 * GPUS
    assert world.status.gpu_seconds_deleted == (1 - kept) * GPUS * HOUR


STEPS = st.one_of(
    st.tuples(st.just("hold"), st.sampled_from([60, 1800, 7200])),
    st.tuples(st.just("lose"), st.sampled_from([0, 0.25, 0.5, 1])),
    st.tuples(st.just("lose, seen"), st.sampled_from([0, 0.25, 0.5, 1])),
    st.tuples(st.just("make again"), st.just(0)),
)


@given(st.lists(STEPS, max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_is_lost_and_made_again_what_was_held_counts_once(steps: list[tuple[str, float]]) -> None:
    world = CampaignWorld({"spec.parallelism": 1})
    world.settle()
    name, truth = world.planned[0], 0.0
    world.launch(name)
    for what, amount in steps:
        if what == "hold":
            tell_again(world, name, 1)
            world.pass_time(amount)
            truth += GPUS * amount
        elif what == "make again":
            world.delete(name)
            world.look()
            world.launch(name)
        else:
            world.runs[name].pop("status")
            if what == "lose, seen":
                world.look()
            tell_again(world, name, amount)
        world.look()
        assert world.status.gpu_hours_spent == pytest.approx(truth / HOUR, abs=0.002)


def test_a_new_round_has_a_budget_of_its_own() -> None:
    world = with_budget(6)
    at_work(world)
    world.pass_time(HOUR)
    world.look()
    obey(world)
    world.settle()
    old = set(world.runs)
    world.edit("spec.rerun", "again")
    world.settle()
    assert world.said(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert world.status.gpu_hours_spent == 0
    assert not old & set(world.runs), "what had not ended of the last round is asked for by nobody"
    world.finish_all()
    assert world.said(Kind.READY) == (TRUE, "Finished")
