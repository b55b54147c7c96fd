"""Problems of a campaign that can be found before expanding it: its template, labels, Secrets and schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from specbench_api import GROUP
from specbench_api.campaign.matrix import SET
from specbench_api.errors import Problem
from specbench_api.launch.support_matrix import support_of
from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.campaign import CampaignSpec, TemplateMetadata, TemplateSpec
from specbench_api.spec.patterns import is_label_key
from specbench_api.spec.results import LATEST
from specbench_api.spec.secrets import (
    SECRET_FIELDS,
    TEMPLATE_WORDS,
    is_in_pod_template,
    may_add_to_template,
    secrets_in_value,
    secrets_named,
)

# Validation of cron schedules: each field within its bounds. The operator computes the scheduled times.

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
    """Return what is wrong with a schedule, or None. An empty schedule and @daily etc. are valid."""
    if not schedule or schedule.startswith("@"):
        return None
    for text, (name, low, high, names) in zip(schedule.split(), _FIELDS, strict=True):
        for part in text.split(","):
            if not _holds(part, low, high, names):
                return f"{part!r} is not a valid {name}: use {low} to {high}, * or a range, optionally with /STEP"
    return None


def _holds(part: str, low: int, high: int, names: Mapping[str, int]) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        return False
    given = [_number(word, names) for word in (found["low"], found["high"]) if word is not None]
    within = all(low <= number <= high for number in given)
    return within and given == sorted(given) and int(found["step"] or 1) >= 1


def _number(word: str, names: Mapping[str, int]) -> int:
    """Return the number for a word, or -1, which is outside every field's bounds."""
    return int(word) if word.isdecimal() else names.get(word.lower(), -1)


VALUE_BYTES_MAX = 16_384
"""Maximum bytes of one axis value, which runs carry in an annotation (Kubernetes allows 256 KiB)."""


def template_problems(spec: CampaignSpec) -> list[Problem]:
    """Return all problems of the template; unsupported drafters are those that the API server also rejects."""
    return [
        *_of_pairs(spec.template.spec),
        *_of_keys(spec.template.metadata),
        *_of_values(spec),
        *_of_secrets(spec),
        *_of_schedule(spec),
        *_of_adoption(spec),
    ]


def _of_pairs(spec: TemplateSpec) -> Iterator[Problem]:
    for row, drafter in enumerate(spec.drafters):
        found = support_of(spec.engine.kind, drafter.method)
        if not found.supported:
            message = f"{spec.engine.kind} does not support {drafter.method}: {found.how}"
            yield Problem(f"spec.template.spec.drafters[{row}].method", message, f"use {found.instead}")


def _of_keys(metadata: TemplateMetadata) -> Iterator[Problem]:
    maps: Mapping[str, Mapping[str, str]] = {"labels": metadata.labels, "annotations": metadata.annotations}
    for field, given in maps.items():
        for key in given:
            path = f"spec.template.metadata.{field}"
            if not is_label_key(key):
                yield Problem(path, f"{key!r} is not a valid key", "write a key like team or example.com/team")
            elif key.startswith(f"{GROUP}/"):
                yield Problem(path, f"{key!r} is reserved", "write a key like team or example.com/team")


def _of_values(spec: CampaignSpec) -> Iterator[Problem]:
    for at, axis in enumerate(spec.axes):
        for row, value in enumerate(axis.values):
            if (size := len(canonical_json(value).encode())) > VALUE_BYTES_MAX:
                message = f"has {size} bytes, more than the maximum of {VALUE_BYTES_MAX}"
                yield Problem(
                    f"spec.axes[{at}].values[{row}]", message, "vary only the fields that differ, one axis each"
                )


# The runs of a campaign are created by the operator, so the API server can only check the rights of the person who
# applies the campaign. That check covers the Secrets of the template; axes and include rows must therefore add no
# other. The admission policy of the chart contains the same rule.

_ONLY_THE_TEMPLATE = "name it in spec.template.spec, and write one campaign for each set of Secrets"
_SINGLE_VALUES = "name it in spec.template.spec, and let axes set single values of it, such as a limit or an annotation"


def _of_secrets(spec: CampaignSpec) -> Iterator[Problem]:
    known = secrets_named(spec.template.spec.to_dict())
    for at, axis in enumerate(spec.axes):
        yield from _of_secret_path(f"spec.axes[{at}].path", axis.path)
        for row, value in enumerate(axis.values):
            below = is_in_pod_template(axis.path)
            yield from _of_secret_value(f"spec.axes[{at}].values[{row}]", value, known, below=below)
    # The admission policy cannot look up the axis of a name, so any axis below placement.template counts for all names.
    any_below = any(is_in_pod_template(axis.path) for axis in spec.axes)
    for at, include in enumerate(spec.include):
        for name, value in include.items():
            if name != SET:
                yield from _of_secret_value(f"spec.include[{at}].{name}", value, known, below=any_below)
        further = include.get(SET)
        for path, value in (further if isinstance(further, Mapping) else {}).items():
            yield from _of_secret_path(f"spec.include[{at}].{SET}", path)
            where = f"spec.include[{at}].{SET}[{path}]"
            yield from _of_secret_value(where, value, known, below=is_in_pod_template(path))


def _of_secret_path(where: str, path: str) -> Iterator[Problem]:
    """Search the text for the field's name, which needs no knowledge of the spellings of a path."""
    for word in (*(field.word for field in SECRET_FIELDS), *TEMPLATE_WORDS):
        if word in path:
            yield Problem(where, f"{path} sets {word}, which only the template may set", _ONLY_THE_TEMPLATE)


def _of_secret_value(where: str, value: Any, known: AbstractSet[str], *, below: bool) -> Iterator[Problem]:
    if may_add_to_template(value, below=below):
        message = "sets an object or list of placement.template, in which only the template may name Secrets"
        yield Problem(where, message, _SINGLE_VALUES)
    for field, name in secrets_in_value(value):
        if name not in known:
            message = f"names the Secret {name!r} in {field.word}, which the template does not name"
            yield Problem(where, message, _ONLY_THE_TEMPLATE)


def _of_adoption(spec: CampaignSpec) -> Iterator[Problem]:
    if spec.template.spec.results.adopt not in (None, LATEST) and (spec.axes or spec.include):
        message = "the UID identifies one run, but every run of the matrix would adopt its results"
        remedy = "set adopt: Latest, or use an include row for one run with `set: {results.adopt: UID}`"
        yield Problem("spec.template.spec.results.adopt", message, remedy)


def _of_schedule(spec: CampaignSpec) -> Iterator[Problem]:
    wrong = schedule_problem(spec.schedule)
    if wrong:
        yield Problem("spec.schedule", wrong, "write minute hour day month weekday, such as '0 3 * * mon-fri'")
    try:
        ZoneInfo(spec.time_zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield Problem(
            "spec.timeZone", f"{spec.time_zone!r} is not a time zone", "write an IANA name, such as Europe/Berlin"
        )
