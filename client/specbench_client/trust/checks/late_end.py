"""Answers that end long after their last token: time in which a stream is held, and which no latency shows.

A speed-up divides tokens by the time to the last token. What an engine or a proxy holds back afterwards, the usage and
the end of the stream, slows the users' next request and the whole engine's throughput, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.afterwards import afterwards_share
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SHARE = 0.05


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    mine = afterwards_share(evidence.rows)
    theirs = None if evidence.baseline is None else afterwards_share(evidence.baseline)
    if mine is None:
        return []
    differs = theirs is not None and max(mine, theirs) > SHARE and abs(mine - theirs) > SHARE
    if mine <= SHARE and not differs:
        return []
    beside = "" if theirs is None else f" ({theirs:.1%} on the baseline)"
    message = (
        f"{mine:.1%} of the streams' time{beside} lies between the last token of an answer and the end of its stream:"
        " it is in no latency and in no speed-up"
    )
    return [Seen(Severity.INVALID if differs else Severity.DOUBT, message, value=mine, threshold=SHARE)]


CHECK: Check[CellEvidence] = Check(
    name="LateEnd",
    severities=(Severity.INVALID, Severity.DOUBT),
    says="Streams wait for the end of their answers long after the last token.",
    threshold=(
        f"a Doubt above {SHARE:.0%} of the streams' time; Invalid where arm or baseline is above it and the two differ"
        f" by more than {100 * SHARE:.0f} points. Told by the streams' next requests: in an open loop by later turns"
        " alone"
    ),
    argument=(
        "Usage and end follow the last token within a millisecond; only waiting makes it a twentieth of a request."
        " Alike on both sides it leaves the ratio and spoils the throughput; unlike it falsifies the speed-up by as"
        " much."
    ),
    remedy="Look for a proxy that holds the end of a stream back, or an engine that is busy before it ends an answer.",
    look=_look,
)
