"""Which runs of a campaign to patch, delete and create.

Only the campaign's own runs are changed. Nothing is created while the campaign suspends its runs, and never more runs
than `parallelism` allows. Runs that the campaign suspended are resumed before new ones are created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specbench_operator.campaign.campaign_view import CampaignView
from specbench_operator.campaign.round_plan import PROPAGATED, RequiredRun, run_manifest
from specbench_operator.state.campaign import ANNOTATION_SUSPEND_REASON, ObservedRun, RunDeletion, RunPatch


def gate_baselines(view: CampaignView) -> frozenset[str]:
    """Names of runs of earlier rounds that gates of this round compare with, and that are therefore not deleted.

    For each combination whose gate refers to this campaign, it is the newest earlier run that has results, as in
    `reconcile.gate.find_baseline`. So at most one run per combination is kept beyond `runHistoryLimit`.
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
