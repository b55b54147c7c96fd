"""The status of a campaign: its conditions, counts, best result, and one row per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from specbench_api.errors import InvalidSpec
from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.spec.campaign_limits import RUNS_MAX
from specbench_api.spec.campaign_status import (
    CampaignCondition,
    CampaignPhase,
    CampaignRound,
    CampaignRunStatus,
    CampaignStatus,
    RunCounts,
)
from specbench_api.spec.campaign_status import CampaignConditionType as Kind
from specbench_api.spec.status import NONE_FASTER
from specbench_operator.campaign.rounds import RequiredRun, next_firing
from specbench_operator.campaign.view import CampaignView, forecast_gpu_hours
from specbench_operator.state.campaign import ObservedRun, OtherRunKind
from specbench_operator.state.conditions import (
    UNFINISHED,
    ConditionValue,
    list_names,
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
        succeeded=len(view.succeeded),
        failed=len(view.failed) + len(view.name_taken),
        untrustworthy=len(view.untrustworthy),
    )


def best_of(view: CampaignView) -> str:
    """The largest speed-up of all trustworthy runs with its combination; "none faster" if a complete round has none."""
    combinations = {planned.name: planned.short_combination for planned in view.plan.runs}
    trusted = [run for run in view.succeeded if not run.is_false("Trustworthy") and run.best]
    faster = [(run.speedup, run) for run in trusted if run.speedup is not None]
    if faster:
        run = max(faster, key=lambda pair: (pair[0], pair[1].name))[1]
        return f"{run.best} ({combinations[run.name]})"[:160]
    return NONE_FASTER if trusted and view.complete else ""


def trust_of(view: CampaignView) -> str:
    """Trustworthy, or how many runs are not; empty while it is unknown."""
    succeeded, untrustworthy = view.succeeded, view.untrustworthy
    if untrustworthy:
        return f"{len(untrustworthy)} of {len(succeeded)} untrustworthy"
    return "Trustworthy" if succeeded and view.complete else ""


def gate_of(view: CampaignView) -> str:
    """How many of the runs that have a gate passed it; empty if none has."""
    gated = [run for run in view.existing if Kind.GATE_PASSED in run.conditions]
    passed, failed = (
        sum(run.is_true(Kind.GATE_PASSED) for run in gated),
        sum(run.is_false(Kind.GATE_PASSED) for run in gated),
    )
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
        progress=run.progress.partition(" ")[0][:12],
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
    spent, budget = round(view.spending.spent / SECONDS_AN_HOUR, 3), view.spec.budget.gpu_hours
    return CampaignStatus(
        observed_generation=view.generation,
        phase=state.phase,
        conditions=conditions_of(view, state),
        round=_round(view),
        counts=counts_of(view),
        progress=f"{sum(run.over for run in view.existing) + len(view.name_taken)}/{len(view.plan.runs)}",
        best=best_of(view),
        trust=trust_of(view),
        gate=gate_of(view),
        gpu_hours_spent=spent,
        gpu_hours_estimated=forecast_gpu_hours(view),
        gpu_seconds_deleted=view.spending.deleted,
        budget=f"{spent:.1f} GPU-hours" if budget is None else f"{spent:.1f} of {budget:g} GPU-hours",
        runs=rows_of(view),
        last_schedule_time=view.round.fire_time or view.previous.last_schedule_time,
        next_schedule_time=format_timestamp(next_time) if next_time else None,
    )


def _round(view: CampaignView) -> CampaignRound:
    """The round; if it is complete, with the time at which its last run ended."""
    if not view.complete:
        return view.round.model_copy(update={"completion_time": None})
    ended = max((run.completed_at for run in view.existing if run.completed_at), default=None)
    completed = format_timestamp(ended) if ended else view.round.completion_time or format_timestamp(view.now)
    return view.round.model_copy(update={"completion_time": completed})


# The conditions of a campaign, one function per type.


@dataclass(frozen=True)
class CampaignState:
    """The phase of a campaign, with its reason and message.

    At most one of `ready`, `reconciling` and `stalled` is true; none of them while the campaign is suspended.
    """

    phase: CampaignPhase
    reason: str
    message: str = ""
    ready: bool = False
    reconciling: bool = False
    stalled: bool = False


def conditions_of(view: CampaignView, state: CampaignState) -> list[CampaignCondition]:
    """All conditions of the campaign, in the order of CampaignConditionType."""
    values = {kind: rule(view, state) for kind, rule in _CONDITION_RULES.items()} | tool_conditions(state)
    return with_transition_times(CampaignCondition, values, view.previous, view.generation, view.now)


def tool_conditions(state: CampaignState) -> dict[Kind, ConditionValue]:
    """The conditions that tools read: Ready, Reconciling and Stalled."""
    return tool_values(
        Kind,
        str(state.phase),
        state.reason,
        state.message,
        ready=state.ready,
        reconciling=state.reconciling,
        stalled=state.stalled,
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
    all_stored = view.complete and bool(view.succeeded)
    return yes("Stored") if all_stored else unknown(UNFINISHED)


def _trustworthy(view: CampaignView, _state: CampaignState) -> ConditionValue:
    untrustworthy, succeeded = view.untrustworthy, view.succeeded
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
    gated = [run for run in view.existing if Kind.GATE_PASSED in run.conditions]
    failed = [run for run in gated if run.is_false(Kind.GATE_PASSED)]
    if failed:
        named = [f"{run.name} ({run.conditions[Kind.GATE_PASSED].reason})" for run in failed]
        return no("GateFailed", f"{len(failed)} of {len(gated)} runs: {list_names(named)}")
    if not gated:
        return unknown("NoGate")
    passed = all(run.is_true(Kind.GATE_PASSED) for run in gated)
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
_ABSENT_IF_INVALID = (Kind.QUEUED, Kind.BUDGET_EXHAUSTED)
"""Conditions that an invalid campaign does not have; the others of these rules are Unknown."""


def invalid_conditions(
    error: InvalidSpec, previous: CampaignStatus, generation: int, now: datetime
) -> list[CampaignCondition]:
    """The conditions of an invalid campaign: Validated=False with all problems."""
    message = "; ".join(map(str, error.problems))
    values = {
        **{kind: unknown(UNFINISHED) for kind in _CONDITION_RULES if kind not in _ABSENT_IF_INVALID},
        Kind.VALIDATED: no(error.reason, message),
        **tool_conditions(CampaignState(CampaignPhase.INVALID, error.reason, message, stalled=True)),
    }
    return with_transition_times(CampaignCondition, values, previous, generation, now)
