"""The rounds of a campaign: when its cron schedule fires, which round is current, and when the next one starts.

With daylight saving time, a time that does not exist fires at the next time that does, and a time that exists twice
fires once. The library `cronsim` implements this like Debian's cron.

Status contains the current round, and so do the labels and annotations of runs. The newest of them counts, so a lost
status is restored from the runs. Only the announced next firing is in status alone: if status is lost, a firing that
came due in between is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from specbench_api.spec.campaign import CampaignSpec
from specbench_api.spec.campaign_status import CampaignRound, CampaignStatus
from specbench_operator.state.campaign import ObservedRun
from specbench_operator.state.timestamps import format_timestamp, parse_timestamp

CRON_MACROS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)


def next_firing(spec: CampaignSpec, after: datetime) -> datetime | None:
    """The first firing after a time; None without a schedule, or for one that never fires (31 February)."""
    return _firing(spec, after, reverse=False)


def last_firing(spec: CampaignSpec, until: datetime) -> datetime | None:
    """The latest firing up to and including a time; None if there is none."""
    return _firing(spec, until.replace(microsecond=0) + _SECOND, reverse=True)


def fires_at(spec: CampaignSpec, moment: datetime) -> bool:
    """Whether the schedule fires at exactly this time."""
    return last_firing(spec, moment) == moment


def _firing(spec: CampaignSpec, moment: datetime, *, reverse: bool) -> datetime | None:
    if not spec.schedule:
        return None
    local = moment.replace(microsecond=0).astimezone(ZoneInfo(spec.time_zone or "UTC"))
    try:
        found = next(CronSim(CRON_MACROS.get(spec.schedule, spec.schedule), local, reverse=reverse))
    except (CronSimError, StopIteration):
        return None
    return found.astimezone(UTC)


TOKEN_MAX = 64


@dataclass(frozen=True)
class Firing:
    """A firing of the schedule that is due. `missed`: why it starts no round; empty if it may start one."""

    at: datetime
    missed: str = ""


def current_round(previous: CampaignStatus, runs: Sequence[ObservedRun], token: str, now: datetime) -> CampaignRound:
    """The round in progress, else the last one, else the first round, from status or from the runs."""
    known = previous.round if previous.round and previous.round.number >= 1 else None
    newest = max((run.number for run in runs if run.number), default=0)
    if known and known.number >= newest:
        return known
    if newest == 0:
        return CampaignRound(number=1, token=token, start_time=format_timestamp(now))
    oldest = min((run for run in runs if run.number == newest), key=lambda run: (run.created_at, run.name))
    fired = parse_timestamp(oldest.fire_time)  # annotations may have been edited by hand
    return CampaignRound(
        number=newest,
        token=oldest.rerun[:TOKEN_MAX],
        fire_time=format_timestamp(fired) if fired else None,
        start_time=format_timestamp(oldest.created_at),
    )


def due_firing(
    spec: CampaignSpec, previous: CampaignStatus, current: CampaignRound, now: datetime, *, at_rest: bool
) -> Firing | None:
    """The firing to handle now; None if no firing is due. If several were missed, only the latest is handled."""
    announced = parse_timestamp(previous.next_schedule_time)
    if announced is None or announced > now or not fires_at(spec, announced):
        return None
    latest = last_firing(spec, now) or announced
    if (handled := parse_timestamp(current.fire_time)) and latest <= handled:
        return None
    deadline = spec.starting_deadline_seconds
    if spec.suspend:
        return Firing(latest, "the campaign is suspended (spec.suspend)")
    if not at_rest:
        return Firing(latest, f"round {current.number} is still running")
    if deadline is not None and now - latest > timedelta(seconds=deadline):
        return Firing(latest, f"it could not start within spec.startingDeadlineSeconds ({deadline})")
    return Firing(latest)


def next_round(
    spec: CampaignSpec, current: CampaignRound, firing: Firing | None, now: datetime, *, at_rest: bool
) -> CampaignRound | None:
    """The round that starts now, because of the schedule or a new `rerun` token; None if none does."""
    if spec.suspend or not at_rest:
        return None
    fired = firing if firing and not firing.missed else None
    requested = spec.rerun not in ("", current.token)
    if not (requested or fired):
        return None
    return CampaignRound(
        number=current.number + 1,
        token=spec.rerun or current.token,
        fire_time=format_timestamp(fired.at) if fired else None,
        start_time=format_timestamp(now),
    )
