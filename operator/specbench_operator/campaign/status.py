"""CampaignStatus, put together from where everything stands."""

from __future__ import annotations

from specbench_api.spec.campaign_status import CampaignStatus, Round
from specbench_operator.campaign.conditions import conditions_of
from specbench_operator.campaign.course import Course
from specbench_operator.campaign.rollup import best_of, counts_of, gate_of, progress_of, rows_of, verdict_of
from specbench_operator.campaign.scene import Scene
from specbench_operator.campaign.schedule import next_firing
from specbench_operator.campaign.spending import SECONDS_AN_HOUR
from specbench_operator.reconcile.moments import to_text


def status_now(scene: Scene, course: Course) -> CampaignStatus:
    """The status that this look calls for."""
    following = next_firing(scene.spec, scene.now)
    spent = round(scene.spending.spent / SECONDS_AN_HOUR, 3)
    return CampaignStatus(
        observed_generation=scene.generation,
        phase=course.phase,
        conditions=conditions_of(scene, course),
        round=_round(scene),
        counts=counts_of(scene),
        progress=progress_of(scene),
        best=best_of(scene),
        verdict=verdict_of(scene),
        gate=gate_of(scene),
        gpu_hours_spent=spent,
        gpu_hours_estimated=scene.plan.gpu_hours,
        gpu_seconds_deleted=scene.spending.deleted,
        budget=budget_text(spent, scene.spec.budget.gpu_hours),
        runs=rows_of(scene),
        last_schedule_time=scene.round.fire_time or scene.previous.last_schedule_time,
        next_schedule_time=to_text(following) if following else None,
    )


def budget_text(spent: float, budget: float | None) -> str:
    """GPU-hours for people."""
    return f"{spent:.1f} GPU-hours" if budget is None else f"{spent:.1f} of {budget:g} GPU-hours"


def _round(scene: Scene) -> Round:
    """The round, with its end where it has one: when its last run ended."""
    if not scene.complete:
        return scene.round.model_copy(update={"completion_time": None})
    ended = max((run.completed_at for run in scene.begun if run.completed_at), default=None)
    told = to_text(ended) if ended else scene.round.completion_time or to_text(scene.now)
    return scene.round.model_copy(update={"completion_time": told})
