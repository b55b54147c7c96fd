"""Arguments that one arm has and the baseline has not: the drafter is then not all that differs."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    return [
        Seen(
            Severity.NOTE,
            f"arm {arm.name!r} has arguments of its own, which are compared with it: {' '.join(arm.drafter.args)}",
            value=len(arm.drafter.args),
            threshold=1,
            arm=arm.name,
        )
        for arm in evidence.plan.arms
        if arm.drafter and arm.drafter.args
    ]


CHECK: Check[RunEvidence] = Check(
    name="HiddenDifference",
    severities=(Severity.NOTE,),
    says="An arm has arguments that the baseline does not have.",
    threshold="1 argument",
    argument="Whatever only one arm has is compared together with its drafter.",
    remedy="Give to engine.args what is not the drafter's business.",
    look=_look,
)
