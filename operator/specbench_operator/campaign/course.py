"""Where the campaign as a whole stands: one phase with one reason, from which the conditions for tools are read off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench_api.spec.campaign_status import CampaignPhase
from specbench_operator.campaign.scene import Scene

NAMED_MAX = 3
"""Runs that a message names."""


@dataclass(frozen=True)
class Course:
    """At most one of the three is true; none is while the campaign is suspended."""

    phase: CampaignPhase
    reason: str
    message: str = ""
    ready: bool = False
    reconciling: bool = False
    stalled: bool = False


def course_of(scene: Scene) -> Course:
    """Determine it."""
    if scene.complete:
        return _complete(scene)
    if scene.spec.suspend:
        message = "spec.suspend is true: the GPUs are given back, results are kept"
        return Course(CampaignPhase.SUSPENDED, "Suspended", message)
    if scene.exhausted:
        return _budget_spent(scene)
    if scene.stopped:
        return _stopped(scene)
    return _at_work(scene)


def named(names: Sequence[str]) -> str:
    """Some names for a message, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _complete(scene: Scene) -> Course:
    total = len(scene.plan.runs)
    bad = [*(run.name for run in scene.failed), *(run.name for run in scene.taken)]
    if len(bad) == total:
        message = f"no run has results: {_why(scene)}"
        return Course(CampaignPhase.FAILED, "NothingMeasured", message, stalled=True)
    finished = CampaignPhase.SCHEDULED if scene.spec.schedule else CampaignPhase.SUCCEEDED
    if bad:
        phase = finished if scene.spec.schedule else CampaignPhase.FAILED
        message = f"{len(bad)} of {total} runs failed: {_why(scene)}; delete a run to have it made again"
        return Course(phase, "FinishedWithFailures", message, ready=True)
    return Course(finished, "Finished", f"{total} runs", ready=True)


def _why(scene: Scene) -> str:
    """The runs that failed, each with its reason."""
    told = [
        f"{run.name} ({run.conditions['Stalled'].reason})" if "Stalled" in run.conditions else run.name
        for run in scene.failed
    ]
    return named([*told, *(f"{wanted.name} (NameTaken)" for wanted in scene.taken)])


def _budget_spent(scene: Scene) -> Course:
    if scene.at_work:
        message = f"the budget is spent; {named([run.name for run in scene.at_work])} give their GPUs back"
        return Course(CampaignPhase.RUNNING, "BudgetExhausted", message, reconciling=True)
    message = "the budget is spent, and what has not ended waits: raise spec.budget.gpuHours to go on"
    return Course(CampaignPhase.FAILED, "BudgetExhausted", message, stalled=True)


def _stopped(scene: Scene) -> Course:
    failed = f"{len(scene.failed)} failed ({_why(scene)}), and failurePolicy is Stop: no run begins any more"
    if not scene.at_rest:
        unfinished = [run.name for run in scene.begun if not run.over]
        return Course(CampaignPhase.RUNNING, "TooManyFailed", f"{failed}; {named(unfinished)} end", reconciling=True)
    message = f"{failed}; delete a failed run to have it made again, or raise maxFailedRuns"
    return Course(CampaignPhase.FAILED, "TooManyFailed", message, stalled=True)


def _at_work(scene: Scene) -> Course:
    unfinished = [run for run in scene.begun if not run.over]
    if scene.taken_over:
        message = f"{named([run.name for run in scene.taken_over])} belonged to nobody, and becomes the campaign's own"
        return Course(CampaignPhase.RUNNING, "TakingOver", message, reconciling=True)
    if not (unfinished or scene.missing):
        left = named([run.name for run in scene.awaited])
        message = f"an earlier campaign of this name left {left}: waiting for Kubernetes to remove them"
        return Course(CampaignPhase.PENDING, "WaitingForRemoval", message, reconciling=True)
    if not scene.begun:
        return Course(CampaignPhase.PENDING, "Pending", reconciling=True)
    paused = [run.name for run in unfinished if run.suspended and not run.held]
    if paused and len(paused) == len(unfinished):
        message = f"{named(paused)} was suspended by hand, and has its place: resume it, or raise parallelism"
        return Course(CampaignPhase.RUNNING, "WaitingForResume", message, reconciling=True)
    return Course(CampaignPhase.RUNNING, "Running", f"round {scene.round.number}", reconciling=True)
