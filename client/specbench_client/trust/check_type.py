"""A check, its result and its findings; and the wording that checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from specbench_client.documents.finding import Finding, Severity
from specbench_client.metrics.rows import Table
from specbench_client.numpy_columns import Mask


@dataclass(frozen=True)
class CheckResult:
    """The number that a check found, and its message; `Check.findings` adds the check's name and the location."""

    severity: Severity
    message: str
    value: float | None = None
    threshold: float | None = None
    arm: str | None = None
    workload: str | None = None


CheckResults = Sequence[CheckResult]


Evidence_contra = TypeVar("Evidence_contra", contravariant=True)


@dataclass(frozen=True)
class Check(Generic[Evidence_contra]):
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
    evaluate: Callable[[Evidence_contra], CheckResults]
    imported_remedy: str = ""
    """What to do if another benchmark measured the run, where that differs: there is no spec to change."""
    soak_remedy: str = ""
    """What to do in a soak test, where that differs: its windows follow each other and have a fixed length."""

    def remedy_for(self, *, imported: bool, soak: bool) -> str:
        """Return what to do about a finding. `imported`: see `Engine`."""
        special = self.imported_remedy if imported else self.soak_remedy if soak else ""
        return special or self.remedy

    def findings(self, evidence: Evidence_contra, location: Mapping[str, object]) -> list[Finding]:
        """Evaluate the check; an arm or a workload in a result overrides that of the location (arm, workload, …)."""
        results = [vars(result).items() for result in self.evaluate(evidence)]
        known = [{name: value for name, value in fields if value is not None} for fields in results]
        return [Finding.model_validate({"check": self.name, **location, **each}) for each in known]


def check(
    *,
    name: str,
    severities: tuple[Severity, ...],
    threshold: str,
    rationale: str,
    remedy: str,
    imported_remedy: str = "",
    soak_remedy: str = "",
) -> Callable[[Callable[[Evidence_contra], CheckResults]], Check[Evidence_contra]]:
    """Make a check of the function that evaluates it, and whose docstring begins with the check's description."""

    def check_of(evaluate: Callable[[Evidence_contra], CheckResults]) -> Check[Evidence_contra]:
        description = (evaluate.__doc__ or "").partition("\n")[0]
        return Check(
            name, severities, description, threshold, rationale, remedy, evaluate, imported_remedy, soak_remedy
        )

    return check_of


def counted_rows(rows: Table, unit: str) -> str:
    """Return `37 requests (7 of them fillers)`: the user asked for the others."""
    fillers = int(rows.array("filler").sum())
    return f"{len(rows)} {unit}" + (f" ({fillers} of them fillers)" if fillers else "")


def list_names(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def name_some(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return at most `most` of the names, and how many more there are."""
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


BUSY = 1.0
"""Load average per core of a busy machine: more processes run, or wait for a core, than it has cores."""


def busy_machine(load_per_core: float | None) -> str:
    """Return a clause that the client's machine was busy, to be added to a message; empty if it was not."""
    if load_per_core is None or load_per_core <= BUSY:
        return ""
    return (
        f"; the client's machine was busy (load average up to {load_per_core:.1f} per core), so a server on it would"
        " lack CPU: stop other work first"
    )


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
