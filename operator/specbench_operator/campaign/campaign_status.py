"""Builds the CampaignStatus from the CampaignView: counts, best result, trust, gate, budget, and one row per run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specbench_api.outcome.summary import NONE_FASTER
from specbench_api.plan.estimate import SECONDS_AN_HOUR
from specbench_api.spec.campaign import RUNS_MAX
from specbench_api.spec.campaign_status import CampaignRound, CampaignRunStatus, CampaignStatus, RunCounts
from specbench_operator.campaign.campaign_view import (
    GATE_PASSED,
    CampaignView,
    forecast_gpu_hours,
    succeeded_runs,
    untrustworthy_runs,
)
from specbench_operator.campaign.conditions import CampaignState, conditions_of
from specbench_operator.campaign.round_plan import RequiredRun
from specbench_operator.campaign.schedule import next_firing
from specbench_operator.state.campaign import ObservedRun, OtherRunKind
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
