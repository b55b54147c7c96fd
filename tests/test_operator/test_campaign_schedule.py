"""When a schedule fires: macros, time zones, daylight saving time, and schedules that never fire."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from specbench_api.spec.campaign import CampaignSpec
from specbench_operator.campaign.schedule import fires_at, last_firing, next_firing
from specbench_testing.campaigns import campaign_of


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def spec(schedule: str, zone: str | None = None) -> CampaignSpec:
    edits = {"spec.schedule": schedule} | ({"spec.timeZone": zone} if zone else {})
    return campaign_of(edits).spec


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "fires"),
    [
        ("0 3 * * *", None, "2026-01-02T03:00:00", "2026-01-03T03:00:00"),
        ("0 3 * * *", None, "2026-01-02T02:59:59.5", "2026-01-02T03:00:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-01-02T12:00:00", "2026-01-03T02:00:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-07-02T12:00:00", "2026-07-03T01:00:00"),
        ("0 3 * * mon-fri", None, "2026-01-02T12:00:00", "2026-01-05T03:00:00"),
        ("@hourly", None, "2026-01-02T12:00:00", "2026-01-02T13:00:00"),
        ("@daily", None, "2026-01-02T12:00:00", "2026-01-03T00:00:00"),
        ("@weekly", None, "2026-01-02T12:00:00", "2026-01-04T00:00:00"),
        ("@monthly", None, "2026-01-02T12:00:00", "2026-02-01T00:00:00"),
        ("@yearly", None, "2026-01-02T12:00:00", "2027-01-01T00:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("0 0 29 2 *", None, "2026-01-02T12:00:00", "2028-02-29T00:00:00"),
    ],
)
def test_a_schedule_fires_at_the_expected_times(schedule: str, zone: str | None, after: str, fires: str) -> None:
    given = spec(schedule, zone)
    assert next_firing(given, at(after)) == at(fires)
    assert fires_at(given, at(fires))
    assert last_firing(given, at(fires)) == at(fires)
    assert not fires_at(given, at(fires).replace(second=1))


@pytest.mark.parametrize("schedule", ["", "0 0 31 2 *"])
def test_a_schedule_that_never_fires_has_no_next_or_last_firing(schedule: str) -> None:
    given = spec(schedule)
    assert next_firing(given, at("2026-01-02T12:00:00")) is None
    assert last_firing(given, at("2026-01-02T12:00:00")) is None
