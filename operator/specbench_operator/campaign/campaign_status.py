"""The status of a campaign from its CampaignView: phase, conditions, counts, best result, and one row per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specbench_api.plan.size import SECONDS_AN_HOUR
from specbench_api.spec.campaign import RUNS_MAX
from specbench_api.spec.campaign_status import (
    CampaignCondition,
    CampaignConditionType,
    CampaignPhase,
    CampaignRound,
    CampaignRunStatus,
    CampaignStatus,
    RunCounts,
)
from specbench_api.spec.status import NONE_FASTER
from specbench_operator.campaign.campaign_view import (
    GATE_PASSED,
    CampaignView,
    forecast_gpu_hours,
    succeeded_runs,
    untrustworthy_runs,
)
from specbench_operator.campaign.rounds import RequiredRun, next_firing
from specbench_operator.state.campaign import ObservedRun, OtherRunKind
from specbench_operator.state.conditions import (
    UNFINISHED,
    ConditionValue,
    no,
    tool_values,
    unknown,
    with_transition_times,
    yes,
)
from specbench_operator.state.timestamps import format_timestamp

OTHER_RUN_REASONS: Mapping[OtherRunKind, str] = {
    OtherRunKind.FOREIGN: "NameTaken",
    OtherRunKind.LEFTOVER: "WaitingForRemoval",
}
"""Reason why a planned run is not created, by who owns the run that has its name."""


def counts_of(view: CampaignView) -> RunCounts:
    """Counts of the plan's runs. Each is counted once, except that untrustworthy runs are counted as succeeded too."""
    queued = [run for run in view.existing if run.queued]
    active = [run for run in view.existing if not run.over and not run.queued]
    return RunCounts(
        total=len(view.plan.runs),
        active=len(active),
        queued=len(queued),
        succeeded=len(succeeded_runs(view)),
        failed=len(view.failed) + len(view.name_taken),
        untrustworthy=len(untrustworthy_runs(view)),
    )


def progress_of(view: CampaignView) -> str:
    """The number of runs that have ended, of all planned runs."""
    return f"{sum(run.over for run in view.existing) + len(view.name_taken)}/{len(view.plan.runs)}"


def best_of(view: CampaignView) -> str:
    """The largest speed-up of all trustworthy runs with its combination; "none faster" if a complete round has none."""
    combinations = {planned.name: planned.short_combination for planned in view.plan.runs}
    trusted = [run for run in succeeded_runs(view) if not run.is_false("Trustworthy") and run.best]
    faster = [(run.speedup, run) for run in trusted if run.speedup is not None]
    if faster:
        run = max(faster, key=lambda pair: (pair[0], pair[1].name))[1]
        return f"{run.best} ({combinations[run.name]})"[:160]
    return NONE_FASTER if trusted and view.complete else ""


def trust_of(view: CampaignView) -> str:
    """Trustworthy, or how many runs are not; empty while it is unknown."""
    succeeded, untrustworthy = succeeded_runs(view), untrustworthy_runs(view)
    if untrustworthy:
        return f"{len(untrustworthy)} of {len(succeeded)} untrustworthy"
    return "Trustworthy" if succeeded and view.complete else ""


def gate_of(view: CampaignView) -> str:
    """How many of the runs that have a gate passed it; empty if none has."""
    gated = [run for run in view.existing if GATE_PASSED in run.conditions]
    passed, failed = sum(run.is_true(GATE_PASSED) for run in gated), sum(run.is_false(GATE_PASSED) for run in gated)
    parts = (f"{passed} of {len(gated)} passed", f"{failed} failed" if failed else "")
    return ", ".join(part for part in parts if part) if gated else ""


def rows_of(view: CampaignView) -> list[CampaignRunStatus]:
    """One row per planned run, in the plan's order; then existing runs of this round that left the matrix."""
    planned = [_planned_row(view, planned, view.own.get(planned.name)) for planned in view.plan.runs]
    removed = [run for run in view.unplanned if run.number == view.round.number]
    return [*planned, *(_run_row(view, run, "", "OffTheMatrix") for run in removed)][:RUNS_MAX]


def _planned_row(view: CampaignView, planned: RequiredRun, run: ObservedRun | None) -> CampaignRunStatus:
    if run is None:
        other = view.other_runs.get(planned.name)
        reason = OTHER_RUN_REASONS[other] if other else ""
        return CampaignRunStatus(name=planned.name, combination=planned.short_combination, reason=reason)
    return _run_row(view, run, planned.short_combination, next(_reasons(run), ""))


def _run_row(view: CampaignView, run: ObservedRun, combination: str, reason: str) -> CampaignRunStatus:
    return CampaignRunStatus(
        name=run.name,
        combination=combination,
        phase=run.phase[:16] or "Pending",
        reason=reason[:32],
        progress=run.progress[:12],
        trust=run.trust[:16],
        best=run.best[:64],
        gpu_seconds=view.spending.by_run.get(run.name),
    )


