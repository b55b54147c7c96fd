"""A handful of prompts cannot carry a claim about traffic."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

DOUBT_BELOW = 5
NOTE_BELOW = 20


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    seen = []
    for workload, prompts in evidence.prompts.items():
        if prompts >= NOTE_BELOW:
            continue
        severity = Severity.DOUBT if prompts < DOUBT_BELOW else Severity.NOTE
        message = f"the figures of workload {workload!r} rest on {prompts} different prompts: they speak of those alone"
        threshold = DOUBT_BELOW if severity is Severity.DOUBT else NOTE_BELOW
        seen.append(Seen(severity, message, value=prompts, threshold=threshold, workload=workload))
    return seen


CHECK: Check[RunEvidence] = Check(
    name="FewPrompts",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="The steady state of some cell of a workload holds few different prompts.",
    threshold=f"a Note below {NOTE_BELOW} different prompts, a Doubt below {DOUBT_BELOW}",
    argument=(
        "At 20 prompts the 95 % interval of an acceptance length is about ± 0.1 wide on even data and much wider"
        " on uneven; fewer than 5 give resampling at most 35 different samples, and no interval is sound."
    ),
    remedy="Use more prompts of your own traffic; 80 a category is a good number.",
    look=_look,
)
