"""Arguments that one arm has and the baseline does not, so that more than the drafter differs."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    return [
        CheckResult(
            Severity.INFO,
            f"arm {arm.name!r} has arguments that the baseline lacks: its speed-up includes their effect:"
            f" {' '.join(arm.drafter.args)}",
            value=len(arm.drafter.args),
            threshold=1,
            arm=arm.name,
        )
        for arm in evidence.plan.arms
        if arm.drafter and arm.drafter.args
    ]


CHECK: Check[RunEvidence] = Check(
    name="ArmSpecificArguments",
    severities=(Severity.INFO,),
    description="An arm has arguments that the baseline does not have.",
    threshold="1 argument",
    rationale="The effect of an argument that only one arm has cannot be separated from the effect of its drafter.",
    remedy="Move arguments that do not configure the drafter to engine.args, so that all arms have them.",
    evaluate=_evaluate,
)
