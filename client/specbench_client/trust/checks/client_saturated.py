"""A client that cannot keep up measures itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers, steady
from specbench_client.metrics.latency import E2E_SENT_MS, NS_PER_MS
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

CPU_SHARE = 0.8
LATE_SHARE = 0.05
LATE_MIN_MS = 5.0


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    return [*_used_up(evidence), *_late_loop(evidence), *_late_sends(evidence)]


def _used_up(evidence: PointEvidence) -> list[Seen]:
    share = evidence.watch.cpu_share
    if share is None or share <= CPU_SHARE:
        return []
    message = f"the client used {share:.0%} of one core: what it sends and stamps waits for its own work"
    return [Seen(Severity.INVALID, message, value=share, threshold=CPU_SHARE)]


def _late_loop(evidence: PointEvidence) -> list[Seen]:
    lag, request = evidence.watch.loop_lag_p99_ms, _request_ms(evidence)
    allowed = None if request is None else max(LATE_MIN_MS, LATE_SHARE * request)
    if lag is None or allowed is None or lag <= allowed:
        return []
    message = f"the client's event loop was {lag:.1f} ms late at its 99th percentile; {allowed:.1f} ms is tolerable"
    return [Seen(Severity.INVALID, message, value=lag, threshold=allowed)]


def _late_sends(evidence: PointEvidence) -> list[Seen]:
    """Of an open loop alone: what a closed loop dawdles shows as concurrency that is not reached."""
    late, lengths = evidence.watch.send_lateness_p99_ms, [_request_ms(evidence), _gap_ms(evidence)]
    known = [length for length in lengths if length is not None]
    if evidence.closed or late is None or not known:
        return []
    allowed = max(LATE_MIN_MS, LATE_SHARE * min(known))
    if late <= allowed:
        return []
    message = (
        f"conversations were begun {late:.1f} ms after their time at the 99th percentile; {allowed:.1f} ms is"
        " tolerable: the engine saw other arrivals than were asked for"
    )
    return [Seen(Severity.INVALID, message, value=late, threshold=allowed)]


def _request_ms(evidence: PointEvidence) -> float | None:
    """The median request's time from the socket."""
    times = E2E_SENT_MS.values(steady(evidence.rows))
    known = times[~np.isnan(times)]
    return float(np.median(known)) if known.size else None


def _gap_ms(evidence: PointEvidence) -> float | None:
    """The median time between two conversations' intended beginnings."""
    first = evidence.rows[numbers(evidence.rows, "turn") == 0]
    gaps = np.diff(np.sort(numbers(first, "intended_ns"))) / NS_PER_MS
    return float(np.median(gaps)) if gaps.size else None


CHECK: Check[PointEvidence] = Check(
    name="ClientSaturated",
    severities=(Severity.INVALID,),
    says="The client's event loop was late, its open loop sent late, or it used up its core.",
    threshold=(
        f"99th percentile of the loop's lateness above {LATE_SHARE:.0%} of the median request time (and above"
        f" {LATE_MIN_MS:g} ms); in an open loop, 99th percentile of connect_ns − intended_ns of first turns above"
        f" {LATE_SHARE:.0%} of the median request time or of the median time between two arrivals (and above"
        f" {LATE_MIN_MS:g} ms); or more than {CPU_SHARE:.0%} of one core in any worker"
    ),
    argument=(
        "What is late by 5 % of a request falsifies its times by as much, since latency runs from the intended time;"
        " 5 % of the time between arrivals leaves their process as it was asked for. Below 5 ms lies the jitter of"
        " timers, and hardly an engine's step is shorter. A server that accepts late is not the client's fault: its"
        " delay lies after connect_ns, and in the latency. Python runs on one core: at 80 % of it, work waits four"
        " times its own length."
    ),
    remedy=("Give the client cores of its own, away from the engine's CPU work, and more workers; or lower the load."),
    look=_look,
)
