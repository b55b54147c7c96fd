"""A schedule of draft lengths in words, for a terminal."""

from __future__ import annotations

import json
import shlex

from specbench_api.outcome.schedule import EngineSchedule, How, Option, Schedule, ScheduleRange
from specbench_client.report.columns import DASH, number
from specbench_client.report.sheets import Sheet

RANGE_TITLES = ("Batch", "Draft tokens", "Cannot be told from", "Over no drafts", "Note")
OPTION_TITLES = (
    "Batch",
    "Draft tokens: tokens/s of one request, the best first (≈ cannot be told from it, ≥ at least)",
)
UNVERIFIED = (
    "To be verified by a run: this is computed from fixed draft lengths, and what switching costs is not in it."
)


def schedule_sheets(schedule: Schedule) -> list[Sheet]:
    """Its ranges, then what was to choose from at each batch."""
    title = f"{', '.join(schedule.arms)} on {schedule.workload}"
    return [
        Sheet(title, RANGE_TITLES, range_rows(schedule), words=("Batch", "Note")),
        Sheet("", OPTION_TITLES, option_rows(schedule), words=OPTION_TITLES),
    ]


def range_rows(schedule: Schedule) -> list[list[str]]:
    """A row for each range of batch sizes."""
    return [_range(each, schedule) for each in schedule.ranges]


def option_rows(schedule: Schedule) -> list[list[str]]:
    """A row for each batch that was measured."""
    return [[str(batch), ", ".join(_option(each) for each in found)] for batch, found in schedule.table.items()]


def engine_lines(found: EngineSchedule) -> list[str]:
    """What the engine takes, and what speaks against it."""
    return [
        f"{found.engine}: {json.dumps(found.config)}",
        *([f"  {shlex.join(found.arguments)}"] if found.arguments else []),
        *(f"  not as it stands: {problem}" for problem in found.problems),
    ]


def _range(each: ScheduleRange, schedule: Schedule) -> list[str]:
    tied = ", ".join(str(length) for length in each.tied) or DASH
    carried = f"below {schedule.batches[0]} not measured, carried over" if each.carried else ""
    unknown = f"not known here: {', '.join(str(length) for length in each.unknown)}" if each.unknown else ""
    gain = DASH if each.gain is None else f"{number(each.gain)}x"
    return [
        f"{each.first} to {each.last}",
        str(each.draft_tokens),
        tied,
        gain,
        "; ".join(filter(None, (carried, unknown))),
    ]


def _option(each: Option) -> str:
    bound = "≥" if each.how is How.LOWER_BOUND else ""
    return f"{each.draft_tokens}: {bound}{each.tokens_per_s:.0f}" + (" ≈" if each.tied else "")
