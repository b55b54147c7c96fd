"""Fewer conversations per second than requested, so that the numbers belong to a different load."""

from __future__ import annotations

import math

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

LACKING = 0.05
ERRORS = 3.0


def _evaluate(evidence: PointEvidence) -> CheckResults:
    reached, requested, cv = evidence.health.reached_rate, evidence.point.level.rate, evidence.arrival_cv
    if reached is None or requested is None or cv is None:
        return []
    expected = None if evidence.steady_s is None else requested * evidence.steady_s
    chance = ERRORS * cv / math.sqrt(expected) if expected else 0.0
    least = requested * (1 - max(LACKING, chance))
    if reached >= least:
        return []
    message = f"{reached:.3g} conversations per second started in the steady state, but the load requests {requested:g}"
    return [CheckResult(Severity.INVALID, message, value=reached, threshold=least)]


CHECK: Check[PointEvidence] = Check(
    name="RateNotReached",
    severities=(Severity.INVALID,),
    description="In an open loop, fewer conversations per second than requested started in the steady state.",
    threshold=(
        f"{LACKING:.0%} below the requested rate, and by more than {ERRORS:g} standard errors of the arrival process"
        " (CV / √conversations). Not evaluated for traces, whose rate varies by design"
    ),
    rationale=(
        "An open loop does not wait for answers, so only a client that cannot keep up, or that ran out of sockets,"
        " starts fewer. Near the engine's limit, 5 % of the rate changes the waiting time by a multiple of that."
    ),
    remedy="Give the client more CPU or more workers, or lower the rate; request more conversations per point.",
    evaluate=_evaluate,
)
