"""CampaignView: the current round, its planned and existing runs, and why it waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from specbench_api.fence.check import FenceCheck
from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignRound, CampaignStatus
from specbench_operator.campaign.budget import Spending, is_exhausted, round_spending
from specbench_operator.campaign.round_plan import RequiredRun, RoundPlan, adoptable_orphans, plan_round
from specbench_operator.state.campaign import CampaignObservation, ObservedRun, OtherRunKind


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
    adopted: tuple[ObservedRun, ...] = ()
    """Planned runs that nobody owns, and that the campaign becomes the owner of now."""

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
    def complete(self) -> bool:
        """Whether every planned run is over, or cannot be created because its name is taken."""
        return not (self.missing or self.blocked_by_leftover or self.adopted) and all(run.over for run in self.existing)

    @property
    def stopped(self) -> bool:
        """Whether failurePolicy forbids creating further runs."""
        most = self.spec.failed_runs_max
        return most is not None and len(self.failed) >= most

    @property
    def suspend_reason(self) -> str:
        """Why the campaign suspends its runs; empty if it does not."""
        if self.spec.suspend:
            return "Suspended"
        return "BudgetExhausted" if self.exhausted else ""

    @property
    def active(self) -> list[ObservedRun]:
        """The planned runs that may make progress: not over and not suspended."""
        return [run for run in self.existing if not run.over and not run.suspended]

    @property
    def at_rest(self) -> bool:
        """Whether the round makes no progress without a change: it is complete, or blocked with no active run."""
        blocked = (self.exhausted or self.stopped) and not self.active
        resumable = any(run.resumable and not run.over for run in self.existing) and not self.exhausted
        return self.complete or (blocked and not resumable)

    @property
    def free(self) -> int:
        """How many runs may be created or resumed: `parallelism` minus the runs that are not over.

        Runs that the campaign suspended do not count; runs that were suspended by hand do.
        """
        occupied = sum(not run.over and not run.resumable for run in (*self.runs, *self.adopted))
        return max(self.spec.parallelism - occupied, 0)


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
    resource = observed.resource
    plan = plan_round(resource, present.number, fence)
    generation = int(resource["metadata"].get("generation", 0))
    spending = round_spending(plan.campaign.spec, previous, present.number, observed.runs, now)
    exhausted = is_exhausted(spending, previous, present.number, generation)
    orphans = adoptable_orphans(plan, present.number, observed.orphans)
    other_runs = {**observed.other_runs, **{run.name: OtherRunKind.ORPHAN for run in orphans}}
    return CampaignView(
        plan, present, previous, observed.runs, other_runs, spending, exhausted, generation, now, orphans
    )  # fmt: skip


def read_campaign_status(resource: Mapping[str, Any]) -> CampaignStatus:
    """The status as it was last written. An invalid status counts as empty, because it is only a cache."""
    try:
        return CampaignStatus.model_validate(resource.get("status") or {})
    except ValidationError:
        return CampaignStatus()


GATE_PASSED = "GatePassed"


def succeeded_runs(view: CampaignView) -> list[ObservedRun]:
    """The planned runs that have results."""
    return [run for run in view.existing if run.succeeded]


def untrustworthy_runs(view: CampaignView) -> list[ObservedRun]:
    """The planned runs that have results which are not trustworthy."""
    return [run for run in succeeded_runs(view) if run.is_false("Trustworthy")]
