"""The cost of a campaign: known and assumed durations; measured points cost nothing."""

from __future__ import annotations

from typing import Any

import pytest

from specbench_api.plan.estimate import CampaignCost, cost_of_run, over_budget, total
from specbench_api.plan.expansion import expand
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import Budget
from specbench_testing.resources import run_of

BUDGET = Budget(launch_seconds=100, point_seconds=10)


def plan(load: dict[str, Any], gpus: int = 2) -> Plan:
    return expand(run_of({"spec.load": load, "spec.placement": {"gpus": gpus}}))


CLOSED = {"concurrency": [1, 8], "repeats": 1}


def test_launches_and_points_of_unknown_duration_cost_the_assumed_durations() -> None:
    cost = cost_of_run(plan(CLOSED), BUDGET)
    assert cost == CampaignCost(launches=2, points=4, points_assumed=4, engine_seconds=240, gpu_hours=2 * 240 / 3600)


@pytest.mark.parametrize(
    ("load", "seconds"),
    [
        ({**CLOSED, "durationSeconds": 60}, 200 + 4 * 60),
        ({"rate": [2], "slots": 4, "repeats": 1, "requests": 50}, 200 + 2 * 25),
        ({"rate": [2], "slots": 4, "repeats": 1}, 200 + 2 * 10),
    ],
    ids=str,
)
def test_a_duration_derived_from_the_load_replaces_the_assumed_one(load: dict[str, Any], seconds: float) -> None:
    assert cost_of_run(plan(load), BUDGET).engine_seconds == seconds


def test_the_number_of_prompts_and_the_rate_determine_the_duration() -> None:
    load = {"rate": [2], "slots": 4, "repeats": 1}
    cost = cost_of_run(plan(load), BUDGET, turns={"chat": [1] * 80})
    assert (cost.engine_seconds, cost.points_assumed) == (200 + 2 * 40, 0)


def test_measured_points_and_launches_without_remaining_points_cost_nothing() -> None:
    planned = plan(CLOSED)
    first = planned.groups[0]
    assert cost_of_run(planned, BUDGET, [first.points[0].hash]).engine_seconds == 230
    assert cost_of_run(planned, BUDGET, [point.hash for point in first.points]).launches == 1
    assert cost_of_run(planned, BUDGET, [point.hash for point in planned.points]) == CampaignCost()


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        ({"gpus": 8, "nodes": 4}, 32),
        ({"claimedGpus": 4, "resourceClaimTemplateName": "four", "nodes": 2}, 8),
    ],
)
def test_gpu_hours_count_all_nodes_for_gpus_and_for_claimed_gpus(placement: dict[str, Any], gpus: int) -> None:
    planned = expand(run_of({"spec.load": CLOSED, "spec.placement": placement}))
    assert cost_of_run(planned, BUDGET).gpu_hours == pytest.approx(gpus * 240 / 3600)


def test_a_run_without_gpus_has_engine_seconds_but_no_gpu_hours() -> None:
    cost = cost_of_run(plan(CLOSED, gpus=0), BUDGET)
    assert (cost.engine_seconds, cost.gpu_hours) == (240, 0)


def test_total_adds_up_runs_and_over_budget_returns_the_excess_or_none() -> None:
    one = cost_of_run(plan(CLOSED), BUDGET)
    both = total([one, one])
    assert (both.launches, both.points, both.points_assumed, both.engine_seconds) == (4, 8, 8, 480)
    assert both.gpu_hours == pytest.approx(2 * one.gpu_hours)
    assert over_budget(both, BUDGET) is None
    assert over_budget(both, Budget(gpu_hours=both.gpu_hours)) is None
    assert over_budget(both, Budget(gpu_hours=0.1)) == pytest.approx(both.gpu_hours - 0.1)
    assert total([]) == CampaignCost()
