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


def launch_all(world: CampaignWorld) -> None:
    world.settle()
    for name in world.planned:
        world.launch(name)


def release_suspended(world: CampaignWorld) -> None:
    """Release the GPUs of suspended runs, as the run controller does."""
    for name, run in world.runs.items():
        if run["spec"]["suspend"] and run["status"]["phase"] == "Running":
            world.release(name)


def test_without_a_budget_spending_is_reported_but_not_limited() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    launch_all(world)
    world.pass_time(HOUR)
    world.finish_all()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED) == (FALSE, "NoBudget")
    assert world.status.gpu_hours_spent == 6 * GPUS
    assert world.status.budget == "12.0 GPU-hours"


@pytest.mark.parametrize(("hours", "reason"), [(12, "WithinBudget"), (11.9, "EstimateOverBudget")])
def test_the_hours_of_a_round_are_estimated_once_a_launch_was_measured(hours: float, reason: str) -> None:
    world = with_budget(hours, **{"spec.parallelism": 1})
    world.settle()
    first = world.planned[0]
    world.launch(first)
    world.pass_time(HOUR)
    world.settle()
    assert world.status.gpu_hours_estimated is None
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED) == (FALSE, "WithinBudget")
    world.finish(first)
    world.settle()
    assert world.status.gpu_hours_estimated == 6 * GPUS
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED) == (FALSE, reason)


def test_a_run_that_held_no_gpus_does_not_count_for_the_estimate() -> None:
    """All its points are those of adopted results."""
    world = with_budget(100)
    world.settle()
    world.finish(world.planned[0])
    world.settle()
    assert world.status.gpu_hours_estimated is None


def test_an_exhausted_budget_suspends_active_runs_and_creates_no_more() -> None:
    world = with_budget(6, **{"spec.parallelism": 3})
    active = world.planned[:3]
    world.settle()
    for name in active:
        world.launch(name)
    world.finish(active[0])
    world.pass_time(1.6 * HOUR)
    world.reconcile()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED) == (TRUE, "BudgetExhausted")
    assert world.status_and_reason(Kind.RECONCILING) == (TRUE, "BudgetExhausted"), "two runs still hold GPUs"
    release_suspended(world)
    world.settle()
    assert world.status_and_reason(Kind.STALLED) == (TRUE, "BudgetExhausted")
    assert world.status_and_reason(Kind.READY)[0] is FALSE
    assert world.status.phase is CampaignPhase.FAILED
    assert world.events.count("BudgetExhausted") == 1
    assert len(world.store.created) == 3
    assert [run["spec"]["suspend"] for run in world.runs.values()] == [False, True, True]


def test_raising_the_budget_resumes_the_campaign() -> None:
    world = with_budget(6)
    launch_all(world)
    world.pass_time(HOUR)
    world.reconcile()
    release_suspended(world)
    world.settle()
    world.edit("spec.parallelism", 5)
    world.settle()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is TRUE, "a higher parallelism does not raise the budget"
    world.edit("spec.budget.gpuHours", 100)
    world.finish_all()
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert len(world.store.created) == 6


def test_a_campaign_that_ends_exactly_at_its_budget_succeeds() -> None:
    world = with_budget(12)
    launch_all(world)
    world.pass_time(HOUR - 30)
    world.reconcile()
    world.pass_time(30)
    for name in world.planned:
        world.finish(name)
    world.settle()
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED) == (FALSE, "Finished"), "no run was stopped early"
    world.delete(world.planned[0])
    world.settle()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is TRUE
    assert len(world.store.created) == 6


def test_unreported_gpu_time_counts_towards_the_limit_but_not_in_status() -> None:
    world = with_budget(2)
    world.settle()
    name = world.planned[0]
    world.launch(name)
    run = world.runs[name]
    world.store.now += timedelta(seconds=HOUR - 10)
    run["status"] |= {"gpuSecondsHeld": float(GPUS * (HOUR - 30)), "gpuSecondsUntil": format_timestamp(world.now)}
    world.store.touch(run)
    world.settle()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert world.requeue_after_s == pytest.approx(30), "the remaining budget lasts 30 s"
    version = world.resource["metadata"]["resourceVersion"]
    world.store.now += timedelta(seconds=29)
    world.reconcile()
    assert world.resource["metadata"]["resourceVersion"] == version
    world.store.now += timedelta(seconds=1)
    world.reconcile()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is TRUE


