"""An open loop with more arrivals than the engine can serve: the queue grows as long as the point lasts.

Latency then has no stationary distribution: every percentile depends on how long the point was. The probability of a
queue that grew by chance is bounded by the statistics of the arrivals: the mean number in flight over a period with n
arrivals has a relative standard error of √((CV² + 1) / n) (Little's law, for lengths that vary by no more than their
mean).
"""

from __future__ import annotations

import math

from specbench_api.outcome.finding import Severity
from specbench_api.spec.load import ArrivalProcess
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

GROWTH = 1.5
IN_FLIGHT_MIN = 8
ERRORS = 3.0
UNKNOWN_CV = 1.0


def _evaluate(evidence: PointEvidence) -> CheckResults:
    growth, in_flight = evidence.health.in_flight_growth, evidence.health.reached_concurrency
    if evidence.closed or growth is None or in_flight is None or in_flight <= IN_FLIGHT_MIN:
        return []
    most = max(GROWTH, _by_chance(evidence))
    if growth <= most:
        return []
    message = (
        f"requests in flight grew {growth:.1f} times from the first third of the steady state to the last"
        f" ({in_flight:.0f} on average): more requests arrive than the engine can serve, so latencies depend on the"
        " length of the point"
    )
    traced = evidence.arrival.process is ArrivalProcess.TRACE
    return [CheckResult(Severity.WARNING if traced else Severity.INVALID, message, value=growth, threshold=most)]


def _by_chance(evidence: PointEvidence) -> float:
    """Growth that the arrival process alone may cause; 1 if the number of arrivals is not known."""
    rate, seconds = evidence.health.reached_rate, evidence.steady_s
    cv = UNKNOWN_CV if evidence.arrival_cv is None else evidence.arrival_cv
    if not rate or not seconds:
        return 1.0
    in_a_third = rate * seconds / 3
    return math.exp(min(50.0, ERRORS * math.sqrt(2 * (cv**2 + 1) / in_a_third)))


CHECK: Check[PointEvidence] = Check(
    name="Overloaded",
    severities=(Severity.INVALID, Severity.WARNING),
    description="In an open loop, the number of requests in flight grew throughout the steady state.",
    threshold=(
        f"{GROWTH:g} times as many in its last third as in its first, more than {IN_FLIGHT_MIN} on average, and more"
        f" than chance in the arrivals explains ({ERRORS:g} standard errors). Warning if a trace is replayed, whose"
        " own increase looks the same"
    ),
    rationale=(
        "Below capacity the number in flight returns to its mean; above it, it grows with time, and so does every"
        f" latency. Up to {IN_FLIGHT_MIN} requests, a factor of {GROWTH:g} is two or three requests."
    ),
    remedy=(
        "Lower the rate until the number in flight is stable: the highest such rate is the engine's capacity,"
        " itself a result."
    ),
    evaluate=_evaluate,
)
