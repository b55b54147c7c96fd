"""A client that cannot keep up measures itself instead of the engine."""

from __future__ import annotations

import math

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_api.spec.load import CLIENTS_MAX
from specbench_client.metrics.latency import E2E_SENT_MS, NS_PER_MS
from specbench_client.metrics.tidy_frame import numbers, steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

CPU_SHARE = 0.8
TARGET_SHARE = 0.5
"""Share of a core at which work hardly waits, for the recommended number of clients."""
LATE_SHARE = 0.05
LATE_MIN_MS = 5.0


def _evaluate(evidence: PointEvidence) -> CheckResults:
    return [*_cpu_exhausted(evidence), *_late_loop(evidence), *_late_sends(evidence)]


def _cpu_exhausted(evidence: PointEvidence) -> list[CheckResult]:
    share = evidence.health.cpu_share
    if share is None or share <= CPU_SHARE:
        return []
    message = f"the client used {share:.0%} of one core: sending and timestamping wait for its own work"
    message += _advice(evidence, share / TARGET_SHARE)
    return [CheckResult(Severity.INVALID, message, value=share, threshold=CPU_SHARE)]


def _late_loop(evidence: PointEvidence) -> list[CheckResult]:
    lag, request = evidence.health.loop_lag_p99_ms, _request_ms(evidence)
    allowed = None if request is None else max(LATE_MIN_MS, LATE_SHARE * request)
    if lag is None or allowed is None or lag <= allowed:
        return []
    message = (
        f"the client's event loop was {lag:.1f} ms late at the 99th percentile; at most {allowed:.1f} ms is tolerable"
        + _advice(evidence)
    )
    return [CheckResult(Severity.INVALID, message, value=lag, threshold=allowed)]


def _late_sends(evidence: PointEvidence) -> list[CheckResult]:
    """Report late sends of an open loop; a slow client in a closed loop shows as concurrency that is not reached."""
    late, lengths = evidence.health.send_lateness_p99_ms, [_request_ms(evidence), _gap_ms(evidence)]
    known = [length for length in lengths if length is not None]
    if evidence.closed or late is None or not known:
        return []
    allowed = max(LATE_MIN_MS, LATE_SHARE * min(known))
    if late <= allowed:
        return []
    message = (
        f"conversations started {late:.1f} ms after their intended time at the 99th percentile, and at most"
        f" {allowed:.1f} ms is tolerable: the arrivals at the engine are not the requested ones" + _advice(evidence)
    )
    return [CheckResult(Severity.INVALID, message, value=late, threshold=allowed)]


def _advice(evidence: PointEvidence, factor: float = 2.0) -> str:
    """Return the recommended number of clients, `factor` times as many; empty if there cannot be more."""
    now = evidence.plan.load.clients
    clients = min(max(now + 1, math.ceil(now * factor)), CLIENTS_MAX)
    return f"; on a cluster, divide the load among more clients with load.clients: {clients}" if clients > now else ""


def _request_ms(evidence: PointEvidence) -> float | None:
    """The median E2E latency of a request, measured at the socket, in ms."""
    times = E2E_SENT_MS.values(steady_rows(evidence.rows))
    known = times[~np.isnan(times)]
    return float(np.median(known)) if known.size else None


def _gap_ms(evidence: PointEvidence) -> float | None:
    """The median gap between the intended starts of two conversations, in ms."""
    first = evidence.rows[numbers(evidence.rows, "turn") == 0]
    gaps = np.diff(np.sort(numbers(first, "intended_ns"))) / NS_PER_MS
    return float(np.median(gaps)) if gaps.size else None


CHECK: Check[PointEvidence] = Check(
    name="ClientSaturated",
    severities=(Severity.INVALID,),
    description="The client's event loop was late, its open loop sent requests late, or it used up its core.",
    threshold=(
        f"99th percentile of the event loop's lateness above {LATE_SHARE:.0%} of the median request time (and above"
        f" {LATE_MIN_MS:g} ms); in an open loop, 99th percentile of connect_ns − intended_ns of first turns above"
        f" {LATE_SHARE:.0%} of the median request time or of the median gap between arrivals (and above"
        f" {LATE_MIN_MS:g} ms); or more than {CPU_SHARE:.0%} of one core in any worker"
    ),
    rationale=(
        "Latency is measured from the intended time, so lateness of 5 % of a request distorts its times by as"
        " much; 5 % of the gap between arrivals leaves the arrival process as requested. Below 5 ms is the jitter"
        " of timers, and hardly any engine's step is shorter. If the server accepts late, the delay is"
        " after connect_ns and part of the latency. Python runs on one core: at 80 % utilisation,"
        " work waits four times its own length."
    ),
    remedy=(
        "Give the client its own cores, away from the engine's CPU work, and more workers; on a cluster, raise"
        " load.clients; or lower the load."
    ),
    evaluate=_evaluate,
)
