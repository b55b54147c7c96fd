"""Clients that send one load together, but do not agree on the time."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

ERROR_MS = 20.0


def _evaluate(evidence: PointEvidence) -> CheckResults:
    error = evidence.health.clock_error_ms
    if error is None or error <= ERROR_MS:
        return []
    message = (
        f"the clocks of the {evidence.health.clients} clients may differ by {error:.1f} ms over the point; at most"
        f" {ERROR_MS:g} ms is tolerable: arrivals and the steady state of the clients do not match"
    )
    return [CheckResult(Severity.INVALID, message, value=error, threshold=ERROR_MS)]


CHECK: Check[PointEvidence] = Check(
    name="ClientClocksDiffer",
    severities=(Severity.INVALID,),
    description="Clients that sent a load together (load.clients) did not have one clock.",
    threshold=(
        f"half the shortest round trip between two clients, plus the change of their clocks' offset over the point and"
        f" the difference of their starts, above {ERROR_MS:g} ms"
    ),
    rationale=(
        "Each client times its own requests with one clock, so latencies are right in any case. But arrivals of two"
        " clients, and the bounds of the steady state, are compared over the clocks' offset. Clients exchange what"
        " they know every 20 ms, so that a smaller error changes nothing. The wall clock is not used."
    ),
    remedy=(
        "Schedule the clients on nodes with a faster network between them and free CPU, or use fewer (load.clients);"
        " then measure again."
    ),
    evaluate=_evaluate,
)
