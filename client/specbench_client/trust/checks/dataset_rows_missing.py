"""Dataset rows that were requested but could not be sent, so that the figures cover only the others."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.prompt_coverage import PromptCoverage
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

WARNING_FROM = 0.05
_SHOWN = 5


def _evaluate(evidence: RunEvidence) -> CheckResults:
    return [
        _result(workload, coverage)
        for workload, coverage in evidence.coverage.items()
        if coverage.missing and coverage.requested
    ]


def _result(workload: str, coverage: PromptCoverage) -> CheckResult:
    share = coverage.missing / coverage.requested
    missing_categories = [
        one.category for one in coverage.by_category if one.unusable and sum(one.unusable.values()) == one.requested
    ]
    reasons = "; ".join(f"{count} x {reason}" for reason, count in coverage.unusable.items())
    nothing_left = f"; no rows are left of {_named(missing_categories)}" if missing_categories else ""
    message = (
        f"{coverage.missing} of {coverage.requested} rows ({share:.0%}) requested by workload {workload!r} were left"
        f" out (allowMissing): {reasons}{nothing_left}"
    )
    severity = Severity.WARNING if share >= WARNING_FROM or missing_categories else Severity.INFO
    return CheckResult(severity, message, value=share, threshold=WARNING_FROM, workload=workload)


def _named(categories: Sequence[str | None]) -> str:
    shown = ", ".join(str(name) for name in categories[:_SHOWN])
    return shown + (f" and {len(categories) - _SHOWN} more categories" if len(categories) > _SHOWN else "")


CHECK: Check[RunEvidence] = Check(
    name="DatasetRowsMissing",
    severities=(Severity.WARNING, Severity.INFO),
    description="Rows that a workload requests were left out because their text is missing.",
    threshold=(
        f"Info if any row is missing, Warning from {WARNING_FROM:.0%} of the rows, or if a category has none left"
    ),
    rationale=(
        "The missing rows are not a random sample: licenses and tools remove whole categories, between which"
        " drafters differ by a factor of two. Published figures are those of the whole dataset."
    ),
    remedy="Fetch the missing texts (`specbench dataset prepare`), or select only the categories that are complete.",
    evaluate=_evaluate,
)
