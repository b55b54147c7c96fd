"""Findings: what a check reports, with its number and its effect on the comparison."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from specbench_api.api_model import ApiModel

ANSWERS_WORSE_CHECK = "AnswersWorse"
"""The check whose fault rules an arm out, at every load."""


class Severity(StrEnum):
    """Effect of a finding.

    Invalid: the comparison is invalid, the point counts as Invalid, and the run is not trustworthy. Fault: the arm is
    at fault, and the numbers that show it can be trusted. Warning: the run is not trustworthy, but the point's own
    numbers remain usable. Info: no effect.
    """

    INVALID = "Invalid"
    FAULT = "Fault"
    WARNING = "Warning"
    INFO = "Info"

    @property
    def is_doubt(self) -> bool:
        """Whether the run is not trustworthy."""
        return self in (Severity.INVALID, Severity.WARNING)


class Finding(ApiModel):
    """One finding of one check."""

    check: str
    """CamelCase name of the check; it is the reason in status."""
    severity: Severity
    """Effect of the finding."""
    message: str
    """What was found, with the number, and what to do."""
    value: float | None = None
    """The number that the check computed."""
    threshold: float | None = None
    """Threshold beyond which the check reports a finding."""
    arm: str | None = None
    """The arm; None for the whole run."""
    workload: str | None = None
    """The workload; None for all."""
    load: str | None = None
    """Label of the load level: `8`, `2.5/s`, `trace`; None for all."""
    point: str | None = None
    """Hash of the point; None if it does not concern a single point."""

    @property
    def invalidates(self) -> bool:
        """Whether it invalidates the comparison of its cell. Worse answers do too: their speed does not count."""
        return self.severity is Severity.INVALID or self.check == ANSWERS_WORSE_CHECK


def doubting_checks(findings: Iterable[Finding]) -> list[str]:
    """Return the names of the checks that make a run untrustworthy, in the order of their findings in its summary."""
    return list(dict.fromkeys(finding.check for finding in findings if finding.severity.is_doubt))


def faults_by_arm(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Return the arms at fault, with the names of the checks that found it."""
    names: dict[str, dict[str, None]] = {}
    for finding in findings:
        if finding.severity is Severity.FAULT and finding.arm:
            names.setdefault(finding.arm, {})[finding.check] = None
    return {arm: list(checks) for arm, checks in names.items()}


def list_faults(findings: Iterable[Finding]) -> list[str]:
    """Return `eagle3 (ReuseLost)` for each arm at fault."""
    return [f"{arm} ({', '.join(checks)})" for arm, checks in faults_by_arm(findings).items()]
