"""Fewer requests in flight than requested, so that the numbers belong to a different load."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.9


def _evaluate(evidence: PointEvidence) -> CheckResults:
    reached, requested = evidence.health.reached_concurrency, evidence.point.level.concurrency
    if reached is None or requested is None or reached >= SHARE * requested:
        return []
    message = f"{reached:.1f} requests were in flight on average in the steady state, but the load requests {requested}"
    return [CheckResult(Severity.INVALID, message, value=reached, threshold=SHARE * requested)]


CHECK: Check[PointEvidence] = Check(
    name="ConcurrencyNotReached",
    severities=(Severity.INVALID,),
    description="In a closed loop, fewer requests than requested were in flight on average in the steady state.",
    threshold=f"less than {SHARE:.0%} of the requested concurrency",
    rationale=(
        "Between two requests a stream only parses the answer and picks the next prompt; if that takes a tenth of"
        " the time, the client is part of the measurement. Speed-ups fall with load, so a lower load makes them"
        " look better."
    ),
    remedy="Give the client more CPU, request longer answers, or lower the concurrency.",
    evaluate=_evaluate,
)