def _reasons(run: ObservedRun) -> Iterator[str]:
    """Why a run failed or waits, the most important reason first."""
    if run.deleting:
        yield "Deleting"
    if run.failed and "Stalled" in run.conditions:
        yield run.conditions["Stalled"].reason
    if run.over:
        return
    if run.suspended:
        yield run.suspend_reason or "SuspendedByHand"
    if run.queued:
        yield run.conditions["Queued"].reason
    reconciling = run.conditions.get("Reconciling")
    if reconciling and reconciling.reason != run.phase:
        yield reconciling.reason


def build_campaign_status(view: CampaignView, state: CampaignState) -> CampaignStatus:
    """The complete status of a campaign."""
    next_time = next_firing(view.spec, view.now)
    spent = round(view.spending.spent / SECONDS_AN_HOUR, 3)
    return CampaignStatus(
        observed_generation=view.generation,
        phase=state.phase,
        conditions=conditions_of(view, state),
        round=_round(view),
        counts=counts_of(view),
        progress=progress_of(view),
        best=best_of(view),
        trust=trust_of(view),
        gate=gate_of(view),
        gpu_hours_spent=spent,
        gpu_hours_estimated=forecast_gpu_hours(view),
        gpu_seconds_deleted=view.spending.deleted,
        budget=budget_text(spent, view.spec.budget.gpu_hours),
        runs=rows_of(view),
        last_schedule_time=view.round.fire_time or view.previous.last_schedule_time,
        next_schedule_time=format_timestamp(next_time) if next_time else None,
    )


def budget_text(spent: float, budget: float | None) -> str:
    """The spent GPU-hours, with the budget if there is one, for a print column."""
    return f"{spent:.1f} GPU-hours" if budget is None else f"{spent:.1f} of {budget:g} GPU-hours"


def _round(view: CampaignView) -> CampaignRound:
    """The round; if it is complete, with the time at which its last run ended."""
    if not view.complete:
        return view.round.model_copy(update={"completion_time": None})
    ended = max((run.completed_at for run in view.existing if run.completed_at), default=None)
    completed = format_timestamp(ended) if ended else view.round.completion_time or format_timestamp(view.now)
    return view.round.model_copy(update={"completion_time": completed})


# The phase of a campaign, and its conditions, one function per type.

NAMED_MAX = 3
"""Maximum number of runs that a message names."""


@dataclass(frozen=True)
class CampaignState:
    """The phase of a campaign, with its reason and message.

    At most one of `ready`, `reconciling` and `stalled` is true; none of them while the campaign is suspended.
    `failed`: the round has ended with failed runs, or cannot continue.
    """

    phase: CampaignPhase
    reason: str
    message: str = ""
    ready: bool = False
    reconciling: bool = False
    stalled: bool = False
    failed: bool = False


def campaign_state_of(view: CampaignView) -> CampaignState:
    """Determine the state of a campaign."""
    if view.complete:
        return _complete(view)
    if view.spec.suspend:
        message = "spec.suspend is true: GPUs are released and results are kept; set it to false to continue"
        return CampaignState(CampaignPhase.SUSPENDED, "Suspended", message)
    if view.exhausted:
        return _budget_spent(view)
    if view.stopped:
        return _stopped(view)
    return _in_progress(view)


