"""What is wrong with a campaign before any combination is made: its template alone, labels, the schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from specbench_api import GROUP
from specbench_api.campaign.schedule import schedule_problem
from specbench_api.errors import Problem
from specbench_api.launch.support.table import cell
from specbench_api.plan.canonical import canonical_json
from specbench_api.spec.campaign import CampaignSpec, TemplateMetadata, TemplateSpec
from specbench_api.spec.kubernetes import is_label_key
from specbench_api.spec.results import LATEST

VALUE_BYTES_MAX = 16_384
"""Of one value of an axis: runs carry it as an annotation, of which Kubernetes takes 256 KiB."""


def template_problems(spec: CampaignSpec) -> list[Problem]:
    """All of them; the pairs of engine and drafter are those that the API server refuses too."""
    return [
        *_of_pairs(spec.template.spec),
        *_of_keys(spec.template.metadata),
        *_of_values(spec),
        *_of_schedule(spec),
        *_of_adoption(spec),
    ]


def _of_pairs(spec: TemplateSpec) -> Iterator[Problem]:
    for row, drafter in enumerate(spec.drafters):
        found = cell(spec.engine.kind, drafter.method)
        if not found.supported:
            message = f"{spec.engine.kind} cannot do {drafter.method}: {found.how}"
            yield Problem(f"spec.template.spec.drafters[{row}].method", message, f"use {found.instead}")


def _of_keys(metadata: TemplateMetadata) -> Iterator[Problem]:
    maps: Mapping[str, Mapping[str, str]] = {"labels": metadata.labels, "annotations": metadata.annotations}
    for field, given in maps.items():
        for key in given:
            path = f"spec.template.metadata.{field}"
            if not is_label_key(key):
                yield Problem(path, f"{key!r} is no key", "a name like team or example.com/team")
            elif key.startswith(f"{GROUP}/"):
                yield Problem(path, f"{key!r} is the campaign's own to set", "a name like team or example.com/team")


def _of_values(spec: CampaignSpec) -> Iterator[Problem]:
    for at, axis in enumerate(spec.axes):
        for row, value in enumerate(axis.values):
            if (size := len(canonical_json(value).encode())) > VALUE_BYTES_MAX:
                message = f"has {size} bytes, and a value {VALUE_BYTES_MAX} at most"
                yield Problem(f"spec.axes[{at}].values[{row}]", message, "vary the fields that differ, one axis each")


def _of_adoption(spec: CampaignSpec) -> Iterator[Problem]:
    if spec.template.spec.results.adopt not in (None, LATEST) and (spec.axes or spec.include):
        message = "results are those of one run, and every run of the matrix would take them for its own"
        remedy = "adopt: Latest finds each run's own; or a row of include for one run, with `set: {results.adopt: UID}`"
        yield Problem("spec.template.spec.results.adopt", message, remedy)


def _of_schedule(spec: CampaignSpec) -> Iterator[Problem]:
    wrong = schedule_problem(spec.schedule)
    if wrong:
        yield Problem("spec.schedule", wrong, "minute hour day month weekday, such as '0 3 * * mon-fri'")
    try:
        ZoneInfo(spec.time_zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield Problem(
            "spec.timeZone", f"{spec.time_zone!r} is no time zone", "as the IANA database has it: Europe/Berlin"
        )
