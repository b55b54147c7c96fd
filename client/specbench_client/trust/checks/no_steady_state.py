"""Too few requests between ramp and drain for a steady state."""

from __future__ import annotations

import math

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import flags, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence


def _evaluate(evidence: PointEvidence) -> CheckResults:
    found, required = len(steady_rows(evidence.rows)), _required(evidence)
    if found >= required:
        return []
    load = evidence.point.level.words
    message = (
        f"{found} of {len(evidence.rows)} requests are in the steady state at {load}, and at least {required} are"
        " required; the others are ramp, drain or failed: "
    ) + (
        "about three requests per stream are needed"
        if evidence.closed
        else "the point was too short, or more requests arrived than the engine can serve"
    )
    return [CheckResult(Severity.INVALID, message, value=found, threshold=required)]


def _required(evidence: PointEvidence) -> int:
    """One request per stream; in an open loop, as many as were in flight; any number if fillers kept the load up."""
    if flags(evidence.rows, "filler").any():
        return 1
    return evidence.point.level.concurrency or max(1, math.ceil(evidence.health.reached_concurrency or 0))


CHECK: Check[PointEvidence] = Check(
    name="NoSteadyState",
    severities=(Severity.INVALID,),
    description=("The steady state has too few requests."),
    threshold=(
        "fewer error-free steady requests than streams; in an open loop, fewer than requests in flight on average;"
        " if fillers kept the load up, none"
    ),
    rationale=(
        "With fewer than one request per stream, the window contains only parts of requests, and its throughput"
        " depends on where it begins. Fillers keep the full load on each measured request from beginning to end, so"
        " that one request is enough."
    ),
    remedy=(
        "Request more (load.requests: at least three times the highest concurrency; load.durationSeconds: many"
        " times the longest answer), or lower a rate that the engine cannot serve."
    ),
    evaluate=_evaluate,
)
