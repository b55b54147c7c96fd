"""Where everything stands: the round, what it wants, what is there, and what holds it up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import (
    CampaignCondition,
    CampaignConditionType,
    CampaignStatus,
    Round,
)
from specbench_operator.campaign.orphans import taken_over
from specbench_operator.campaign.planned import RoundPlan, Wanted, plan_round
from specbench_operator.campaign.spending import Spending, is_exhausted, spending_of
from specbench_operator.state.campaign import CampaignObserved, RunSeen, Stranger


@dataclass(frozen=True)
class Scene:
    """All that decisions and status are made from."""

    plan: RoundPlan
    round: Round
    previous: CampaignStatus
    runs: tuple[RunSeen, ...]
    """All of the campaign's own, of every round."""
    strangers: Mapping[str, Stranger]
    spending: Spending
    exhausted: bool
    generation: int
    now: datetime
    taken_over: tuple[RunSeen, ...] = ()
    """Runs of the plan that nobody owned, and that become the campaign's own now."""

    @property
    def spec(self) -> CampaignSpec:
        """What is asked."""
        return self.plan.campaign.spec

    @cached_property
    def mine(self) -> Mapping[str, RunSeen]:
        """The campaign's own runs by their names."""
        return {run.name: run for run in self.runs}

    @cached_property
    def begun(self) -> list[RunSeen]:
        """Runs of the round's plan that are there, in the plan's order."""
        return [self.mine[wanted.name] for wanted in self.plan.runs if wanted.name in self.mine]

    @cached_property
    def missing(self) -> list[Wanted]:
        """Runs of the plan that can be made and are not there."""
        return [run for run in self.plan.runs if run.name not in self.mine and run.name not in self.strangers]

    @cached_property
    def taken(self) -> list[Wanted]:
        """Runs of the plan whose name somebody else's run has."""
        return [run for run in self.plan.runs if self.strangers.get(run.name) is Stranger.FOREIGN]

    @cached_property
    def awaited(self) -> list[Wanted]:
        """Runs of the plan whose name a run of an earlier campaign still has, which Kubernetes is removing."""
        return [run for run in self.plan.runs if self.strangers.get(run.name) is Stranger.LEFTOVER]

    @cached_property
    def unwanted(self) -> list[RunSeen]:
        """The campaign's own runs that the round's plan does not have: of earlier rounds, or taken off the matrix."""
        wanted = self.plan.names
        return [run for run in self.runs if run.name not in wanted]

    @property
    def failed(self) -> list[RunSeen]:
        """Runs of the plan that failed."""
        return [run for run in self.begun if run.failed]

    @property
    def complete(self) -> bool:
        """Every run of the plan is over, or can never begin while a stranger has its name."""
        return not (self.missing or self.awaited or self.taken_over) and all(run.over for run in self.begun)

    @property
    def stopped(self) -> bool:
        """By failurePolicy: none begins any more."""
        most = self.spec.failed_runs_max
        return most is not None and len(self.failed) >= most

    @property
    def hold(self) -> str:
        """Why the campaign's runs are to be suspended; empty where they are not."""
        if self.spec.suspend:
            return "Suspended"
        return "BudgetExhausted" if self.exhausted else ""

    @property
    def at_work(self) -> list[RunSeen]:
        """Runs of the plan that may do something by themselves: not over, and not suspended by whomever."""
        return [run for run in self.begun if not run.over and not run.suspended]

    @property
    def at_rest(self) -> bool:
        """Nothing of the round goes on by itself: it is complete, or stopped with nothing left at work."""
        blocked = (self.exhausted or self.stopped) and not self.at_work
        resumable = any(run.resumable and not run.over for run in self.begun) and not self.exhausted
        return self.complete or (blocked and not resumable)

    @property
    def free(self) -> int:
        """Places for runs: parallelism less all that are not over, whoever suspended them, but for the campaign."""
        occupied = sum(not run.over and not run.resumable for run in (*self.runs, *self.taken_over))
        return max(self.spec.parallelism - occupied, 0)


def scene_of(observed: CampaignObserved, previous: CampaignStatus, present: Round, now: datetime) -> Scene:
    """Sort what was observed. Raises InvalidSpec for a campaign that has no plan."""
    resource = observed.resource
    plan = plan_round(resource, present.number)
    generation = int(resource["metadata"].get("generation", 0))
    spending = spending_of(plan.campaign.spec, previous, present.number, observed.runs, now)
    exhausted = is_exhausted(spending, previous, present.number, generation)
    orphans = taken_over(plan, present.number, observed.orphans)
    strangers = {**observed.strangers, **{run.name: Stranger.ORPHAN for run in orphans}}
    return Scene(
        plan, present, previous, observed.runs, strangers, spending, exhausted, generation, now, orphans
    )  # fmt: skip


def status_of(resource: Mapping[str, Any]) -> CampaignStatus:
    """The status as it was last written, or an empty one where it cannot be read: it is a cache."""
    try:
        return CampaignStatus.model_validate(resource.get("status") or {})
    except ValidationError:
        return CampaignStatus()


def condition_of(status: CampaignStatus, kind: CampaignConditionType) -> CampaignCondition | None:
    """One condition."""
    return next((row for row in status.conditions if row.type is kind), None)
