"""Points of the plan without a result: the comparison may lack what would have changed it."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults, name_some
from specbench_client.trust.evidence import RunEvidence

NAMED = 6


def _evaluate(evidence: RunEvidence) -> CheckResults:
    if not evidence.missing:
        return []
    lost = [point for point in evidence.plan.points if point.hash in set(evidence.missing)]
    names = [f"{point.arm}/{point.workload} at {point.level.label}, repeat {point.repeat}" for point in lost]
    named = name_some(names, NAMED, "; ")
    message = f"{len(lost)} of {len(evidence.plan.points)} points have no result: {named}"
    return [CheckResult(Severity.WARNING, message, value=len(lost), threshold=1)]


CHECK: Check[RunEvidence] = Check(
    name="MissingPoints",
    severities=(Severity.WARNING,),
    description="Points of the plan have no manifest, so they were not measured.",
    threshold="1 point",
    rationale="Points are seldom lost by chance: the arm that needs the most memory fails at the highest load.",
    remedy=(
        "If an engine failed, first correct the cause that the headline states. Then run again: measured points are"
        " reused, and only the missing ones are measured."
    ),
    evaluate=_evaluate,
)
