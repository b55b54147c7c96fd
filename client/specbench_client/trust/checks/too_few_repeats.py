"""Without repeats the noise between runs is not in any interval."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen

REPEATS = 3


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    repeats = evidence.plan.load.repeats
    if repeats >= REPEATS:
        return []
    times = "once" if repeats == 1 else "twice"
    message = f"every point was measured {times}: what differs from run to run is not in the intervals, or hardly"
    return [Seen(Severity.NOTE, message, value=repeats, threshold=REPEATS)]


CHECK: Check[RunEvidence] = Check(
    name="TooFewRepeats",
    severities=(Severity.NOTE,),
    says="Points were measured fewer than three times.",
    threshold=f"fewer than {REPEATS} repeats",
    argument="A spread over runs needs three of them for a t interval that is not absurdly wide.",
    remedy="Set load.repeats to 3 or more; 5 for a claim.",
    look=_look,
)
