"""What a campaign will cost, before it is paid for: GPU-hours, from what is known and from what is assumed.

    engine seconds of a run = launches × launchSeconds + Σ over its points of (the load's own seconds, or pointSeconds)
    GPU-hours               = Σ over runs of engine seconds × the run's GPUs / 3600

Only what is still to be done is counted: points that are measured already, and launches all of whose points are, cost
nothing. A point's own seconds are known where its load ends by time, or by a rate and a number of conversations.
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
class Cost:
    """What is to be paid. `points_assumed`: of the points, those of which only pointSeconds is known."""

    launches: int = 0
    points: int = 0
    points_assumed: int = 0
    engine_seconds: float = 0
    gpu_hours: float = 0

    def __add__(self, other: Cost) -> Cost:
        """Both."""
        return Cost(
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
) -> Cost:
    """Of one run. `measured`: hashes of points that are there; `turns`: as in `plan.estimate.estimate`."""
    there, known = set(measured), turns or {}
    open_groups = [[point for point in group.points if point.hash not in there] for group in plan.groups]
    points = [point for group in open_groups for point in group]
    told = [point_seconds(plan.load, point.level, known.get(point.workload)) for point in points]
    launches = sum(bool(group) for group in open_groups)
    seconds = launches * budget.launch_seconds + sum(budget.point_seconds if each is None else each for each in told)
    return Cost(
        launches=launches,
        points=len(points),
        points_assumed=told.count(None),
        engine_seconds=seconds,
        gpu_hours=seconds * plan.placement.engine_devices / SECONDS_AN_HOUR,
    )


def total(costs: Iterable[Cost]) -> Cost:
    """Of all runs."""
    return reduce(Cost.__add__, costs, Cost())


def over_budget(cost: Cost, budget: Budget) -> float | None:
    """By how many GPU-hours; None where it is within the budget, or where there is none."""
    if budget.gpu_hours is None or cost.gpu_hours <= budget.gpu_hours:
        return None
    return cost.gpu_hours - budget.gpu_hours
