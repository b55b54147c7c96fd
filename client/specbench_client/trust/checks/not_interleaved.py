"""Arms measured one after the other, so that a drift of the machine affects only some of them."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_api.spec.load import ArmOrder
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    load = evidence.plan.load
    if load.order is not ArmOrder.SEQUENTIAL or load.repeats < 2 or len(evidence.plan.arms) < 2:
        return []
    message = (
        "arms were measured one after the other: if the machine drifts (heat, clocks, neighbours), it favours one"
        " of them"
    )
    return [CheckResult(Severity.INFO, message)]


CHECK: Check[RunEvidence] = Check(
    name="NotInterleaved",
    severities=(Severity.INFO,),
    description="The arms' repeats were not interleaved.",
    threshold="`order: Sequential` with at least two repeats and at least two arms",
    rationale=(
        "With interleaved repeats (arms forwards, then backwards: ABBA) a slow drift affects every arm equally; a"
        " single repeat cannot be interleaved."
    ),
    remedy="Set load.order to Interleaved; it costs more launches.",
    evaluate=_evaluate,
)
