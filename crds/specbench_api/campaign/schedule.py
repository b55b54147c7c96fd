"""Whether a cron schedule is one: each field within its bounds. When it fires is the operator's business."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Sequence[tuple[str, int, int, Mapping[str, int]]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: at for at, name in enumerate(_MONTHS, start=1)}),
    ("weekday", 0, 7, {name: at for at, name in enumerate(_WEEKDAYS)}),
)
_PART = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?")


def schedule_problem(schedule: str) -> str | None:
    """What is wrong with it, or None. Empty is no schedule, and @daily and its like are as the API takes them."""
    if not schedule or schedule.startswith("@"):
        return None
    for text, (name, low, high, names) in zip(schedule.split(), _FIELDS, strict=True):
        for part in text.split(","):
            if not _holds(part, low, high, names):
                return f"{part!r} is no {name}: {low} to {high}, * or a range, perhaps with /STEP"
    return None


def _holds(part: str, low: int, high: int, names: Mapping[str, int]) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        return False
    given = [_number(word, names) for word in (found["low"], found["high"]) if word is not None]
    within = all(low <= number <= high for number in given)
    return within and given == sorted(given) and int(found["step"] or 1) >= 1


def _number(word: str, names: Mapping[str, int]) -> int:
    """The number that a word stands for; -1, which no field holds, for none."""
    return int(word) if word.isdecimal() else names.get(word.lower(), -1)
