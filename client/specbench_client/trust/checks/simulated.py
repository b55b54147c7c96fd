"""A simulation is never a measurement."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    if not evidence.simulated:
        return []
    message = "the engine is the simulator: these numbers show that the pipeline works, and nothing about a real engine"
    return [CheckResult(Severity.INFO, message)]


CHECK: Check[RunEvidence] = Check(
    name="Simulated",
    severities=(Severity.INFO,),
    description="The engine was the simulator.",
    threshold="any simulated point",
    rationale="Simulated times and acceptances are configured, not measured.",
    remedy="Run the same spec with a real engine.",
    evaluate=_evaluate,
)