def test_a_run_with_an_outdated_figure_is_not_charged_indefinitely() -> None:
    world = with_budget(2)
    world.settle()
    world.launch(world.planned[0])
    world.store.now += timedelta(hours=10)
    world.reconcile()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is FALSE


def test_an_exhausted_budget_stays_exhausted_when_a_run_held_less_than_estimated() -> None:
    world = with_budget(2)
    world.settle()
    name = world.planned[0]
    world.launch(name)
    run = world.runs[name]
    run["status"]["gpuSecondsHeld"] = float(2 * HOUR - 60)
    world.store.touch(run)
    world.store.now += timedelta(seconds=40)
    world.reconcile()
    assert world.runs[name]["spec"]["suspend"]
    run["status"] |= {"phase": "Suspended", "gpuSecondsHeld": float(2 * HOUR - 50)}
    world.store.touch(run)
    world.settle()
    assert world.status_and_reason(Kind.STALLED) == (TRUE, "BudgetExhausted")
    assert world.runs[name]["spec"]["suspend"]


def test_gpu_time_of_deleted_runs_stays_counted() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    launch_all(world)
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


def report_gpu_time(world: CampaignWorld, name: str, kept: float) -> None:
    """Rewrite the run's status with this share of the GPU time it has held."""
    uid = world.runs[name]["metadata"]["uid"]
    world.held[uid] = round(world.held.get(uid, 0.0) * kept, 1)
    reported = {"gpuSecondsHeld": world.held[uid], "gpuSecondsUntil": format_timestamp(world.now)} if kept else {}
    world.runs[name]["status"] = {"phase": "Running", **reported}
    world.store.touch(world.runs[name])


@pytest.mark.parametrize("kept", [1, 0.25, 0], ids=["all its pods", "some", "none"])
@pytest.mark.parametrize("seen_empty", [True, False], ids=["seen empty", "not seen empty"])
def test_gpu_time_counts_once_when_a_run_loses_its_status(kept: float, seen_empty: bool) -> None:
    world = CampaignWorld({"spec.parallelism": 1})
    world.settle()
    name = world.planned[0]
    world.launch(name)
    world.pass_time(HOUR)
    world.settle()
    world.runs[name].pop("status")
    if seen_empty:
        world.settle()
        assert world.status.gpu_hours_spent == GPUS, "spent time is kept until it is reported again"
        world.runs[name]["status"] = {"phase": "Invalid"}
        world.store.touch(world.runs[name])
        world.settle()
        assert world.status.gpu_hours_spent == GPUS, "an invalid run adds nothing"
    report_gpu_time(world, name, kept)
    world.settle()
    assert world.status.gpu_hours_spent == GPUS
    report_gpu_time(world, name, 1)
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


@pytest.mark.draws
@given(st.lists(STEPS, max_size=12))
@settings(max_examples=60, deadline=None)
def test_gpu_time_counts_once_after_any_loss_and_recreation(steps: list[tuple[str, float]]) -> None:
    world = CampaignWorld({"spec.parallelism": 1})
    world.settle()
    name, truth = world.planned[0], 0.0
    world.launch(name)
    for step, amount in steps:
        if step == "hold":
            report_gpu_time(world, name, 1)
            world.pass_time(amount)
            truth += GPUS * amount
        elif step == "make again":
            world.delete(name)
            world.reconcile()
            world.launch(name)
        else:
            world.runs[name].pop("status")
            if step == "lose, seen":
                world.reconcile()
            report_gpu_time(world, name, amount)
        world.reconcile()
        assert world.status.gpu_hours_spent == pytest.approx(truth / HOUR, abs=0.002)


def test_a_new_round_has_its_own_budget() -> None:
    world = with_budget(6)
    launch_all(world)
    world.pass_time(HOUR)
    world.reconcile()
    release_suspended(world)
    world.settle()
    old = set(world.runs)
    world.edit("spec.rerun", "again")
    world.settle()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert world.status.gpu_hours_spent == 0
    assert not old & set(world.runs), "unfinished runs of the previous round are deleted"
    world.finish_all()
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")
