"""Counters that decreased: the engine restarted during the measurement."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence


def _evaluate(evidence: PointEvidence) -> CheckResults:
    if evidence.counters is None or not evidence.counters.restarted:
        return []
    message = (
        "a counter of the engine decreased within the point: the engine restarted and lost its warm-up and its caches"
    )
    return [CheckResult(Severity.INVALID, message)]


CHECK: Check[PointEvidence] = Check(
    name="EngineRestarted",
    severities=(Severity.INVALID,),
    description="A counter of the engine decreased within the point.",
    threshold="any",
    rationale="Counters only increase while an engine process lives.",
    remedy="Find out why the engine restarted (memory limit, probes), and measure again.",
    evaluate=_evaluate,
)
