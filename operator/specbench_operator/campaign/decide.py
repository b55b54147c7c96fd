"""decide_campaign: what to do about one campaign, its runs to patch, delete and create, and its events."""

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
from specbench_operator.campaign.campaign_status import (
    CampaignState,
    build_campaign_status,
    campaign_state_of,
    tool_conditions,
)
from specbench_operator.campaign.campaign_view import CampaignView, build_campaign_view, read_campaign_status
from specbench_operator.campaign.rounds import (
    PROPAGATED,
    Firing,
    RequiredRun,
    current_round,
    due_firing,
    next_round,
    run_manifest,
)
from specbench_operator.errors import OperatorError, Stop
from specbench_operator.state.campaign import (
    ANNOTATION_SUSPEND_REASON,
    CampaignDecision,
    CampaignObservation,
    ObservedRun,
    RunDeletion,
    RunPatch,
)
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


# Which runs of a campaign to patch, delete and create.
#
# Only the campaign's own runs are changed. Nothing is created while the campaign suspends its runs, and never more runs
# than `parallelism` allows. Runs that the campaign suspended are resumed before new ones are created.


def gate_baselines(view: CampaignView) -> frozenset[str]:
    """Names of runs of earlier rounds that gates of this round compare with, and that are therefore not deleted.

    For each combination whose gate refers to this campaign, it is the newest earlier run that has results, as in
    `run.gate.find_baseline`. So at most one run per combination is kept beyond `runHistoryLimit`.
    """
    combinations = {run.combination for run in view.plan.runs if _compares_with(run, view.plan.campaign.metadata.name)}
    newest: dict[str, ObservedRun] = {}
    for run in sorted(view.unplanned, key=lambda run: (run.created_at, run.name)):
        if run.combination in combinations and run.succeeded:
            newest[run.combination] = run
    return frozenset(run.name for run in newest.values())


def _compares_with(planned: RequiredRun, campaign: str) -> bool:
    gate = planned.propagated.get("gate") or {}
    return bool(gate.get("baselineRef", {}).get("campaign") == campaign)


def patches(view: CampaignView) -> tuple[RunPatch, ...]:
    """Patches that suspend and resume runs, and apply changes of the template."""
    resumed = set(_runs_to_resume(view))
    planned = {run.name: run for run in view.plan.runs}
    changes = (
        RunPatch(
            run.ref,
            run.version,
            _merge_changes(_spec_change(run, planned[run.name]), _suspend_change(view, run, resumed)),
        )
        for run in view.existing
        if not run.deleting
    )
    return tuple(patch for patch in changes if patch.change)


def deletions(view: CampaignView) -> tuple[RunDeletion, ...]:
    """Unfinished runs that are not in the plan any more, and runs of rounds beyond `runHistoryLimit`.

    Baselines of this round's gates are kept beyond that limit.
    """
    oldest_kept, baselines = view.round.number - view.spec.run_history_limit + 1, gate_baselines(view)
    return tuple(
        RunDeletion(run.ref, run.version)
        for run in view.unplanned
        if not run.deleting and run.name not in baselines
        if not run.ended or (run.number is not None and run.number < oldest_kept)
    )


def creations(view: CampaignView) -> tuple[Mapping[str, Any], ...]:
    """Manifests of the next runs in the plan's order, as many as `parallelism` allows."""
    if view.suspend_reason or view.stopped:
        return ()
    places = view.free - sum(not view.own[name].over for name in _runs_to_resume(view))
    cause = (view.round.token, view.round.fire_time)
    return tuple(run_manifest(view.plan, planned, *cause) for planned in view.missing[: max(places, 0)])


def _runs_to_resume(view: CampaignView) -> list[str]:
    """Names of the runs that the campaign suspended and resumes now, in the plan's order.

    Failed runs do not count against `parallelism`, so all of them are resumed.
    """
    if view.suspend_reason:
        return []
    suspended = [run for run in view.existing if run.resumable and not run.deleting]
    failed, unfinished = [run for run in suspended if run.over], [run for run in suspended if not run.over]
    return [run.name for run in (*failed, *unfinished[: view.free])]


def _suspend_change(view: CampaignView, run: ObservedRun, resumed: set[str]) -> dict[str, Any]:
    if view.suspend_reason and not run.ended and not run.suspended:
        return _with_suspend_reason({"spec": {"suspend": True}}, view.suspend_reason)
    if run.name in resumed:
        return _with_suspend_reason({"spec": {"suspend": False}}, None)
    if run.suspend_reason and not run.suspended:
        # Somebody resumed the run by hand, so the campaign no longer controls whether it is suspended.
        return _with_suspend_reason({}, None)
    return {}


def _spec_change(run: ObservedRun, planned: RequiredRun) -> dict[str, Any]:
    current = {field: run.spec[field] for field in PROPAGATED if field in run.spec}
    spec = _merge_patch(current, planned.propagated)
    return {"spec": spec} if spec else {}


def _merge_patch(current: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch from `current` to `target`: removed fields become null, also inside objects."""
    removed: dict[str, Any] = {field: None for field in current if field not in target}
    changed = {
        field: _merge_patch(current[field], value)
        if isinstance(value, Mapping) and isinstance(current.get(field), Mapping)
        else value
        for field, value in target.items()
        if current.get(field) != value
    }
    return removed | changed


def _with_suspend_reason(change: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {**change, "metadata": {"annotations": {ANNOTATION_SUSPEND_REASON: reason}}}


def _merge_changes(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    spec = {**first.get("spec", {}), **second.get("spec", {})}
    return {**first, **second, **({"spec": spec} if spec else {})}
