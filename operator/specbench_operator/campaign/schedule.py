"""When a campaign's schedule fires: cron, in its time zone.

A time that does not exist where clocks go forward fires at the next that does; one that comes twice where they go back
fires once (as Debian's cron has it, by the library).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from specbench_api.spec.campaign import CampaignSpec

WORDS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)


def next_firing(spec: CampaignSpec, after: datetime) -> datetime | None:
    """The first firing after a moment; None without a schedule, or for one that never fires (31 February)."""
    return _firing(spec, after, reverse=False)


def last_firing(spec: CampaignSpec, until: datetime) -> datetime | None:
    """The latest firing up to a moment, that moment included."""
    return _firing(spec, until.replace(microsecond=0) + _SECOND, reverse=True)


def fires_at(spec: CampaignSpec, moment: datetime) -> bool:
    """Whether the schedule has this very moment."""
    return last_firing(spec, moment) == moment


def _firing(spec: CampaignSpec, moment: datetime, *, reverse: bool) -> datetime | None:
    if not spec.schedule:
        return None
    local = moment.replace(microsecond=0).astimezone(ZoneInfo(spec.time_zone or "UTC"))
    try:
        found = next(CronSim(WORDS.get(spec.schedule, spec.schedule), local, reverse=reverse))
    except (CronSimError, StopIteration):
        return None
    return found.astimezone(UTC)
