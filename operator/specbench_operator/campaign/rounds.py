"""Which round is at work, and whether another one begins.

Status keeps the round, and runs bear it: the newest that either knows counts, so that a status which was lost, or never
written after runs were created, is read again from the runs. What was announced as the next firing is the one thing
that only status knows: where it is lost, a firing that came due in between is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignStatus, Round
from specbench_operator.campaign.schedule import fires_at, last_firing
from specbench_operator.reconcile.moments import from_text, to_text
from specbench_operator.state.campaign import RunSeen

TOKEN_MAX = 64


@dataclass(frozen=True)
class Firing:
    """A firing of the schedule that came due. `missed`: why it begins no round; empty where it does."""

    at: datetime
    missed: str = ""


def present_round(previous: CampaignStatus, runs: Sequence[RunSeen], token: str, now: datetime) -> Round:
    """The round at work, or the last one; the first where there was none."""
    told = previous.round if previous.round and previous.round.number >= 1 else None
    newest = max((run.number for run in runs if run.number), default=0)
    if told and told.number >= newest:
        return told
    if newest == 0:
        return Round(number=1, token=token, start_time=to_text(now))
    oldest = min((run for run in runs if run.number == newest), key=lambda run: (run.created_at, run.name))
    fired = from_text(oldest.fire_time)  # annotations may have been edited by hand
    return Round(
        number=newest,
        token=oldest.rerun[:TOKEN_MAX],
        fire_time=to_text(fired) if fired else None,
        start_time=to_text(oldest.created_at),
    )


def due_firing(
    spec: CampaignSpec, previous: CampaignStatus, present: Round, now: datetime, *, at_rest: bool
) -> Firing | None:
    """The firing that is to be acted upon, or left out, at this look; of several that were missed, the latest."""
    announced = from_text(previous.next_schedule_time)
    if announced is None or announced > now or not fires_at(spec, announced):
        return None
    latest = last_firing(spec, now) or announced
    if (acted := from_text(present.fire_time)) and latest <= acted:
        return None
    deadline = spec.starting_deadline_seconds
    if spec.suspend:
        return Firing(latest, "the campaign is suspended")
    if not at_rest:
        return Firing(latest, f"round {present.number} is still at work")
    if deadline is not None and now - latest > timedelta(seconds=deadline):
        return Firing(latest, f"it could not begin within startingDeadlineSeconds ({deadline})")
    return Firing(latest)


def following_round(
    spec: CampaignSpec, present: Round, firing: Firing | None, now: datetime, *, at_rest: bool
) -> Round | None:
    """The round that begins now, or None."""
    if spec.suspend or not at_rest:
        return None
    fired = firing if firing and not firing.missed else None
    asked = spec.rerun not in ("", present.token)
    if not (asked or fired):
        return None
    return Round(
        number=present.number + 1,
        token=spec.rerun or present.token,
        fire_time=to_text(fired.at) if fired else None,
        start_time=to_text(now),
    )