def list_names(names: Sequence[str]) -> str:
    """The first names for a message, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _complete(view: CampaignView) -> CampaignState:
    total = len(view.plan.runs)
    failed = len(view.failed) + len(view.name_taken)
    if failed == total:
        message = f"no run has results: {_failed_runs_text(view)}"
        return CampaignState(CampaignPhase.FAILED, "NothingMeasured", message, stalled=True, failed=True)
    finished = CampaignPhase.SCHEDULED if view.spec.schedule else CampaignPhase.SUCCEEDED
    if failed:
        phase = finished if view.spec.schedule else CampaignPhase.FAILED
        message = f"{failed} of {total} runs failed: {_failed_runs_text(view)}; delete a failed run to repeat it"
        return CampaignState(phase, "FinishedWithFailures", message, ready=True, failed=True)
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
    return CampaignState(CampaignPhase.FAILED, "BudgetExhausted", message, stalled=True, failed=True)


def _stopped(view: CampaignView) -> CampaignState:
    failed = (
        f"{len(view.failed)} runs failed ({_failed_runs_text(view)}) and spec.failurePolicy is Stop:"
        " no further run is created"
    )
    if not view.at_rest:
        unfinished = [run.name for run in view.existing if not run.over]
        return CampaignState(
            CampaignPhase.RUNNING, "TooManyFailed", f"{failed}; waiting for {list_names(unfinished)}", reconciling=True
        )
    message = f"{failed}; delete a failed run to repeat it, or raise spec.maxFailedRuns"
    return CampaignState(CampaignPhase.FAILED, "TooManyFailed", message, stalled=True, failed=True)


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


Kind = CampaignConditionType


def conditions_of(view: CampaignView, state: CampaignState) -> list[CampaignCondition]:
    """All conditions of the campaign, in the order of CampaignConditionType."""
    values = {kind: rule(view, state) for kind, rule in _CONDITION_RULES.items()} | tool_conditions(state)
    return with_transition_times(CampaignCondition, values, view.previous, view.generation, view.now)


def tool_conditions(state: CampaignState) -> dict[Kind, ConditionValue]:
    """The conditions that tools read: Ready, Reconciling and Stalled, and Complete and Failed."""
    return tool_values(
        Kind,
        str(state.phase),
        state.reason,
        state.message,
        ready=state.ready,
        reconciling=state.reconciling,
        stalled=state.stalled,
        failed=state.failed,
    )


def _validated(view: CampaignView, _state: CampaignState) -> ConditionValue:
    return yes("Valid", "; ".join(view.plan.warnings))


def _queued(view: CampaignView, _state: CampaignState) -> ConditionValue:
    waiting = [run.name for run in view.existing if run.queued]
    return yes("WaitingForQuota", list_names(waiting)) if waiting else no("NotQueued")


def _measurement_complete(view: CampaignView, state: CampaignState) -> ConditionValue:
    so_far = f"{sum(run.over for run in view.existing)} of {len(view.plan.runs)} runs have ended"
    return yes("Finished", so_far) if view.complete else no(state.reason, so_far)


def _results_stored(view: CampaignView, _state: CampaignState) -> ConditionValue:
    not_stored = [run for run in view.existing if run.is_false("ResultsStored")]
    if not_stored:
        first = not_stored[0].conditions["ResultsStored"]
        return no(first.reason, f"{list_names([run.name for run in not_stored])}: {first.message}")
    all_stored = view.complete and bool(succeeded_runs(view))
    return yes("Stored") if all_stored else unknown(UNFINISHED)


def _trustworthy(view: CampaignView, _state: CampaignState) -> ConditionValue:
    untrustworthy, succeeded = untrustworthy_runs(view), succeeded_runs(view)
    if untrustworthy:
        named = [f"{run.name} ({run.conditions['Trustworthy'].reason})" for run in untrustworthy]
        return no("Untrustworthy", f"{len(untrustworthy)} of {len(succeeded)} runs: {list_names(named)}")
    return yes("Trustworthy", f"{len(succeeded)} runs") if succeeded and view.complete else unknown(UNFINISHED)


def _budget_exhausted(view: CampaignView, _state: CampaignState) -> ConditionValue:
    hours = view.spec.budget.gpu_hours
    if hours is None:
        return no("NoBudget")
    spent = f"{view.spending.spent / SECONDS_AN_HOUR:.1f} of {hours:g} GPU-hours are spent"
    if view.complete:
        return no("Finished", spent)  # no run was suspended for it, even if the budget is used up
    if view.exhausted:
        return yes("BudgetExhausted", spent)
    expected = forecast_gpu_hours(view)
    if expected is None:
        return no("WithinBudget", f"{spent}; no launch of this round was measured yet, so its hours are not known")
    if expected > hours:
        message = (
            f"the round is estimated to take {expected:g} GPU-hours, more than spec.budget.gpuHours ({hours:g}):"
            " runs will be suspended when the budget is exhausted"
        )
        return no("EstimateOverBudget", message)
    return no("WithinBudget", f"the round is estimated to take {expected:g} of {hours:g} GPU-hours")


def _gate_passed(view: CampaignView, _state: CampaignState) -> ConditionValue:
    gated = [run for run in view.existing if GATE_PASSED in run.conditions]
    failed = [run for run in gated if run.is_false(GATE_PASSED)]
    if failed:
        named = [f"{run.name} ({run.conditions[GATE_PASSED].reason})" for run in failed]
        return no("GateFailed", f"{len(failed)} of {len(gated)} runs: {list_names(named)}")
    if not gated:
        return unknown("NoGate")
    passed = all(run.is_true(GATE_PASSED) for run in gated)
    return yes("GatePassed", f"{len(gated)} runs") if passed and view.complete else unknown(UNFINISHED)


_CONDITION_RULES: Mapping[Kind, Callable[[CampaignView, CampaignState], ConditionValue]] = {
    Kind.VALIDATED: _validated,
    Kind.QUEUED: _queued,
    Kind.MEASUREMENT_COMPLETE: _measurement_complete,
    Kind.RESULTS_STORED: _results_stored,
    Kind.TRUSTWORTHY: _trustworthy,
    Kind.BUDGET_EXHAUSTED: _budget_exhausted,
    Kind.GATE_PASSED: _gate_passed,
}
