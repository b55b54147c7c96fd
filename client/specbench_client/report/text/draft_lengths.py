"""Tables and lines of a schedule of draft lengths."""

from __future__ import annotations

import json
import shlex

from specbench_client.documents.draft_lengths import (
    DraftLengthOption,
    DraftSchedule,
    DraftScheduleRange,
    EngineDraftSchedule,
    TokensEvidence,
)
from specbench_client.report.text.text_table import DASH, TextTable, number

RANGE_TITLES = ("Batch", "Draft tokens", "Indistinguishable from", "Over no drafts", "Note")
OPTION_TITLES = (
    "Batch",
    "Draft tokens: tokens/s of one request, the best first (≈ indistinguishable from it, ≥ at least)",
)
UNVERIFIED = "To be verified by a run: computed from fixed draft lengths, without the cost of switching between them."


def schedule_tables(schedule: DraftSchedule) -> list[TextTable]:
    """Return the ranges of the schedule, then the measured options at each batch size."""
    ranges = [_range(each, schedule) for each in schedule.ranges]
    options = [[str(batch), ", ".join(map(_option, found))] for batch, found in schedule.table.items()]
    title = f"{', '.join(schedule.arms)} on {schedule.workload}"
    return [
        TextTable(title, RANGE_TITLES, ranges, words=("Batch", "Note")),
        TextTable("", OPTION_TITLES, options, words=OPTION_TITLES),
    ]


def engine_lines(found: EngineDraftSchedule) -> list[str]:
    """Return the engine's configuration, and problems with it."""
    return [
        f"{found.engine}: {json.dumps(found.config)}",
        *([f"  {shlex.join(found.arguments)}"] if found.arguments else []),
        *(f"  not as it stands: {problem}" for problem in found.problems),
    ]


def _range(each: DraftScheduleRange, schedule: DraftSchedule) -> list[str]:
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


def _option(each: DraftLengthOption) -> str:
    bound = "≥" if each.how is TokensEvidence.LOWER_BOUND else ""
    return f"{each.draft_tokens}: {bound}{each.tokens_per_s:.0f}" + (" ≈" if each.tied else "")
