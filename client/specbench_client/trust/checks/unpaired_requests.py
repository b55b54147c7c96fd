"""Requests without a partner: the comparison covers less than what was measured."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SHARE = 0.1


def _evaluate(evidence: CellEvidence) -> CheckResults:
    pairs = evidence.pairs
    if pairs is None or pairs.candidates == 0:
        return []
    paired = len(pairs.rows)
    share = 1 - paired / pairs.candidates
    if paired == 0:
        message = f"none of {pairs.candidates} steady requests has a partner in the baseline, so there is no comparison"
        return [CheckResult(Severity.WARNING, message, value=share, threshold=SHARE)]
    if share <= SHARE:
        return []
    message = f"{share:.0%} of {pairs.candidates} steady requests have no partner in the baseline"
    if pairs.unpaired_later:
        message += f", {pairs.unpaired_later} of them because they are later turns whose earlier replies differ"
    return [CheckResult(Severity.INFO, message, value=share, threshold=SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="UnpairedRequests",
    severities=(Severity.WARNING, Severity.INFO),
    description="Steady requests of the arm have no partner in the baseline.",
    threshold=f"Info above {SHARE:.0%}; Warning if no request has a partner",
    rationale=(
        "Requests in the drain of one side and not of the other are a few per stream. More unpaired requests mean"
        " failures, or conversations whose replies diverged; the speed-up then covers only the rest."
    ),
    remedy="Request more per point; for conversations, read the speed-up as one of their first turns.",
    evaluate=_evaluate,
)
