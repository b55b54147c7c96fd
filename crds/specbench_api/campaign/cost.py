"""The cost of a campaign before it is run, in GPU-hours, from known and from assumed durations.

    engine seconds of a run = launches × launchSeconds + Σ over its points of (the load's own seconds, or pointSeconds)
    GPU-hours               = Σ over runs of engine seconds × the run's GPUs / 3600

Measured points, and launches whose points are all measured, cost nothing. The duration of a point is known if its load
ends by time, or by a rate and a number of conversations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from specbench_api.plan.estimate import point_seconds
from specbench_api.plan.plan import Plan
from specbench_api.spec.campaign import Budget

SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class CampaignCost:
    """Remaining cost. `points_assumed`: number of points whose duration is assumed to be pointSeconds."""

    launches: int = 0
    points: int = 0
    points_assumed: int = 0
    engine_seconds: float = 0
    gpu_hours: float = 0

    def __add__(self, other: CampaignCost) -> CampaignCost:
        """Return the sum of both."""
        return CampaignCost(
            self.launches + other.launches,
            self.points + other.points,
            self.points_assumed + other.points_assumed,
            self.engine_seconds + other.engine_seconds,
            self.gpu_hours + other.gpu_hours,
        )


def cost_of_run(
    plan: Plan,
    budget: Budget,
    measured: Iterable[str] = (),
    turns: Mapping[str, Sequence[int]] | None = None,
) -> CampaignCost:
    """Return the remaining cost of one run.

    `measured`: hashes of the points that are already measured. `turns`: as in `plan.estimate.estimate`.
    """
    finished, known = set(measured), turns or {}
    open_groups = [[point for point in group.points if point.hash not in finished] for group in plan.groups]
    points = [point for group in open_groups for point in group]
    durations = [point_seconds(plan.load, point.level, known.get(point.workload)) for point in points]
    launches = sum(bool(group) for group in open_groups)
    load_seconds = sum(budget.point_seconds if each is None else each for each in durations)
    seconds = launches * budget.launch_seconds + load_seconds
    return CampaignCost(
        launches=launches,
        points=len(points),
        points_assumed=durations.count(None),
        engine_seconds=seconds,
        gpu_hours=seconds * plan.placement.engine_devices / SECONDS_AN_HOUR,
    )


def total(costs: Iterable[CampaignCost]) -> CampaignCost:
    """Return the sum over all runs."""
    return reduce(CampaignCost.__add__, costs, CampaignCost())


def over_budget(cost: CampaignCost, budget: Budget) -> float | None:
    """Return by how many GPU-hours the cost exceeds the budget; None if it does not, or without a budget."""
    if budget.gpu_hours is None or cost.gpu_hours <= budget.gpu_hours:
        return None
    return cost.gpu_hours - budget.gpu_hours
