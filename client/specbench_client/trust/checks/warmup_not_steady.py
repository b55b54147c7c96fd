"""A warm-up that ended before step times were steady, so that part of it is in the figures."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence


def _evaluate(evidence: PointEvidence) -> CheckResults:
    health = evidence.health
    if health.warmup_steady is not False:
        return []
    message = (
        f"step times were not steady after {health.warmup_requests or 0} warm-up requests, the maximum set by"
        " load.warmupRequests: this point, the first of its launch, may contain the rest of the warm-up"
    )
    return [CheckResult(Severity.WARNING, message, value=health.warmup_requests)]


CHECK: Check[PointEvidence] = Check(
    name="WarmupNotSteady",
    severities=(Severity.WARNING,),
    description="The warm-up before the launch's first point ended without steady step times.",
    threshold="the warm-up's own test, see load.warmupRequests",
    rationale=(
        "Compilation, graph capture for new batch sizes, clocks and caches slow the first requests down; if the"
        " last warm-up requests were still getting faster, so were the first measured ones."
    ),
    remedy=(
        "Raise load.warmupRequests (`specbench measure`: --warmup); on a noisy machine, find out what else runs on it."
    ),
    evaluate=_evaluate,
)
