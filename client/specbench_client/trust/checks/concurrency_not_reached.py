"""Fewer requests in flight than asked: the numbers belong to another load."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.9


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    reached, asked = evidence.watch.reached_concurrency, evidence.point.level.concurrency
    if reached is None or asked is None or reached >= SHARE * asked:
        return []
    message = f"{reached:.1f} requests were in flight in the steady state, {asked} were asked for"
    return [Seen(Severity.INVALID, message, value=reached, threshold=SHARE * asked)]


CHECK: Check[PointEvidence] = Check(
    name="ConcurrencyNotReached",
    severities=(Severity.INVALID,),
    says="In a closed loop, fewer requests than asked for were in flight on average in the steady state.",
    threshold=f"less than {SHARE:.0%} of the concurrency",
    argument=(
        "Between two requests a stream only parses and picks the next prompt; where that takes a tenth of the time, the"
        " client is part of what is measured. Speed-ups fall with load, so a lower load flatters."
    ),
    remedy="Give the client more CPU, ask for longer answers, or lower the concurrency.",
    look=_look,
)
