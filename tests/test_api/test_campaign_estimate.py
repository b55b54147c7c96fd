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


def test_launches_and_points_of_unknown_length_cost_what_is_assumed() -> None:
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
def test_a_load_that_says_how_long_it_takes_is_believed(load: dict[str, Any], seconds: float) -> None:
    assert cost_of_run(plan(load), BUDGET).engine_seconds == seconds


def test_prompts_that_could_be_read_tell_how_long_a_rate_takes() -> None:
    load = {"rate": [2], "slots": 4, "repeats": 1}
    cost = cost_of_run(plan(load), BUDGET, turns={"chat": [1] * 80})
    assert (cost.engine_seconds, cost.points_assumed) == (200 + 2 * 40, 0)


def test_what_is_measured_costs_nothing_and_neither_does_a_launch_without_anything_left() -> None:
    wanted = plan(CLOSED)
    first = wanted.groups[0]
    assert cost_of_run(wanted, BUDGET, [first.points[0].hash]).engine_seconds == 230
    assert cost_of_run(wanted, BUDGET, [point.hash for point in first.points]).launches == 1
    assert cost_of_run(wanted, BUDGET, [point.hash for point in wanted.points]) == CampaignCost()


@pytest.mark.parametrize(
    ("placement", "gpus"),
    [
        ({"gpus": 8, "nodes": 4}, 32),
        ({"claimedGpus": 4, "resourceClaimTemplateName": "four", "nodes": 2}, 8),
    ],
)
def test_gpu_hours_are_those_of_all_nodes_however_gpus_are_given(placement: dict[str, Any], gpus: int) -> None:
    planned = expand(run_of({"spec.load": CLOSED, "spec.placement": placement}))
    assert cost_of_run(planned, BUDGET).gpu_hours == pytest.approx(gpus * 240 / 3600)


def test_a_run_without_gpus_takes_time_and_no_gpu_hours() -> None:
    cost = cost_of_run(plan(CLOSED, gpus=0), BUDGET)
    assert (cost.engine_seconds, cost.gpu_hours) == (240, 0)


def test_runs_add_up_and_the_budget_is_told_only_where_it_is_exceeded() -> None:
    one = cost_of_run(plan(CLOSED), BUDGET)
    both = total([one, one])
    assert (both.launches, both.points, both.points_assumed, both.engine_seconds) == (4, 8, 8, 480)
    assert both.gpu_hours == pytest.approx(2 * one.gpu_hours)
    assert over_budget(both, BUDGET) is None
    assert over_budget(both, Budget(gpu_hours=both.gpu_hours)) is None
    assert over_budget(both, Budget(gpu_hours=0.1)) == pytest.approx(both.gpu_hours - 0.1)
    assert total([]) == CampaignCost()
