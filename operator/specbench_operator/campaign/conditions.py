"""The conditions of a campaign, each told by one function from where everything stands.

Nothing here may depend on how much time passed, or every look would write a new status and wake the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from specbench_api.spec.campaign_status import CampaignCondition, CampaignConditionType, CampaignStatus
from specbench_operator.campaign.course import Course, named
from specbench_operator.campaign.rollup import GATE, succeeded, untrustworthy
from specbench_operator.campaign.scene import Scene, condition_of
from specbench_operator.campaign.spending import SECONDS_AN_HOUR
from specbench_operator.reconcile.moments import to_text
from specbench_operator.reconcile.telling.conditions import MESSAGE_MAX, UNFINISHED, Said, camel, no, unknown, yes
from specbench_operator.state.campaign import RunSeen

Kind = CampaignConditionType


def conditions_of(scene: Scene, course: Course) -> list[CampaignCondition]:
    """All of them, in the order of the vocabulary."""
    said = {kind: tell(scene, course) for kind, tell in _TOLD_BY.items()} | for_tools(course)
    return dated(said, scene.previous, scene.generation, scene.now)


def dated(
    said: Mapping[Kind, Said], previous: CampaignStatus, generation: int, now: datetime
) -> list[CampaignCondition]:
    """With their times: the old one where status did not flip."""
    return [
        CampaignCondition(
            type=kind,
            status=said[kind].status,
            reason=camel(said[kind].reason),
            message=said[kind].message[:MESSAGE_MAX],
            last_transition_time=_since(previous, kind, said[kind], now),
            observed_generation=generation,
        )
        for kind in Kind
        if kind in said
    ]


def for_tools(course: Course) -> dict[Kind, Said]:
    """Ready, Reconciling and Stalled, as kstatus reads them. The last two are never True together."""
    told = {Kind.READY: course.ready, Kind.RECONCILING: course.reconciling, Kind.STALLED: course.stalled}
    return {
        kind: (yes if holds else no)(course.reason if holds or kind is Kind.READY else str(course.phase), message)
        for kind, holds in told.items()
        for message in [course.message if holds or kind is Kind.READY else ""]
    }


def _since(previous: CampaignStatus, kind: Kind, said: Said, now: datetime) -> str:
    before = condition_of(previous, kind)
    return before.last_transition_time if before and before.status is said.status else to_text(now)


def _validated(scene: Scene, _course: Course) -> Said:
    return yes("Valid", "; ".join(scene.plan.warnings))


def _queued(scene: Scene, _course: Course) -> Said:
    waiting = [run.name for run in scene.begun if run.queued]
    return yes("WaitingForQuota", named(waiting)) if waiting else no("NotQueued")


def _load_finished(scene: Scene, course: Course) -> Said:
    so_far = f"{sum(run.over for run in scene.begun)} of {len(scene.plan.runs)} runs have ended"
    return yes("Finished", so_far) if scene.complete else no(course.reason, so_far)


def _results_durable(scene: Scene, _course: Course) -> Said:
    lost = [run for run in scene.begun if run.is_false("ResultsDurable")]
    if lost:
        told = lost[0].conditions["ResultsDurable"]
        return no(told.reason, f"{named(_names(lost))}: {told.message}")
    whole = scene.complete and bool(succeeded(scene))
    return yes("Durable") if whole else unknown(UNFINISHED)


def _trustworthy(scene: Scene, _course: Course) -> Said:
    doubtful, good = untrustworthy(scene), succeeded(scene)
    if doubtful:
        told = [f"{run.name} ({run.conditions['Trustworthy'].reason})" for run in doubtful]
        return no("Untrustworthy", f"{len(doubtful)} of {len(good)} runs: {named(told)}")
    return yes("Trustworthy", f"{len(good)} runs") if good and scene.complete else unknown(UNFINISHED)


def _budget_exhausted(scene: Scene, _course: Course) -> Said:
    hours = scene.spec.budget.gpu_hours
    if hours is None:
        return no("NoBudget")
    spent = f"{scene.spending.spent / SECONDS_AN_HOUR:.1f} of {hours:g} GPU-hours are spent"
    if scene.complete:
        return no("Finished", spent)  # nothing was cut off, though it may have taken the last of it
    if scene.exhausted:
        return yes("BudgetExhausted", spent)
    expected = scene.plan.gpu_hours
    if expected > hours:
        told = (
            f"the round is estimated to take {expected:g} GPU-hours, and the budget has {hours:g}: it will be cut off"
        )
        return no("EstimateOverBudget", told)
    return no("WithinBudget", f"the round is estimated to take {expected:g} of {hours:g} GPU-hours")


def _gate_passed(scene: Scene, _course: Course) -> Said:
    gated = [run for run in scene.begun if GATE in run.conditions]
    failed = [run for run in gated if run.is_false(GATE)]
    if failed:
        told = [f"{run.name} ({run.conditions[GATE].reason})" for run in failed]
        return no("GateFailed", f"{len(failed)} of {len(gated)} runs: {named(told)}")
    if not gated:
        return unknown("NoGate")
    passed = all(run.is_true(GATE) for run in gated)
    return yes("GatePassed", f"{len(gated)} runs") if passed and scene.complete else unknown(UNFINISHED)


def _names(runs: Iterable[RunSeen]) -> list[str]:
    return [run.name for run in runs]


_TOLD_BY: Mapping[Kind, Callable[[Scene, Course], Said]] = {
    Kind.VALIDATED: _validated,
    Kind.QUEUED: _queued,
    Kind.LOAD_FINISHED: _load_finished,
    Kind.RESULTS_DURABLE: _results_durable,
    Kind.TRUSTWORTHY: _trustworthy,
    Kind.BUDGET_EXHAUSTED: _budget_exhausted,
    Kind.GATE_PASSED: _gate_passed,
}
