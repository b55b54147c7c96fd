"""Answers whose stream ends long after the last token: time during which the stream is occupied, in no latency figure.

A speed-up divides tokens by the time to the last token. Whatever an engine or a proxy holds back afterwards (the usage
and the end of the stream) delays the users' next request and lowers the engine's throughput, but changes no latency.
"""

from __future__ import annotations

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.latency import stream_end_delay_share
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SHARE = 0.05


def _evaluate(evidence: CellEvidence) -> CheckResults:
    mine = stream_end_delay_share(evidence.rows)
    theirs = None if evidence.baseline is None else stream_end_delay_share(evidence.baseline)
    if mine is None:
        return []
    differs = theirs is not None and max(mine, theirs) > SHARE and abs(mine - theirs) > SHARE
    if mine <= SHARE and not differs:
        return []
    baseline_share = "" if theirs is None else f" ({theirs:.1%} on the baseline)"
    message = (
        f"{mine:.1%} of the streams' time{baseline_share} is between an answer's last token and the end of its"
        " stream: no latency and no speed-up includes it"
    )
    return [CheckResult(Severity.INVALID if differs else Severity.WARNING, message, value=mine, threshold=SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="LateStreamEnd",
    severities=(Severity.INVALID, Severity.WARNING),
    description="Streams wait for the end of their answers long after the last token.",
    threshold=(
        f"Warning above {SHARE:.0%} of the streams' time; Invalid if the arm or the baseline is above it and the two"
        f" differ by more than {100 * SHARE:.0f} percentage points. The wait ends when the stream sends its next"
        " request, so in an open loop only waits before later turns count"
    ),
    rationale=(
        "The usage and the end of the stream normally follow the last token within a millisecond. If both sides wait"
        " equally long, the speed-up is right and the throughput too low; if not, the speed-up is wrong by the"
        " difference."
    ),
    remedy=(
        "Look for a proxy that delays the end of a stream, or for an engine that is busy before it ends an answer."
    ),
    evaluate=_evaluate,
)
