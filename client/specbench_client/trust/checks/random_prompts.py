"""Random words are no traffic."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_api.spec.dataset import Dataset, Source
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    return [
        Seen(
            Severity.DOUBT,
            f"{share:.0%} of the prompts of workload {workload.name!r} are random words: its figures are of no traffic",
            value=share,
            threshold=0.0,
            workload=workload.name,
        )
        for workload in evidence.plan.workloads
        if (share := _share(workload.dataset)) > 0
    ]


def _share(dataset: Dataset) -> float:
    """Of the prompts, how many are random."""
    if dataset.members is None:
        return float(dataset.source is Source.RANDOM)
    whole = sum(member.weight for member in dataset.members)
    return sum(member.weight for member in dataset.members if member.source is Source.RANDOM) / whole


CHECK: Check[RunEvidence] = Check(
    name="RandomPrompts",
    severities=(Severity.DOUBT,),
    says="The prompts of a workload are random words.",
    threshold="any workload or member of a mix with source random",
    argument=(
        "A model answers random text with something trivial, or fixes on one of its words: SPEED-Bench's authors saw"
        " throughput with a drafter overstated by 23 % on average, and rankings of drafters reversed."
    ),
    remedy="Measure prompts of your own traffic, or a published set; for given lengths prepare those.",
    look=_look,
)
