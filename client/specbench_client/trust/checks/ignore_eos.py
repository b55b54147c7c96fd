"""Workloads that generate past the natural end of the answer, where text is easy to draft."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    return [
        CheckResult(
            Severity.INFO,
            f"workload {workload.name!r} generates past the natural end of its answers (ignoreEos): that text repeats"
            " itself and makes every drafter look better",
            workload=workload.name,
        )
        for workload in evidence.plan.workloads
        if workload.output.ignore_eos
    ]


CHECK: Check[RunEvidence] = Check(
    name="IgnoreEos",
    severities=(Severity.INFO,),
    description="A workload requests text past the natural end of the answer.",
    threshold="ignoreEos: true",
    rationale="Past its end a model repeats itself, so acceptance there is not the acceptance on your traffic.",
    remedy="Use it only to measure the maximum throughput, never to choose a drafter.",
    evaluate=_evaluate,
)
