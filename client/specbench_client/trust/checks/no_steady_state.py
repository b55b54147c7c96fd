"""Too little between ramp and drain to speak of a steady state."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import steady
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    found, asked = len(steady(evidence.rows)), evidence.point.concurrency
    if found >= asked:
        return []
    message = (
        f"{found} of {len(evidence.rows)} requests lie in the steady state at concurrency {asked}: the rest is ramp,"
        " drain or failed; about three requests a stream are the least"
    )
    return [Seen(Severity.INVALID, message, value=found, threshold=asked)]


CHECK: Check[PointEvidence] = Check(
    name="NoSteadyState",
    severities=(Severity.INVALID,),
    says="Fewer requests lie in the steady state than there are streams.",
    threshold="fewer than one error-free steady request a stream",
    argument=(
        "One request a stream is one residence time: a shorter window sees parts of requests only, and its throughput"
        " depends on where it happens to begin."
    ),
    remedy="Ask for more requests (load.requests): at least three times the highest concurrency.",
    look=_look,
)
