"""A drafter that remembers: it has seen the same prompts before and drafts their answers from memory.

Drafters with a memory of past text (suffix trees, n-gram pools) improve on text that they have seen. One launch serves
several loads, and several repeats if they are not interleaved, and all of them send the same prompts. A greedy answer
is the same each time, and so are its accepted drafts, unless the drafter learned something in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import PointSummary
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence

GAIN = 0.15


def _evaluate(evidence: RunEvidence) -> CheckResults:
    found = [result for workload in evidence.plan.workloads if workload.sampling.temperature == 0
             for result in _of_workload(evidence, workload.name)]  # fmt: skip
    return [result for _, (result, *_) in groupby(found, key=lambda result: (result.arm, result.workload))]


def _of_workload(evidence: RunEvidence, workload: str) -> Iterator[CheckResult]:
    """Yield the first later point of each launch with a far higher acceptance length than the launch's first point."""
    measured = {summary.hash: summary for summary in evidence.summaries}
    groups = sorted(evidence.plan.groups, key=lambda group: group.arm)
    for group in groups:
        points = [
            measured[point.hash] for point in group.points if point.hash in measured and point.workload == workload
        ]
        lengths = [(point, length) for point in points if (length := _length(point)) is not None]
        for point, length in lengths[1:]:
            gain = length / lengths[0][1] - 1
            if gain > GAIN:
                message = (
                    f"the acceptance length of workload {workload!r} rose by {gain:.0%} from the first point of a"
                    f" launch ({lengths[0][1]:.2f}) to a later one ({length:.2f} at {point.level.label}, repeat"
                    f" {point.repeat}) with the same prompts: the drafter remembers their answers"
                )
                yield CheckResult(
                    Severity.WARNING, message, value=gain, threshold=GAIN, arm=group.arm, workload=workload
                )
                break


def _length(point: PointSummary) -> float | None:
    """Tokens per step of a point whose drafter drafted; None for the baseline, or if it is not reported."""
    figure = point.figures.get(EMITTED_POOLED.name)
    return None if figure is None or figure.value is None or figure.value <= 1 else figure.value


CHECK: Check[RunEvidence] = Check(
    name="DrafterCarryover",
    severities=(Severity.WARNING,),
    description="At temperature 0, a later point of a launch has a far higher acceptance length on the same prompts.",
    threshold=f"more than {GAIN:.0%} above the first point of the same launch and workload",
    rationale=(
        "The same greedy answers have the same accepted drafts, whatever the load: two points of one launch differ"
        " only by rounding and by which requests are steady, a few hundredths. A memory multiplies the acceptance"
        " of a prompt that it has seen. Sampled answers differ and are not compared."
    ),
    remedy=(
        "Measure one load per run with `order: Interleaved`, so that each launch receives each prompt once. Or"
        " disable the memory (vLLM: suffix_decoding_max_cached_requests 0) if your traffic does not repeat itself."
    ),
    evaluate=_evaluate,
)
