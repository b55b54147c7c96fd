"""Points of the plan that have no result: the comparison may lack what would have changed it."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

NAMED = 6


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    if not evidence.missing:
        return []
    lost = [point for point in evidence.plan.points if point.hash in set(evidence.missing)]
    names = [f"{point.arm}/{point.workload} at {point.level.label}, repeat {point.repeat}" for point in lost]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    message = f"{len(lost)} of {len(evidence.plan.points)} points have no result: {'; '.join(names[:NAMED])}{more}"
    return [Seen(Severity.DOUBT, message, value=len(lost), threshold=1)]


CHECK: Check[RunEvidence] = Check(
    name="MissingPoints",
    severities=(Severity.DOUBT,),
    says="Points of the plan have no manifest.",
    threshold="1 point",
    argument="Points are seldom lost by chance: the arm that needs most memory fails at the highest load.",
    remedy="Run again: what is measured is kept, and only the missing points are measured.",
    look=_look,
)
