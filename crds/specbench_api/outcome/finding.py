"""What a check found: named, with a number, and with what it means for the comparison."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.model import ApiModel


class Severity(StrEnum):
    """What a finding does.

    Invalid breaks the comparison: the point counts as Invalid and the run is not trustworthy.
    Doubt makes the run untrustworthy though the point's own numbers stand.
    Note is said and changes nothing.
    """

    INVALID = "Invalid"
    DOUBT = "Doubt"
    NOTE = "Note"


class Finding(ApiModel):
    """One finding of one check."""

    check: str
    """CamelCase name of the check; it is the reason in status."""
    severity: Severity
    """What it does."""
    message: str
    """What was seen, with the number, and what to do."""
    value: float | None = None
    """The number."""
    threshold: float | None = None
    """From which number on it is said."""
    arm: str | None = None
    """Which arm; None for the whole run."""
    workload: str | None = None
    """Which workload."""
    load: str | None = None
    """At which load, by its label: `8`, `2.5/s`, `trace`."""
    point: str | None = None
    """Which point, by hash."""
