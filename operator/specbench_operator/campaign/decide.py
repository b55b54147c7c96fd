"""decide_campaign: what a campaign may do now, its phase, and which of its runs to patch, delete and create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from specbench_api.errors import InvalidSpec
from specbench_api.fence.check import FenceCheck
from specbench_api.spec.campaign_status import (
    CampaignCondition,
    CampaignConditionType,
    CampaignPhase,
    CampaignStatus,
)
from specbench_api.spec.conditions import ConditionStatus
from specbench_api.spec.parsing import parse_campaign
from specbench_operator.campaign.events import campaign_events
from specbench_operator.campaign.rounds import (
    PROPAGATED,
    Firing,
    RequiredRun,
    current_round,
    due_firing,
    next_round,
    run_manifest,
)
from specbench_operator.campaign.status import (
    CampaignState,
    build_campaign_status,
    invalid_conditions,
    tool_conditions,
)
from specbench_operator.campaign.view import CampaignView, build_campaign_view
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
    find_condition,
    generation_of,
    list_names,
    read_status,
    replace_conditions,
)
from specbench_operator.state.run import NORMAL, KubernetesEvent
from specbench_operator.state.timestamps import earliest, format_timestamp, parse_timestamp


def decide_campaign(observed: CampaignObservation, now: datetime, fence: FenceCheck | None = None) -> CampaignDecision:
    """Decide what to do for a campaign, and its status. Never raises, whatever was observed."""
    resource = observed.resource
    previous = read_status(CampaignStatus, resource)
    if resource["metadata"].get("deletionTimestamp"):
        return CampaignDecision(previous)  # the garbage collector deletes the runs
    try:
        return _decide_valid_campaign(observed, previous, now, fence)
    except InvalidSpec as error:
        return _decide_invalid_campaign(resource, error, previous, now)


def _decide_invalid_campaign(
    resource: Mapping[str, Any], error: InvalidSpec, previous: CampaignStatus, now: datetime
) -> CampaignDecision:
    """The decision about an invalid campaign: Validated=False with all problems. Its runs continue unchanged."""
    generation = generation_of(resource)
    update = {
        "observed_generation": generation,
        "phase": CampaignPhase.INVALID,
        "conditions": invalid_conditions(error, previous, generation, now),
        "next_schedule_time": None,
    }
    status = previous.model_copy(update=update)
    return CampaignDecision(status, events=campaign_events(previous, status, ()))


def _decide_valid_campaign(
    observed: CampaignObservation, previous: CampaignStatus, now: datetime, fence: FenceCheck | None
) -> CampaignDecision:
    spec = parse_campaign(observed.resource).spec
    current = current_round(previous, observed.runs, spec.rerun, now)
    view = build_campaign_view(observed, previous, current, now, fence)
    firing = due_firing(spec, previous, current, now, at_rest=is_at_rest(view))
    new_round = next_round(spec, current, firing, now, at_rest=is_at_rest(view))
    if new_round:
        view = build_campaign_view(observed, previous, new_round, now, fence)
    status = build_campaign_status(view, state_of(view))
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


def campaign_status_after_error(resource: Mapping[str, Any], error: OperatorError, now: datetime) -> CampaignStatus:
    """The previous status with the error: Retry keeps Reconciling=True, Stop sets Stalled=True.

    The status of a finished round is not changed, because a request that fails later does not make it unfinished.
    """
    previous, generation = read_status(CampaignStatus, resource), generation_of(resource)
    if has_round_finished(previous):
        return previous
    stopped = isinstance(error, Stop)
    phase = previous.phase or CampaignPhase.PENDING
    state = CampaignState(phase, error.reason, str(error), reconciling=not stopped, stalled=stopped)
    conditions = replace_conditions(CampaignCondition, tool_conditions(state), previous, generation, now)
    return previous.model_copy(update={"observed_generation": generation, "phase": phase, "conditions": conditions})


def has_round_finished(status: CampaignStatus) -> bool:
    """Whether the round has finished, according to the status."""
    ready = find_condition(status, CampaignConditionType.READY)
    return ready is not None and ready.status is ConditionStatus.TRUE


# What a campaign may do now. Which runs to change follows from it, below.


def suspend_reason_of(view: CampaignView) -> str:
    """Why the campaign suspends its runs; empty if it does not."""
    if view.spec.suspend:
        return "Suspended"
    return "BudgetExhausted" if view.exhausted else ""


def is_stopped(view: CampaignView) -> bool:
    """Whether failurePolicy forbids creating further runs."""
    most = view.spec.failed_runs_max
    return most is not None and len(view.failed) >= most


def is_at_rest(view: CampaignView) -> bool:
    """Whether the round makes no progress without a change: it is complete, or blocked with no active run."""
    blocked = (view.exhausted or is_stopped(view)) and not view.active
    resumable = any(run.resumable and not run.over for run in view.existing) and not view.exhausted
    return view.complete or (blocked and not resumable)


def free_places(view: CampaignView) -> int:
    """How many runs may be created or resumed: `parallelism` minus the runs that are not over.

    Runs that the campaign suspended do not count; runs that were suspended by hand do.
    """
    occupied = sum(not run.over and not run.resumable for run in view.runs)
    return max(view.spec.parallelism - occupied, 0)


def state_of(view: CampaignView) -> CampaignState:
    """Determine the phase of a campaign."""
    if view.complete:
        return _complete(view)
    if view.spec.suspend:
        message = "spec.suspend is true: GPUs are released and results are kept; set it to false to continue"
        return CampaignState(CampaignPhase.SUSPENDED, "Suspended", message)
    if view.exhausted:
        return _budget_spent(view)
    if is_stopped(view):
        return _stopped(view)
    return _in_progress(view)


def _complete(view: CampaignView) -> CampaignState:
    total = len(view.plan.runs)
    failed = len(view.failed) + len(view.name_taken)
    if failed == total:
        message = f"no run has results: {_failed_runs_text(view)}"
        return CampaignState(CampaignPhase.FAILED, "NothingMeasured", message, stalled=True)
    finished = CampaignPhase.SCHEDULED if view.spec.schedule else CampaignPhase.SUCCEEDED
    if failed:
        phase = finished if view.spec.schedule else CampaignPhase.FAILED
        message = f"{failed} of {total} runs failed: {_failed_runs_text(view)}; delete a failed run to repeat it"
        return CampaignState(phase, "FinishedWithFailures", message, ready=True)
    return CampaignState(finished, "Finished", f"{total} runs", ready=True)


def _failed_runs_text(view: CampaignView) -> str:
    """The names of failed runs, each with its reason."""
    failed = [
        f"{run.name} ({run.conditions['Stalled'].reason})" if "Stalled" in run.conditions else run.name
        for run in view.failed
    ]
    return list_names([*failed, *(f"{planned.name} (NameTaken)" for planned in view.name_taken)])


def _budget_spent(view: CampaignView) -> CampaignState:
    if view.active:
        message = f"the budget is exhausted; {list_names([run.name for run in view.active])} will release their GPUs"
        return CampaignState(CampaignPhase.RUNNING, "BudgetExhausted", message, reconciling=True)
    message = "the budget is exhausted, and the remaining runs wait: raise spec.budget.gpuHours to continue"
    return CampaignState(CampaignPhase.FAILED, "BudgetExhausted", message, stalled=True)


def _stopped(view: CampaignView) -> CampaignState:
    failed = (
        f"{len(view.failed)} runs failed ({_failed_runs_text(view)}) and spec.failurePolicy is Stop:"
        " no further run is created"
    )
    if not is_at_rest(view):
        unfinished = [run.name for run in view.existing if not run.over]
        return CampaignState(
            CampaignPhase.RUNNING, "TooManyFailed", f"{failed}; waiting for {list_names(unfinished)}", reconciling=True
        )
    message = f"{failed}; delete a failed run to repeat it, or raise spec.maxFailedRuns"
    return CampaignState(CampaignPhase.FAILED, "TooManyFailed", message, stalled=True)


def _in_progress(view: CampaignView) -> CampaignState:
    unfinished = [run for run in view.existing if not run.over]
    if not (unfinished or view.missing):
        left = list_names([run.name for run in view.blocked_by_leftover])
        message = f"an earlier campaign of this name left {left}: waiting for Kubernetes to remove them"
        return CampaignState(CampaignPhase.PENDING, "WaitingForRemoval", message, reconciling=True)
    if not view.existing:
        return CampaignState(CampaignPhase.PENDING, "Pending", reconciling=True)
    paused = [run.name for run in unfinished if run.suspended and not run.suspend_reason]
    if paused and len(paused) == len(unfinished):
        message = (
            f"suspended by hand: {list_names(paused)}; set spec.suspend of the run to false, or raise spec.parallelism"
        )
        return CampaignState(CampaignPhase.RUNNING, "WaitingForResume", message, reconciling=True)
    return CampaignState(CampaignPhase.RUNNING, "Running", f"round {view.round.number}", reconciling=True)


# Which runs of a campaign to patch, delete and create.
#
# Only the campaign's own runs are changed. Nothing is created while the campaign suspends its runs, and no run is begun
# while `parallelism` or more are in progress. Failed runs do not count, so they are resumed whatever it allows. Runs
# that the campaign suspended are resumed before new ones are created.


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
    if suspend_reason_of(view) or is_stopped(view):
        return ()
    places = free_places(view) - sum(not view.own[name].over for name in _runs_to_resume(view))
    cause = (view.round.token, view.round.fire_time)
    return tuple(run_manifest(view.plan, planned, *cause) for planned in view.missing[: max(places, 0)])


def _runs_to_resume(view: CampaignView) -> list[str]:
    """Names of the runs that the campaign suspended and resumes now, in the plan's order.

    Failed runs do not count against `parallelism`, so all of them are resumed.
    """
    if suspend_reason_of(view):
        return []
    suspended = [run for run in view.existing if run.resumable and not run.deleting]
    failed, unfinished = [run for run in suspended if run.over], [run for run in suspended if not run.over]
    return [run.name for run in (*failed, *unfinished[: free_places(view)])]


def _suspend_change(view: CampaignView, run: ObservedRun, resumed: set[str]) -> dict[str, Any]:
    if (reason := suspend_reason_of(view)) and not run.ended and not run.suspended:
        return _with_suspend_reason({"spec": {"suspend": True}}, reason)
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
