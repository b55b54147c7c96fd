"""A drafter that remembers: it was asked the same prompts before, and drafts their answers from memory.

Drafters with a memory of past text (suffix trees, pools of n-grams) grow better at what they have seen. One launch
serves several loads, and several repeats where they are not interleaved, and all of them ask the same prompts. A greedy
answer is the same each time, so the drafts that are accepted of it are, too, unless something was learned in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from specbench_api.outcome.finding import Severity
from specbench_api.outcome.summary import PointSummary
from specbench_client.metrics.acceptance import EMITTED_POOLED
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

GAIN = 0.15


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    found = [seen for workload in evidence.plan.workloads if workload.sampling.temperature == 0
             for seen in _of_workload(evidence, workload.name)]  # fmt: skip
    return [seen for _, (seen, *_) in groupby(found, key=lambda seen: (seen.arm, seen.workload))]


def _of_workload(evidence: RunEvidence, workload: str) -> Iterator[Seen]:
    """The first later point of each launch at which far more is accepted than at its first one."""
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
                    f"the acceptance length of {workload!r} rose by {gain:.0%} from the first point of a launch"
                    f" ({lengths[0][1]:.2f}) to one after it ({length:.2f} at {point.level.label}, repeat"
                    f" {point.repeat}), with the same prompts: the drafter remembers their answers"
                )
                yield Seen(Severity.DOUBT, message, value=gain, threshold=GAIN, arm=group.arm, workload=workload)
                break


def _length(point: PointSummary) -> float | None:
    """Tokens a step of a point whose drafter drafted; None for the baseline, or where it is not told."""
    figure = point.figures.get(EMITTED_POOLED.name)
    return None if figure is None or figure.value is None or figure.value <= 1 else figure.value


CHECK: Check[RunEvidence] = Check(
    name="WarmedDrafter",
    severities=(Severity.DOUBT,),
    says="At temperature 0, a later point of one launch has a far larger acceptance length with the same prompts.",
    threshold=f"more than {GAIN:.0%} above the first point of the same launch and workload",
    argument=(
        "The same greedy answers have the same drafts accepted, whatever the load: between two points of one launch"
        " rounding alone differs, and which requests are steady, a few hundredths. What a memory adds to a prompt that"
        " it has seen is a multiple. Sampled answers differ, and are not compared."
    ),
    remedy=(
        "Measure one load a run with order: Interleaved, so that each launch is asked each prompt once; or switch the"
        " memory off (vLLM: suffix_decoding_max_cached_requests 0), if your traffic does not repeat itself."
    ),
    look=_look,
)
