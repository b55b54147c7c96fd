"""Arrival times taken by the client's process instead of the kernel."""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import RunEvidence


def _evaluate(evidence: RunEvidence) -> CheckResults:
    known = [(summary, summary.client_health.kernel_clock_share) for summary in evidence.summaries]
    lower = [share for _, share in known if share is not None and share < 1]
    if not lower:
        return []
    share = sum(lower) / len(lower)
    message = (
        f"in {len(lower)} of {len(evidence.summaries)} points arrival times come from the client and not from the"
        f" kernel ({1 - share:.0%} of the answers there): each is late by as long as the client was busy"
    )
    return [CheckResult(Severity.INFO, message, value=share, threshold=1)]


CHECK: Check[RunEvidence] = Check(
    name="UserSpaceTimestamps",
    severities=(Severity.INFO,),
    description="Arrival times were taken in the client's process and not by the kernel.",
    threshold="any answer whose record has `timestamp_source: user`",
    rationale=(
        "The kernel timestamps bytes when they arrive, whatever the client is doing. A timestamp taken by our"
        " process waits for its event loop: about a millisecond on an idle client, and on a busy one the lag that"
        " ClientSaturated bounds."
    ),
    remedy="Measure over plain HTTP if possible: behind TLS the kernel's timestamps are not available.",
    evaluate=_evaluate,
)
