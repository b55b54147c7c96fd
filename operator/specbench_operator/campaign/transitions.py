"""Events for people: what changed between two statuses, said once."""

from __future__ import annotations

from collections.abc import Iterator

from specbench_api.spec.campaign_status import CampaignCondition, CampaignPhase, CampaignStatus
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.campaign.scene import condition_of
from specbench_operator.reconcile.launches.judgement import joined
from specbench_operator.reconcile.telling.transitions import NORMAL, WARNING
from specbench_operator.state.decision import Event


def events_between(before: CampaignStatus, after: CampaignStatus) -> tuple[Event, ...]:
    """In the order in which they would have happened."""
    return (*_of_admission(before, after), *_of_round(before, after), *_of_runs(before, after), *_of_end(before, after))


def _of_admission(before: CampaignStatus, after: CampaignStatus) -> Iterator[Event]:
    if refused := _turned(before, after, Kind.VALIDATED, ConditionStatus.FALSE):
        yield Event(WARNING, "Invalid", refused.message)
    old, new = (condition_of(status, Kind.BUDGET_EXHAUSTED) for status in (before, after))
    if new and new.reason == "EstimateOverBudget" and (old is None or old.reason != new.reason):
        yield Event(WARNING, new.reason, new.message)


def _of_round(before: CampaignStatus, after: CampaignStatus) -> Iterator[Event]:
    known = before.round.number if before.round else 0
    if after.round and after.round.number > known:
        fired = f"the schedule fired at {after.round.fire_time}" if after.round.fire_time else ""
        token = f"rerun is {after.round.token}" if after.round.token else ""
        yield Event(NORMAL, "RoundStarted", joined((f"round {after.round.number}", fired or token)))


def _of_runs(before: CampaignStatus, after: CampaignStatus) -> Iterator[Event]:
    same = before.round and after.round and before.round.number == after.round.number
    old = {row.name: row for row in before.runs} if same else {}
    for row in after.runs:
        known = old.get(row.name)
        if row.reason == "NameTaken" and (known is None or known.reason != row.reason):
            remedy = "another SpecBenchRun has the name and does not belong to this campaign: delete it"
            yield Event(WARNING, "NameTaken", f"{row.name}: {remedy}")
        if row.phase in ("Failed", "Invalid") and (known is None or known.phase != row.phase):
            yield Event(WARNING, "RunFailed", joined((f"{row.name} ({row.cell})", row.reason)))


def _of_end(before: CampaignStatus, after: CampaignStatus) -> Iterator[Event]:
    if before.phase is not after.phase and CampaignPhase.SUSPENDED in (before.phase, after.phase):
        yield Event(NORMAL, "Suspended" if after.phase is CampaignPhase.SUSPENDED else "Resumed", after.progress)
    if spent := _turned(before, after, Kind.BUDGET_EXHAUSTED, ConditionStatus.TRUE):
        yield Event(WARNING, spent.reason, spent.message)
    if gate := _turned(before, after, Kind.GATE_PASSED, ConditionStatus.FALSE):
        yield Event(WARNING, gate.reason, gate.message)
    if ready := _turned(before, after, Kind.READY, ConditionStatus.TRUE):
        yield Event(NORMAL, "RoundFinished", joined((after.best, ready.message)))
    stalled = _turned(before, after, Kind.STALLED, ConditionStatus.TRUE)
    if stalled and stalled.reason not in ("BudgetExhausted", "InvalidSpec"):  # said already
        yield Event(WARNING, stalled.reason, stalled.message)


def _turned(
    before: CampaignStatus, after: CampaignStatus, kind: Kind, status: ConditionStatus
) -> CampaignCondition | None:
    old, new = condition_of(before, kind), condition_of(after, kind)
    return new if new and new.status is status and (old is None or old.status is not status) else None
