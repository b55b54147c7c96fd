"""The decide function: one campaign, all its runs, and the time → what is to be done and said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from specbench_api.errors import InvalidSpec
from specbench_api.spec.campaign_status import CampaignStatus
from specbench_api.spec.reading import parse_campaign
from specbench_operator.campaign.actions import creations, deletions, patches
from specbench_operator.campaign.course import course_of
from specbench_operator.campaign.refused import invalid
from specbench_operator.campaign.rounds import Firing, due_firing, following_round, present_round
from specbench_operator.campaign.scene import scene_of, status_of
from specbench_operator.campaign.status import status_now
from specbench_operator.campaign.transitions import events_between
from specbench_operator.reconcile.launches.judgement import soonest
from specbench_operator.reconcile.moments import from_text, to_text
from specbench_operator.reconcile.telling.transitions import NORMAL
from specbench_operator.state.campaign import CampaignDecision, CampaignObserved
from specbench_operator.state.decision import Event


def decide(observed: CampaignObserved, now: datetime) -> CampaignDecision:
    """Decide. Never raises for anything that was observed."""
    resource = observed.resource
    previous = status_of(resource)
    if resource["metadata"].get("deletionTimestamp"):
        return CampaignDecision(previous)  # the garbage collector takes the runs
    try:
        return _decide(observed, previous, now)
    except InvalidSpec as error:
        return invalid(resource, error, previous, now)


def _decide(observed: CampaignObserved, previous: CampaignStatus, now: datetime) -> CampaignDecision:
    spec = parse_campaign(observed.resource).spec
    present = present_round(previous, observed.runs, spec.rerun, now)
    scene = scene_of(observed, previous, present, now)
    firing = due_firing(spec, previous, present, now, at_rest=scene.at_rest)
    following = following_round(spec, present, firing, now, at_rest=scene.at_rest)
    if following:
        scene = scene_of(observed, previous, following, now)
    status = status_now(scene, course_of(scene))
    return CampaignDecision(
        status=status,
        patch=patches(scene),
        delete=deletions(scene),
        create=creations(scene),
        events=(*_of_firing(firing), *events_between(previous, status)),
        look_again_s=soonest(scene.spending.look_again_s, _until_next(status, now)),
    )


def _of_firing(firing: Firing | None) -> Iterator[Event]:
    if firing and firing.missed:
        yield Event(NORMAL, "FiringSkipped", f"the firing of {to_text(firing.at)} is left out: {firing.missed}")


def _until_next(status: CampaignStatus, now: datetime) -> float | None:
    following = from_text(status.next_schedule_time)
    return None if following is None else max((following - now).total_seconds(), 0.0)
