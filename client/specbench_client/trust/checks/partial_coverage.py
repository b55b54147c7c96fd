"""Rows that were asked for and could not be sent: the figures speak of the others alone."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.coverage import Coverage
from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

DOUBT_FROM = 0.05
_SHOWN = 5


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    return [
        _seen(workload, coverage)
        for workload, coverage in evidence.coverage.items()
        if coverage.missing and coverage.asked
    ]


def _seen(workload: str, coverage: Coverage) -> Seen:
    share = coverage.missing / coverage.asked
    lost = [one.category for one in coverage.by_category if one.left_out and sum(one.left_out.values()) == one.asked]
    reasons = "; ".join(f"{count} x {reason}" for reason, count in coverage.left_out.items())
    gone = f"; nothing is left of {_named(lost)}" if lost else ""
    message = (
        f"of {coverage.asked} rows that workload {workload!r} asks for, {coverage.missing} ({share:.0%}) were left out"
        f" (allowMissing): {reasons}{gone}"
    )
    severity = Severity.DOUBT if share >= DOUBT_FROM or lost else Severity.NOTE
    return Seen(severity, message, value=share, threshold=DOUBT_FROM, workload=workload)


def _named(categories: Sequence[str | None]) -> str:
    shown = ", ".join(str(name) for name in categories[:_SHOWN])
    return shown + (f" and {len(categories) - _SHOWN} more categories" if len(categories) > _SHOWN else "")


CHECK: Check[RunEvidence] = Check(
    name="PartialCoverage",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="Rows that a workload asks for were left out, because their text is missing.",
    threshold=f"a Note where any is, a Doubt from {DOUBT_FROM:.0%} of them, or where nothing is left of a category",
    argument=(
        "What is missing is not a random part: licences and tools take whole categories away, on which drafters differ"
        " by a factor of two. Figures of a published set are those of the whole set."
    ),
    remedy="Fetch the missing texts (`specbench dataset prepare`), or ask for the categories alone that are whole.",
    look=_look,
)
