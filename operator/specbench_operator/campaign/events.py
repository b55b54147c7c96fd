"""Kubernetes Events of a campaign, derived from the difference between its previous and its new status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from specbench_api.errors import InvalidSpec, NotAllowed
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_api.spec.conditions import ConditionStatus
from specbench_operator.state.campaign import ObservedRun
from specbench_operator.state.conditions import flip_event, join_sentences, reason_of, suspension_event
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent


def campaign_events(
    before: CampaignStatus, after: CampaignStatus, runs: Sequence[ObservedRun]
) -> tuple[KubernetesEvent, ...]:
    """The events that a change of status causes, in the order in which the changes happen."""
    return (
        *flip_event("Invalid", before, after, Kind.VALIDATED, ConditionStatus.FALSE),
        *_round_events(before, after),
        *_run_row_events(before, after, {run.name: run.ref.uid for run in runs}),
        *_end_events(before, after),
    )


def _round_events(before: CampaignStatus, after: CampaignStatus) -> Iterator[KubernetesEvent]:
    known = before.round.number if before.round else 0
    if after.round and after.round.number > known:
        fired = f"the schedule fired at {after.round.fire_time}" if after.round.fire_time else ""
        token = f"rerun is {after.round.token}" if after.round.token else ""
        name = f"round {after.round.number}"
        yield KubernetesEvent(NORMAL, "RoundStarted", join_sentences((name, fired or token)), name)


def _run_row_events(
    before: CampaignStatus, after: CampaignStatus, uids: Mapping[str, str]
) -> Iterator[KubernetesEvent]:
    number = after.round.number if after.round else 0
    same = before.round and after.round and before.round.number == number
    old = {row.name: row for row in before.runs} if same else {}
    for row in after.runs:
        known = old.get(row.name)
        if row.reason == "NameTaken" and (known is None or known.reason != row.reason):
            message = f"{row.name}: a SpecBenchRun of this name exists and does not belong to this campaign: delete it"
            yield KubernetesEvent(WARNING, "NameTaken", message)
        if row.phase in ("Failed", "Invalid") and (known is None or known.phase != row.phase):
            message = join_sentences((f"{row.name} ({row.combination})", row.reason))
            # The UID, because a run that was deleted and created again in the same round may fail again.
            yield KubernetesEvent(WARNING, "RunFailed", message, f"{row.name}: {uids.get(row.name, '')}")


def _end_events(before: CampaignStatus, after: CampaignStatus) -> Iterator[KubernetesEvent]:
    yield from suspension_event(before, after)
    yield from flip_event("", before, after, Kind.BUDGET_EXHAUSTED, ConditionStatus.TRUE)
    yield from flip_event("", before, after, Kind.GATE_PASSED, ConditionStatus.FALSE)
    ready = (Kind.READY, ConditionStatus.TRUE)
    yield from flip_event("RoundFinished", before, after, *ready, event_type=NORMAL, prefix=after.best)
    if reason_of(after, Kind.STALLED) not in ("BudgetExhausted", InvalidSpec.reason, NotAllowed.reason):
        yield from flip_event("", before, after, Kind.STALLED, ConditionStatus.TRUE)  # the others have own events
