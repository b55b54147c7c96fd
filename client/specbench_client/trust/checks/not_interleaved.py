"""Arms measured one after the other: what drifts meanwhile weighs on one of them."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.spec.load import Order
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    load = evidence.plan.load
    if load.order is not Order.SEQUENTIAL or load.repeats < 2 or len(evidence.plan.arms) < 2:
        return []
    message = "arms were measured one after the other: a machine that drifts (heat, clocks, neighbours) favours one"
    return [Seen(Severity.NOTE, message)]


CHECK: Check[RunEvidence] = Check(
    name="NotInterleaved",
    severities=(Severity.NOTE,),
    says="The arms' repeats were not interleaved.",
    threshold="order: Sequential with two repeats or more and two arms or more",
    argument=(
        "Interleaved repeats (arms forwards, then backwards: ABBA) let a slow drift weigh on every arm alike; one"
        " repeat cannot be interleaved."
    ),
    remedy="Set load.order to Interleaved; it pays with more launches.",
    look=_look,
)
