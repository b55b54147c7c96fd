"""GPU-hours spent in a round: the sum over its runs, including runs that were deleted.

A run's GPU-seconds only grow, unless the run is deleted and created again or its status is lost. Then the run counts
again from the pods that are left. Therefore the campaign's row keeps the old value until the run reports a new one,
and the amount by which the new value is smaller is added to `gpuSecondsDeleted`, so that every GPU-second counts once.
Error: GPU-seconds between the last report before and the first one after such a loss are missing; usually a few
seconds.

A run writes its GPU-seconds once a minute. For the decision to stop, the time since then is added for runs that are
measuring. It is not in status, because a value that changes with the clock would be written with every reconciliation.
Overshoot: GPU-seconds of engines that are starting are not known for up to FIGURE_AGE_MAX_S, and an engine takes time
to end. So a budget is exceeded by at most (GPUs in use) × (FIGURE_AGE_MAX_S + the time in which an engine ends).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus, Phase
from specbench_operator.state.campaign import ObservedRun
from specbench_operator.state.conditions import find_condition

FIGURE_AGE_MAX_S = 120.0
"""Maximum age in seconds of a run's GPU-seconds while its engine holds GPUs: they are written once a minute.

An older value means that the run is between two engines, or that the operator was down."""
BUDGET_POLL_S = 30.0


@dataclass(frozen=True)
class Spending:
    """The spending of a round, in GPU-seconds."""

    by_run: Mapping[str, float]
    """Name → GPU-seconds of each existing run of the round."""
    deleted: float
    """GPU-seconds of deleted runs."""
    live: float
    """Estimate of what was held since the runs' last reports."""
    rate: float
    """GPUs that are held now, as far as known."""
    limit: float | None
    """The budget; None if there is none."""

    @property
    def spent(self) -> float:
        """The reported GPU-seconds."""
        return self.deleted + sum(self.by_run.values())

    @property
    def reached(self) -> bool:
        """Whether the budget is exhausted, including the estimate."""
        return self.limit is not None and self.spent + self.live >= self.limit

    @property
    def requeue_after_s(self) -> float | None:
        """When the budget may be exhausted, in seconds; None if no run is spending it."""
        if self.limit is None or self.rate <= 0 or self.reached:
            return None
        return min(max((self.limit - self.spent - self.live) / self.rate, 1.0), BUDGET_POLL_S)


def round_spending(
    spec: CampaignSpec, previous: CampaignStatus, number: int, runs: Sequence[ObservedRun], now: datetime
) -> Spending:
    """The spending of the round with this number."""
    of_round = [run for run in runs if run.number == number]
    same = previous.round is not None and previous.round.number == number
    rows = {row.name: row.gpu_seconds or 0.0 for row in previous.runs} if same else {}
    by_run = {run.name: run.gpu_seconds if run.counted else rows.get(run.name, 0.0) for run in of_round}
    lost = sum(max(was - by_run.get(name, 0.0), 0.0) for name, was in rows.items())
    hours = spec.budget.gpu_hours
    return Spending(
        by_run=by_run,
        deleted=round((previous.gpu_seconds_deleted if same else 0.0) + lost, 1),
        live=sum(_unreported_gpu_seconds(run, now) for run in _measuring(of_round)),
        rate=float(sum(run.gpus for run in _measuring(of_round))),
        limit=None if hours is None else hours * SECONDS_AN_HOUR,
    )


def is_exhausted(spending: Spending, previous: CampaignStatus, number: int, generation: int) -> bool:
    """Whether the budget is exhausted. It stays so until the campaign is changed or another round starts.

    Otherwise a run that releases its GPUs slightly before the estimate would be resumed, and load its model again, only
    to spend the rest.
    """
    if spending.limit is None:
        return False
    same = previous.round is not None and previous.round.number == number
    row = find_condition(previous, CampaignConditionType.BUDGET_EXHAUSTED)
    was = same and row is not None and row.status is ConditionStatus.TRUE and row.observed_generation == generation
    return spending.reached or was


def _measuring(runs: Iterable[ObservedRun]) -> list[ObservedRun]:
    """Runs whose engine holds its GPUs for certain."""
    return [run for run in runs if run.phase == Phase.RUNNING and not run.over and run.gpu_seconds_until]


def _unreported_gpu_seconds(run: ObservedRun, now: datetime) -> float:
    since_s = (now - run.gpu_seconds_until).total_seconds() if run.gpu_seconds_until else 0.0
    return run.gpus * since_s if 0 < since_s <= FIGURE_AGE_MAX_S else 0.0
