"""GPU-hours of a round: what its runs say that they held, and what those that were deleted had said.

A run's figure only grows, but where it was deleted and made again, or where its status was lost: then it counts anew
the pods that are left of it. So the row of status keeps what it had until the run tells its figure again, and what the
figure then falls short of the row is added to what is kept of deleted runs: what was held once counts once. Error: what
was held between the last word and the next is not told apart from what is told again; it is seconds as a rule, and
always too little.

A run writes its figure once a minute, so what an engine at work has held since then is added for the decision to stop,
and is not in status, where a figure that moves with the clock would be a write at every look. Overshoot: engines that
are still starting may hold for `LAG_S` what nobody has told yet, and an engine takes its time to end. So a budget is
overdrawn by no more than GPUs at work × (LAG_S + the time in which an engine ends).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus, Phase
from specbench_operator.state.campaign import RunSeen

SECONDS_AN_HOUR = 3600
LAG_S = 120.0
"""So old a run's figure may be, at most, while its engine holds GPUs: written once a minute, looked at twice a minute.
What is older tells of a run that holds nothing between two engines, or of an operator that was away."""
AGAIN_S = 30.0


@dataclass(frozen=True)
class Spending:
    """In GPU-seconds. `by_run`: of the runs of the round that are there; `live`: held since then, as estimated."""

    by_run: Mapping[str, float]
    deleted: float
    live: float
    rate: float
    """GPUs that are held now, as far as is known."""
    limit: float | None

    @property
    def spent(self) -> float:
        """As it is told."""
        return self.deleted + sum(self.by_run.values())

    @property
    def reached(self) -> bool:
        """Whether the budget is spent."""
        return self.limit is not None and self.spent + self.live >= self.limit

    @property
    def look_again_s(self) -> float | None:
        """When the budget may be spent, if something is spending it."""
        if self.limit is None or self.rate <= 0 or self.reached:
            return None
        return min(max((self.limit - self.spent - self.live) / self.rate, 1.0), AGAIN_S)


def spending_of(
    spec: CampaignSpec, previous: CampaignStatus, number: int, runs: Sequence[RunSeen], now: datetime
) -> Spending:
    """Add up the round of this number."""
    of_round = [run for run in runs if run.number == number]
    same = previous.round is not None and previous.round.number == number
    rows = {row.name: row.gpu_seconds or 0.0 for row in previous.runs} if same else {}
    by_run = {run.name: run.gpu_seconds if run.counted else rows.get(run.name, 0.0) for run in of_round}
    lost = sum(max(was - by_run.get(name, 0.0), 0.0) for name, was in rows.items())
    hours = spec.budget.gpu_hours
    return Spending(
        by_run=by_run,
        deleted=round((previous.gpu_seconds_deleted if same else 0.0) + lost, 1),
        live=sum(_unsaid(run, now) for run in _measuring(of_round)),
        rate=float(sum(run.gpus for run in _measuring(of_round))),
        limit=None if hours is None else hours * SECONDS_AN_HOUR,
    )


def is_exhausted(spending: Spending, previous: CampaignStatus, number: int, generation: int) -> bool:
    """Whether the budget is spent. Once it was, it is until somebody changes the campaign or another round begins.

    Else a run that gives its GPUs back a second before the estimate would be resumed, and load its model again, for it.
    """
    if spending.limit is None:
        return False
    same = previous.round is not None and previous.round.number == number
    said = next((row for row in previous.conditions if row.type is CampaignConditionType.BUDGET_EXHAUSTED), None)
    was = same and said is not None and said.status is ConditionStatus.TRUE and said.observed_generation == generation
    return spending.reached or was


def _measuring(runs: Iterable[RunSeen]) -> list[RunSeen]:
    """Runs whose engine certainly holds its GPUs."""
    return [run for run in runs if run.phase == Phase.RUNNING and not run.over and run.gpu_seconds_until]


def _unsaid(run: RunSeen, now: datetime) -> float:
    since_s = (now - run.gpu_seconds_until).total_seconds() if run.gpu_seconds_until else 0.0
    return run.gpus * since_s if 0 < since_s <= LAG_S else 0.0
