"""decide_campaign: the decision about one campaign, from its observation and the current time; and its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from specbench_api.errors import InvalidSpec, NotAllowed
from specbench_api.fence.check import FenceCheck
from specbench_api.spec.campaign_status import CampaignCondition, CampaignPhase, CampaignStatus
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_campaign
from specbench_operator.campaign.actions import creations, deletions, patches
from specbench_operator.campaign.campaign_status import build_campaign_status
from specbench_operator.campaign.campaign_view import build_campaign_view, read_campaign_status
from specbench_operator.campaign.conditions import CampaignState, campaign_state_of, tool_conditions
from specbench_operator.campaign.schedule import Firing, current_round, due_firing, next_round
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.state.campaign import CampaignDecision, CampaignObservation, ObservedRun
from specbench_operator.state.conditions import (
    UNFINISHED,
    find_condition,
    flip_of,
    flipped_to,
    join_sentences,
    no,
    replace_conditions,
    unknown,
    with_transition_times,
)
from specbench_operator.state.run import NORMAL, WARNING, KubernetesEvent
from specbench_operator.state.timestamps import earliest, format_timestamp, parse_timestamp


def campaign_events(
    before: CampaignStatus, after: CampaignStatus, runs: Sequence[ObservedRun]
) -> tuple[KubernetesEvent, ...]:
    """The events that a change of status causes, in the order in which the changes happen."""
    return (
        *_invalid_events(before, after),
        *_round_events(before, after),
        *_run_row_events(before, after, {run.name: run.ref.uid for run in runs}),
        *_end_events(before, after),
    )


def _invalid_events(before: CampaignStatus, after: CampaignStatus) -> Iterator[KubernetesEvent]:
    if invalid := flipped_to(before, after, Kind.VALIDATED, ConditionStatus.FALSE):
        yield KubernetesEvent(WARNING, "Invalid", invalid.message, flip_of(before, invalid))


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
    if before.phase is not after.phase and CampaignPhase.SUSPENDED in (before.phase, after.phase):
        yield KubernetesEvent(
            NORMAL, "Suspended" if after.phase is CampaignPhase.SUSPENDED else "Resumed", after.progress
        )
    if spent := flipped_to(before, after, Kind.BUDGET_EXHAUSTED, ConditionStatus.TRUE):
        yield KubernetesEvent(WARNING, spent.reason, spent.message, flip_of(before, spent))
    if gate := flipped_to(before, after, Kind.GATE_PASSED, ConditionStatus.FALSE):
        yield KubernetesEvent(WARNING, gate.reason, gate.message, flip_of(before, gate))
    if ready := flipped_to(before, after, Kind.READY, ConditionStatus.TRUE):
        message = join_sentences((after.best, ready.message))
        yield KubernetesEvent(NORMAL, "RoundFinished", message, flip_of(before, ready))
    stalled = flipped_to(before, after, Kind.STALLED, ConditionStatus.TRUE)
    have_own_events = ("BudgetExhausted", InvalidSpec.reason, NotAllowed.reason)
    if stalled and stalled.reason not in have_own_events:
        yield KubernetesEvent(WARNING, stalled.reason, stalled.message, flip_of(before, stalled))


_UNKNOWN_WHEN_INVALID = (Kind.MEASUREMENT_COMPLETE, Kind.RESULTS_STORED, Kind.TRUSTWORTHY, Kind.GATE_PASSED)


def decide_invalid_campaign(
    resource: Mapping[str, Any], error: InvalidSpec, previous: CampaignStatus, now: datetime
) -> CampaignDecision:
    """The decision about an invalid campaign: Validated=False with all problems. Its runs continue unchanged."""
    message = "; ".join(str(problem) for problem in error.problems)
    generation = int(resource["metadata"].get("generation", 0))
    values = {
        Kind.VALIDATED: no(error.reason, message),
        **dict.fromkeys(_UNKNOWN_WHEN_INVALID, unknown(UNFINISHED)),
        **tool_conditions(CampaignState(CampaignPhase.INVALID, error.reason, message, stalled=True, failed=True)),
    }
    conditions = with_transition_times(CampaignCondition, values, previous, generation, now)
    update = {"observed_generation": generation, "phase": CampaignPhase.INVALID, "conditions": conditions}
    status = previous.model_copy(update={**update, "next_schedule_time": None})
    return CampaignDecision(status, events=campaign_events(previous, status, ()))


def campaign_status_after_error(resource: Mapping[str, Any], error: OperatorError, now: datetime) -> CampaignStatus:
    """The previous status with the error: Retry keeps Reconciling=True, Stop sets Stalled=True.

    The status of a finished round is not changed, because a request that fails later does not make it unfinished.
    """
    previous = read_campaign_status(resource)
    if has_round_finished(previous):
        return previous
    generation = int(resource["metadata"].get("generation", 0))
    stopped = isinstance(error, Stop)
    phase = previous.phase or CampaignPhase.PENDING
    state = CampaignState(phase, error.reason, str(error), reconciling=not stopped, stalled=stopped)
    conditions = replace_conditions(CampaignCondition, tool_conditions(state), previous, generation, now)
    return previous.model_copy(update={"observed_generation": generation, "phase": phase, "conditions": conditions})


def has_round_finished(status: CampaignStatus) -> bool:
    """Whether the round has finished, according to the status."""
    ready = find_condition(status, Kind.READY)
    return ready is not None and ready.status is ConditionStatus.TRUE


def decide_campaign(observed: CampaignObservation, now: datetime, fence: FenceCheck | None = None) -> CampaignDecision:
    """Decide what to do for a campaign, and its status. Never raises, whatever was observed."""
    resource = observed.resource
    previous = read_campaign_status(resource)
    if resource["metadata"].get("deletionTimestamp"):
        return CampaignDecision(previous)  # the garbage collector deletes the runs
    try:
        return _decide_valid_campaign(observed, previous, now, fence)
    except InvalidSpec as error:
        return decide_invalid_campaign(resource, error, previous, now)


def _decide_valid_campaign(
    observed: CampaignObservation, previous: CampaignStatus, now: datetime, fence: FenceCheck | None
) -> CampaignDecision:
    spec = parse_campaign(observed.resource).spec
    current = current_round(previous, observed.runs, spec.rerun, now)
    view = build_campaign_view(observed, previous, current, now, fence)
    firing = due_firing(spec, previous, current, now, at_rest=view.at_rest)
    new_round = next_round(spec, current, firing, now, at_rest=view.at_rest)
    if new_round:
        view = build_campaign_view(observed, previous, new_round, now, fence)
    status = build_campaign_status(view, campaign_state_of(view))
    return CampaignDecision(
        status=status,
        patch=patches(view),
        delete=deletions(view),
        create=creations(view),
        events=(*_firing_events(firing), *campaign_events(previous, status, observed.runs)),
        requeue_after_s=earliest(view.spending.requeue_after_s, _until_next_firing_s(status, now)),
    )


def is_safe_if_outdated(previous: CampaignStatus, decision: CampaignDecision) -> bool:
    """Whether a decision may be carried out although it is based on an outdated observation.

    That is so if it updates counts and texts in the status, and changes runs without resuming one: a run that is not as
    it was observed is not changed.
    """
    begins = decision.create or any(row.change.get("spec", {}).get("suspend") is False for row in decision.patch)
    return not (begins or decision.delete or decision.events) and _stage(previous) == _stage(decision.status)


def _stage(status: CampaignStatus) -> tuple[object, ...]:
    conditions = frozenset((row.type, row.status, row.reason) for row in status.conditions)
    return (status.observed_generation, status.phase, status.round, conditions)


def _firing_events(firing: Firing | None) -> Iterator[KubernetesEvent]:
    if firing and firing.missed:
        message = f"the scheduled round of {format_timestamp(firing.at)} was skipped: {firing.missed}"
        yield KubernetesEvent(NORMAL, "FiringSkipped", message)


def _until_next_firing_s(status: CampaignStatus, now: datetime) -> float | None:
    next_time = parse_timestamp(status.next_schedule_time)
    return None if next_time is None else max((next_time - now).total_seconds(), 0.0)
