"""Arrival times that our own process took, and not the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import RunEvidence, Seen


def _look(evidence: RunEvidence) -> Sequence[Seen]:
    known = [(summary, summary.self_watch.kernel_clock_share) for summary in evidence.summaries]
    lower = [share for _, share in known if share is not None and share < 1]
    if not lower:
        return []
    share = sum(lower) / len(lower)
    message = (
        f"in {len(lower)} of {len(evidence.summaries)} points arrival times are the client's own, not the kernel's"
        f" ({1 - share:.0%} of the answers there): each is late by as long as the client was busy"
    )
    return [Seen(Severity.NOTE, message, value=share, threshold=1)]


CHECK: Check[RunEvidence] = Check(
    name="LowerGradeClock",
    severities=(Severity.NOTE,),
    says="Arrival times were read in the client's process and not taken by the kernel.",
    threshold="any answer whose record has clock: user",
    argument=(
        "The kernel stamps bytes when they arrive, whatever the client does then. A time that our process takes waits"
        " for its event loop: a millisecond or so on an idle client, the lag that ClientSaturated bounds on a busy one."
    ),
    remedy="Measure over plain http where that can be had: behind TLS the kernel's stamps are not to be had.",
    look=_look,
)
