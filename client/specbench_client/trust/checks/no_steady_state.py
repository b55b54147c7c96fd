"""Too little between ramp and drain to speak of a steady state."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import flags, steady
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    found, asked = len(steady(evidence.rows)), _least(evidence)
    if found >= asked:
        return []
    load = evidence.point.level.words
    message = f"{found} of {len(evidence.rows)} requests lie in the steady state at {load}, {asked} are the least: " + (
        "the rest is ramp, drain or failed; about three requests a stream are needed"
        if evidence.closed
        else "the rest is ramp, drain or failed; the point was too short, or more arrived than the engine could do"
    )
    return [Seen(Severity.INVALID, message, value=found, threshold=asked)]


def _least(evidence: PointEvidence) -> int:
    """One request a stream; in an open loop, as many as were in flight; where fillers held the load, any."""
    if flags(evidence.rows, "filler").any():
        return 1
    return evidence.point.level.concurrency or max(1, math.ceil(evidence.watch.reached_concurrency or 0))


CHECK: Check[PointEvidence] = Check(
    name="NoSteadyState",
    severities=(Severity.INVALID,),
    says="Fewer requests lie in the steady state than there are streams (open loop: than were in flight on average).",
    threshold=(
        "fewer than one error-free steady request a stream, or a request in flight; none, where fillers held the load"
    ),
    argument=(
        "One request a stream is one residence time: a shorter window sees parts of requests only, and its throughput"
        " depends on where it happens to begin. Fillers before and after the measured requests make every one of them"
        " see the full load from beginning to end, however few they are."
    ),
    remedy=(
        "Ask for more (load.requests, at least three times the highest concurrency; load.durationSeconds, many times"
        " the longest answer), or lower a rate that the engine cannot serve."
    ),
    look=_look,
)
