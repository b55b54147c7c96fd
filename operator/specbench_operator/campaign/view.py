"""CampaignView: the current round, its planned and existing runs, and the GPU-hours that they spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from specbench_api.fence.check import FenceCheck
from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignConditionType, CampaignRound, CampaignStatus
from specbench_api.spec.conditions import ConditionStatus, Phase
from specbench_operator.campaign.rounds import RequiredRun, RoundPlan, plan_round
from specbench_operator.state.campaign import CampaignObservation, ObservedRun, OtherRunKind
from specbench_operator.state.conditions import find_condition, generation_of

# GPU-hours spent in a round: the sum over its runs, including runs that were deleted.
#
# A run's GPU-seconds only grow, unless the run is deleted and created again or its status is lost. Then the run counts
# again from the pods that are left. Therefore the campaign's row keeps the old value until the run reports a new one,
# and the amount by which the new value is smaller is added to `gpuSecondsDeleted`, so that each GPU-second counts once.
# Error: GPU-seconds between the last report before and the first one after such a loss are missing; usually a few
# seconds.
#
# A run writes its GPU-seconds once a minute. For the decision to stop, the time since then is added for runs that are
# measuring. It is not in status, because a value that changes with the clock would be written with every
# reconciliation. Overshoot: GPU-seconds of engines that are starting are not known for up to FIGURE_AGE_MAX_S, and an
# engine takes time to end. So a budget is exceeded by at most (GPUs in use) × (FIGURE_AGE_MAX_S + the time in which an
# engine ends).

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


@dataclass(frozen=True)
class CampaignView:
    """Everything that decisions and status are derived from, computed once per reconciliation."""

    plan: RoundPlan
    round: CampaignRound
    previous: CampaignStatus
    runs: tuple[ObservedRun, ...]
    """The campaign's own runs of all rounds."""
    other_runs: Mapping[str, OtherRunKind]
    spending: Spending
    exhausted: bool
    generation: int
    now: datetime

    @property
    def spec(self) -> CampaignSpec:
        """The campaign's spec."""
        return self.plan.campaign.spec

    @cached_property
    def own(self) -> Mapping[str, ObservedRun]:
        """Name → run, for the campaign's own runs."""
        return {run.name: run for run in self.runs}

    @cached_property
    def existing(self) -> list[ObservedRun]:
        """The planned runs that exist, in the plan's order."""
        return [self.own[planned.name] for planned in self.plan.runs if planned.name in self.own]

    @cached_property
    def missing(self) -> list[RequiredRun]:
        """The planned runs that do not exist and can be created."""
        return [run for run in self.plan.runs if run.name not in self.own and run.name not in self.other_runs]

    @cached_property
    def name_taken(self) -> list[RequiredRun]:
        """The planned runs whose name is taken by a run of another owner."""
        return [run for run in self.plan.runs if self.other_runs.get(run.name) is OtherRunKind.FOREIGN]

    @cached_property
    def blocked_by_leftover(self) -> list[RequiredRun]:
        """The planned runs whose name is taken by a run of a deleted campaign, which Kubernetes is removing."""
        return [run for run in self.plan.runs if self.other_runs.get(run.name) is OtherRunKind.LEFTOVER]

    @cached_property
    def unplanned(self) -> list[ObservedRun]:
        """The campaign's own runs that are not in the plan: of earlier rounds, or removed from the matrix."""
        planned = self.plan.names
        return [run for run in self.runs if run.name not in planned]

    @property
    def failed(self) -> list[ObservedRun]:
        """The planned runs that failed."""
        return [run for run in self.existing if run.failed]

    @property
    def succeeded(self) -> list[ObservedRun]:
        """The planned runs that have results."""
        return [run for run in self.existing if run.succeeded]

    @property
    def untrustworthy(self) -> list[ObservedRun]:
        """The planned runs that have results which are not trustworthy."""
        return [run for run in self.succeeded if run.is_false("Trustworthy")]

    @property
    def complete(self) -> bool:
        """Whether every planned run is over, or cannot be created because its name is taken."""
        return not (self.missing or self.blocked_by_leftover) and all(run.over for run in self.existing)

    @property
    def active(self) -> list[ObservedRun]:
        """The planned runs that may make progress: not over and not suspended."""
        return [run for run in self.existing if not run.over and not run.suspended]


def build_campaign_view(
    observed: CampaignObservation,
    previous: CampaignStatus,
    present: CampaignRound,
    now: datetime,
    fence: FenceCheck | None = None,
) -> CampaignView:
    """Derive the view from the observation. Raises InvalidSpec for a campaign that cannot be expanded.

    Raises NotAllowed if the fence does not allow its template or one of its runs.
    """
    plan, generation = plan_round(observed.resource, present.number, fence), generation_of(observed.resource)
    spending = round_spending(plan.campaign.spec, previous, present.number, observed.runs, now)
    exhausted = is_exhausted(spending, previous, present.number, generation)
    return CampaignView(
        plan, present, previous, observed.runs, observed.other_runs, spending, exhausted, generation, now
    )


def forecast_gpu_hours(view: CampaignView) -> float | None:
    """GPU-hours of the whole round: those spent, and for each point that remains as many as a measured one took.

    None until a launch on GPUs was measured; a run that only adopts results has none.
    """
    known = [run for run in view.existing if run.launch_measured and run.gpu_seconds]
    measured = sum(run.measured * run.gpus for run in known)
    if not measured:
        return None
    remaining = 0
    for planned in view.plan.runs:
        run = view.own.get(planned.name)
        if run is None or not run.over:
            remaining += (planned.points - (run.measured if run else 0)) * planned.gpus
    each = sum(run.gpu_seconds for run in known) / measured
    return round((view.spending.spent + each * remaining) / SECONDS_AN_HOUR, 2)
