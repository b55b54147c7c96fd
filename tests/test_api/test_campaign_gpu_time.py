"""The claim of docs/how-to/campaigns.md: a campaign holds GPUs for at most 1.05 times its loads and measured work.

The durations are random, with the ranges below. A test also shows where the claim stops holding.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from specbench_api.campaign.expansion import expand_campaign
from specbench_api.plan.plan import EngineGroup, Plan
from specbench_testing.campaigns import campaign_of
from specbench_testing.gpu_time import GpuTime, LaunchTimes, gpu_time

DRAWS = 200
CLAIM = 1.05
READINESS_PROBE_S = (0.0, 2.0)
"""The probe runs every two seconds."""
CLIENT_START_S = (2.0, 8.0)
"""Schedule the pod (its image is already on the node) and import the Python libraries."""
FIRST_COMPLETION_S = (0.2, 3.0)
BETWEEN_POINTS_S = (0.1, 1.0)
CLIENT_END_S = (0.5, 3.0)
OPERATOR_S = (0.1, 2.0)
ENGINE_END_S = (0.5, 5.0)
"""The engine is killed after five seconds."""


def random_times(rng: random.Random, load_s: tuple[float, float], point_s: float) -> Callable[..., LaunchTimes]:
    """Random durations of each launch: uniform load times, log-normal point times with median `point_s`."""

    def times(_: Plan, group: EngineGroup) -> LaunchTimes:
        return LaunchTimes(
            load_s=rng.uniform(*load_s),
            hand_over_s=sum(rng.uniform(*each) for each in (READINESS_PROBE_S, CLIENT_START_S, FIRST_COMPLETION_S)),
            points_s=[rng.lognormvariate(math.log(point_s), 0.5) for _ in group.points],
            between_s=rng.uniform(*BETWEEN_POINTS_S),
            release_s=sum(rng.uniform(*each) for each in (CLIENT_END_S, OPERATOR_S, ENGINE_END_S)),
        )

    return times


def plans(order: str, levels: int) -> list[Plan]:
    """Plans of the test campaign: two engines at three temperatures, two arms, three repeats."""
    edits = {
        "spec.template.spec.load": {"concurrency": [2**n for n in range(levels)], "repeats": 3, "order": order},
        "spec.template.spec.placement": {"gpus": 4},
    }
    return [run.plan for run in expand_campaign(campaign_of(edits)).runs]


def ratios(order: str, levels: int, load_s: tuple[float, float], point_s: float) -> list[float]:
    run_plans = plans(order, levels)
    found = [gpu_time(run_plans, random_times(random.Random(seed), load_s, point_s)).ratio for seed in range(DRAWS)]
    return [ratio for ratio in found if ratio is not None]


@pytest.mark.parametrize(
    ("order", "levels", "load_s", "point_s"),
    [
        ("Sequential", 4, (20, 60), 60),
        ("Sequential", 4, (60, 600), 60),
        ("Interleaved", 4, (60, 300), 120),
        ("Interleaved", 8, (60, 600), 60),
    ],
)
def test_a_campaign_holds_gpus_for_at_most_five_percent_longer_than_it_uses_them(
    order: str, levels: int, load_s: tuple[float, float], point_s: float
) -> None:
    found = ratios(order, levels, load_s, point_s)
    assert len(found) == DRAWS
    assert max(found) <= CLAIM


def test_the_ratio_exceeds_the_claim_when_a_launch_measures_one_short_point() -> None:
    """Interleaved order with one load level: each launch measures a single point of one minute."""
    assert min(ratios("Interleaved", 1, (20, 60), 60)) > CLAIM


def test_gpu_time_sums_every_launch_times_its_gpus() -> None:
    run_plans = plans("Sequential", 1)
    launches = sum(len(plan.groups) for plan in run_plans)
    total = gpu_time(run_plans, lambda _plan, _group: LaunchTimes(60, 5, [30, 30, 30], 1, 4))
    assert total == GpuTime(used=launches * 4 * 150, held=launches * 4 * (150 + 5 + 2 + 4))
    assert total.ratio == pytest.approx(161 / 150)


def test_the_ratio_is_none_without_gpus() -> None:
    assert gpu_time([], lambda _plan, _group: LaunchTimes(1, 1, [1], 1, 1)).ratio is None
