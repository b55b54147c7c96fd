"""Requests without a partner: what is compared is less than what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SHARE = 0.1


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    pairs = evidence.pairs
    if pairs is None or pairs.candidates == 0:
        return []
    paired = len(pairs.rows)
    share = 1 - paired / pairs.candidates
    if paired == 0:
        message = f"none of {pairs.candidates} steady requests has a partner in the baseline: there is no comparison"
        return [Seen(Severity.DOUBT, message, value=share, threshold=SHARE)]
    if share <= SHARE:
        return []
    message = f"{share:.0%} of {pairs.candidates} steady requests have no partner in the baseline"
    if pairs.unpaired_later:
        message += f", {pairs.unpaired_later} of them later turns whose earlier replies differ"
    return [Seen(Severity.NOTE, message, value=share, threshold=SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="UnpairedRequests",
    severities=(Severity.DOUBT, Severity.NOTE),
    says="Steady requests of the arm have no partner in the baseline.",
    threshold=f"a Note above {SHARE:.0%}; a Doubt where no request has one",
    argument=(
        "What drains on one side and not on the other is a few requests a stream. More means failures, or conversations"
        " that took another course; the speed-up then speaks of the rest alone."
    ),
    remedy="Ask for more requests a point; read the speed-up of conversations as one of their first turns.",
    look=_look,
)
