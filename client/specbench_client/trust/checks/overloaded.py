"""An open loop that brings more than the engine can do: the queue grows as long as the point lasts.

Latency then has no distribution of its own: every percentile depends on how long the point was. The chance of a queue
that only happened to grow is bounded by the arrivals' own statistics: the mean in flight over a stretch with n arrivals
has a relative standard error of √((CV² + 1) / n) (Little's law, with lengths that vary by no more than their mean).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.spec.load import Process
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

GROWTH = 1.5
IN_FLIGHT_MIN = 8
ERRORS = 3.0
UNKNOWN_CV = 1.0


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    growth, in_flight = evidence.watch.in_flight_growth, evidence.watch.reached_concurrency
    if evidence.closed or growth is None or in_flight is None or in_flight <= IN_FLIGHT_MIN:
        return []
    most = max(GROWTH, _by_chance(evidence))
    if growth <= most:
        return []
    message = (
        f"requests in flight grew {growth:.1f} times from the first third of the steady state to the last"
        f" ({in_flight:.0f} on average): more arrives than the engine can do, and latencies tell how long it lasted"
    )
    traced = evidence.arrival.process is Process.TRACE
    return [Seen(Severity.DOUBT if traced else Severity.INVALID, message, value=growth, threshold=most)]


def _by_chance(evidence: PointEvidence) -> float:
    """Growth that the arrival process alone may show; 1 where it is not known how many arrived."""
    rate, seconds = evidence.watch.reached_rate, evidence.steady_s
    cv = UNKNOWN_CV if evidence.arrival_cv is None else evidence.arrival_cv
    if not rate or not seconds:
        return 1.0
    in_a_third = rate * seconds / 3
    return math.exp(min(50.0, ERRORS * math.sqrt(2 * (cv**2 + 1) / in_a_third)))


CHECK: Check[PointEvidence] = Check(
    name="Overloaded",
    severities=(Severity.INVALID, Severity.DOUBT),
    says="In an open loop, the number of requests in flight grew all through the steady state.",
    threshold=(
        f"{GROWTH:g} times as many in its last third as in its first, more than {IN_FLIGHT_MIN} on average, and more"
        f" than the arrivals' own chance explains ({ERRORS:g} standard errors). A Doubt where a trace is replayed,"
        " whose own rise looks the same"
    ),
    argument=(
        "Below capacity the number in flight returns to its mean; above it, it grows with time and so does every"
        f" latency. Up to {IN_FLIGHT_MIN} requests a factor of {GROWTH:g} is two or three requests."
    ),
    remedy="Lower the rate until it stays level: the highest such rate is the engine's capacity, itself an answer.",
    look=_look,
)
