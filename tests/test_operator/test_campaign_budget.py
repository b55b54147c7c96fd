"""The budget of a campaign: estimate, spending, and what happens when it is exhausted."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignPhase
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.campaign.view import FIGURE_AGE_MAX_S, Spending, forecast_gpu_hours
from specbench_operator.errors import Changed
from specbench_operator.state.campaign import ObservedRun
from specbench_operator.state.conditions import yes
from specbench_operator.state.objects import ObjectRef
from specbench_operator.state.timestamps import format_timestamp
from specbench_testing.campaign_world import GPUS, CampaignWorld, has_ended, holds_gpus
from specbench_testing.fake_api import OperatorKilled
from specbench_testing.operator_builders import NOON

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
        if run["spec"]["suspend"] and holds_gpus(run):
            world.release(name)


def with_exhausted_budget() -> CampaignWorld:
    """A campaign whose six runs were suspended after an hour and have released their GPUs."""
    world = with_budget(6)
    launch_all(world)
    world.pass_time(HOUR)
    world.reconcile()
    release_suspended(world)
    world.settle()
    return world


def test_without_a_budget_spending_is_reported_but_not_limited() -> None:
    world = CampaignWorld({"spec.parallelism": 6})
    launch_all(world)
    world.pass_time(HOUR)
    world.finish_all()
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED) == (FALSE, "NoBudget")
    assert world.status.gpu_hours_spent == 6 * GPUS
    assert world.status.budget == "12.0 GPU-hours"


@pytest.mark.parametrize(
    ("rate", "limit", "wait_s"),
    [
        (2, 120, 10),
        (2, 160, 30),
        (2, 161, 30),
        (2, 102, 1),
        (2, 101, 1),
        (2, 100, None),
        (2, 99, None),
        (0, 120, None),
        (2, None, None),
    ],
)
def test_a_campaign_is_looked_at_again_when_its_budget_may_be_exhausted(
    rate: float, limit: float | None, wait_s: float | None
) -> None:
    assert Spending({"a": 60}, 30, 10, rate, limit).requeue_after_s == wait_s


def observed(name: str, *, gpus: int, measured: int, seconds: float, launch: bool = True, over: bool = False) -> Any:
    ready = {"Ready": yes("Finished")} if over else {}
    return ObservedRun(
        ObjectRef("SpecBenchRun", name, name), "1", 1, NOON, conditions=ready, gpus=gpus, measured=measured,
        gpu_seconds=seconds, launch_measured=launch,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "hours"),
    [
        ([], None),
        ([observed("a", gpus=1, measured=2, seconds=7200, launch=False)], None),
        ([observed("a", gpus=1, measured=2, seconds=0)], None),
        ([observed("a", gpus=0, measured=2, seconds=7200)], None),
        # Two of a's four points took an hour each on one GPU: two remain, and four of b, which has two GPUs.
        ([observed("a", gpus=1, measured=2, seconds=7200)], 2 + 2 + 4 * 2),
        ([observed("a", gpus=1, measured=2, seconds=7200, over=True)], 2 + 4 * 2),
        ([observed("a", gpus=1, measured=2, seconds=7200), observed("b", gpus=2, measured=1, seconds=0)], 2 + 2 + 6),
        (
            [observed("a", gpus=1, measured=2, seconds=7200), observed("b", gpus=2, measured=1, seconds=3600)],
            3 + 8 * 0.75,
        ),
    ],
)
def test_the_hours_of_a_round_are_those_spent_and_as_many_for_each_remaining_point(
    runs: list[Any], hours: float | None
) -> None:
    planned = [SimpleNamespace(name=name, points=4, gpus=gpus) for name, gpus in (("a", 1), ("b", 2))]
    spending = Spending({run.name: run.gpu_seconds for run in runs}, 0, 0, 0, None)
    view: Any = SimpleNamespace(
        existing=runs, own={run.name: run for run in runs}, plan=SimpleNamespace(runs=planned), spending=spending
    )
    assert forecast_gpu_hours(view) == hours


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
    world = with_exhausted_budget()
    world.change("spec.parallelism", 5)
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


def report_gpu_time(world: CampaignWorld, name: str, kept: float) -> None:
    """Rewrite the run's status with this share of the GPU time it has held."""
    uid = world.runs[name]["metadata"]["uid"]
    world.held[uid] = round(world.held.get(uid, 0.0) * kept, 1)
    reported = {"gpuSecondsHeld": world.held[uid], "gpuSecondsUntil": format_timestamp(world.now)} if kept else {}
    world.runs[name]["status"] = {"phase": "Running", **reported}
    world.store.touch(world.runs[name])


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
    world = with_exhausted_budget()
    old = set(world.runs)
    world.change("spec.rerun", "again")
    assert world.status_and_reason(Kind.BUDGET_EXHAUSTED)[0] is FALSE
    assert world.status.gpu_hours_spent == 0
    assert not old & set(world.runs), "unfinished runs of the previous round are deleted"
    world.finish_all()
    assert world.status_and_reason(Kind.READY) == (TRUE, "Finished")


# Any order of events. Which runs may begin, whatever happens, is explored by the campaign's model.


EDITS: dict[str, tuple[str, Any]] = {
    "suspend": ("spec.suspend", True),
    "resume": ("spec.suspend", False),
    "new value": ("spec.axes[1].values", [0, 0.7, 1.0, 1.5]),
    "wider": ("spec.parallelism", 4),
    "narrower": ("spec.parallelism", 1),
}
"""Events that edit a field of the campaign."""
EVENTS = (*EDITS, "launch", "finish", "fail", "delete", "suspend_by_hand", "kill")


def happens(world: CampaignWorld, event: str) -> None:
    """Apply an event: to the campaign, to all of its active runs, or to the first of them."""
    active = [name for name, run in world.owned_runs.items() if not has_ended(run) and not run["spec"]["suspend"]]
    if event in EDITS:
        world.edit(*EDITS[event])
    elif event == "kill":
        world.store.kill_after(0)
    elif event == "launch":
        for name in active:
            if not holds_gpus(world.runs[name]):
                world.launch(name)
    elif active:
        getattr(world, event)(active[0])


def pass_half_a_minute(world: CampaignWorld) -> None:
    """Reconcile once after 30 s; the run controller suspends runs immediately."""
    for wait_s in (0, 30):
        world.pass_time(wait_s)
        with suppress(Changed, OperatorKilled):
            world.reconcile()
        world.store.restart()
        release_suspended(world)
    assert sum(world.status_and_reason(kind)[0] is TRUE for kind in (Kind.READY, Kind.RECONCILING, Kind.STALLED)) <= 1


@pytest.mark.draws
@given(st.lists(st.sampled_from(EVENTS), max_size=20))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_round_overdraws_its_budget_by_no_more_than_documented(events: list[str]) -> None:
    world = CampaignWorld({"spec.parallelism": 3, "spec.budget.gpuHours": 0.1})
    for event in (*events, *("launch",) * 8):
        happens(world, event)
        pass_half_a_minute(world)
    widest = 4
    assert sum(world.held.values()) <= 0.1 * 3600 + widest * GPUS * FIGURE_AGE_MAX_S
