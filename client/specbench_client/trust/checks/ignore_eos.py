"""Text past its natural end is easy to draft."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    return [
        Seen(
            Severity.NOTE,
            f"workload {workload.name!r} runs past the natural end of its answers (ignoreEos): what follows repeats"
            " itself and flatters every drafter",
            workload=workload.name,
        )
        for workload in evidence.plan.workloads
        if workload.output.ignore_eos
    ]


CHECK: Check[RunEvidence] = Check(
    name="IgnoreEos",
    severities=(Severity.NOTE,),
    says="A workload asks for text past the natural end of the answer.",
    threshold="ignoreEos: true",
    argument="Past its end a model repeats itself; acceptance there is not acceptance on your traffic.",
    remedy="Use it for throughput ceilings alone, never to choose a drafter.",
    look=_look,
)
