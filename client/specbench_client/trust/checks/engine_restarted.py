"""Counters that went backwards: the engine restarted behind the measurement's back."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    if evidence.counters is None or not evidence.counters.restarted:
        return []
    message = "a counter of the engine went backwards within the point: it restarted, warm-up and caches are gone"
    return [Seen(Severity.INVALID, message)]


CHECK: Check[PointEvidence] = Check(
    name="EngineRestarted",
    severities=(Severity.INVALID,),
    says="A counter of the engine went backwards within the point.",
    threshold="any",
    argument="Counters only grow in one life of an engine.",
    remedy="Find out why it restarted (memory, probes), and measure again.",
    look=_look,
)
