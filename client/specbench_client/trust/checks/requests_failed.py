"""Requests that failed are not part of the figures, and the remaining ones may be the easy ones."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.01


def _evaluate(evidence: PointEvidence) -> CheckResults:
    tried = evidence.tried
    failed = tried[~tried["ok"].to_numpy(bool)]
    if failed.empty:
        return []
    share = len(failed) / len(tried)
    classes = failed["error_class"].value_counts()
    kinds = ", ".join(f"{count} {name}" for name, count in classes.items())
    skipped = len(evidence.rows) - len(tried)
    message = f"{len(failed)} of {len(tried)} requests failed ({kinds})"
    message += f", and {skipped} later turns were not sent" if skipped else ""
    severity = Severity.INVALID if share > SHARE else Severity.INFO
    return [CheckResult(severity, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="RequestsFailed",
    severities=(Severity.INVALID, Severity.INFO),
    description="Requests failed.",
    threshold=f"Invalid above {SHARE:.0%} of the requests that were sent, Info below",
    rationale=(
        "Failed requests are removed from both sides of a comparison, but they are seldom typical; from 1 % on the"
        " 99th percentile may consist of the missing requests."
    ),
    remedy="Read the errors in the records and the engine's log, then lower the load or fix the engine.",
    evaluate=_evaluate,
)
