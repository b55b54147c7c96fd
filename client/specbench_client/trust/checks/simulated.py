"""A simulation is never a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    if not evidence.simulated:
        return []
    message = "the engine was the simulator: these numbers show that the pipeline works, and nothing about any engine"
    return [Seen(Severity.NOTE, message)]


CHECK: Check[RunEvidence] = Check(
    name="Simulated",
    severities=(Severity.NOTE,),
    says="The engine was the simulator.",
    threshold="any simulated point",
    argument="Simulated times and acceptances are settings, not findings.",
    remedy="Run the same file with a real engine.",
    look=_look,
)
