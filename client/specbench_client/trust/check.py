"""A check, its result, and the finding that is made of the result. The data for a check is in `evidence`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from specbench_client.columns import Mask
from specbench_client.documents.finding import Finding, Severity


@dataclass(frozen=True)
class CheckResult:
    """The number that a check found, and its message. The caller adds the check's name and where it applies."""

    severity: Severity
    message: str
    value: float | None = None
    threshold: float | None = None
    arm: str | None = None
    workload: str | None = None


CheckResults = Sequence[CheckResult]


Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class Check(Generic[Evidence]):
    """A check. `evaluate` is pure and returns nothing if all is well or if the data does not allow a decision."""

    name: str
    """CamelCase; used as the reason in `status`."""
    severities: tuple[Severity, ...]
    """The severities that this check can report."""
    description: str
    """What the check reports, in one sentence."""
    threshold: str
    """The value from which on the check reports a finding."""
    rationale: str
    """Why the threshold is where it is."""
    remedy: str
    """What the user should do about it."""
    evaluate: Callable[[Evidence], CheckResults]
    imported_remedy: str = ""
    """What to do if another benchmark measured the run, where that differs: there is no spec to change."""
    soak_remedy: str = ""
    """What to do in a soak test, where that differs: its windows follow each other and have a fixed length."""

    def remedy_for(self, *, imported: bool, soak: bool) -> str:
        """Return what to do about a finding. `imported`: see `Engine`."""
        special = self.imported_remedy if imported else self.soak_remedy if soak else ""
        return special or self.remedy


def finding_of(name: str, result: CheckResult, location: Mapping[str, object]) -> Finding:
    """Build a finding from a check's result and its location (arm, workload, load, point).

    An arm or a workload in the result overrides the location's.
    """
    narrowed = {key: value for key, value in (("arm", result.arm), ("workload", result.workload)) if value is not None}
    return Finding.model_validate(
        {
            "check": name,
            "severity": result.severity,
            "message": result.message,
            "value": result.value,
            "threshold": result.threshold,
            **location,
            **narrowed,
        }
    )


def list_names(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def name_some(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return at most `most` of the names, and how many more there are."""
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def report_impossible(kinds: Iterable[tuple[str, Mask]], what: str, consequence: str) -> CheckResults:
    """Report how many of the rows meet each impossible condition, which is given in words with a mask, shape (rows,).

    `what`: the number of rows and what they are.
    """
    broken = [(words, int(rows.sum())) for words, rows in kinds if rows.any()]
    if not broken:
        return []
    counted = "; ".join(f"{count} of {what} {words}" for words, count in broken)
    most = max(count for _, count in broken)
    return [CheckResult(Severity.INVALID, f"{counted}: {consequence}", value=most, threshold=1)]
