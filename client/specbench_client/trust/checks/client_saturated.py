"""A client that cannot keep up measures itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import steady
from specbench_client.metrics.latency import E2E_SENT_MS
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

CPU_SHARE = 0.8
LAG_SHARE = 0.05
LAG_MIN_MS = 5.0


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    seen = []
    share, lag = evidence.watch.cpu_share, evidence.watch.loop_lag_p99_ms
    if share is not None and share > CPU_SHARE:
        message = f"the client used {share:.0%} of one core: its time stamps wait for its own work"
        seen.append(Seen(Severity.INVALID, message, value=share, threshold=CPU_SHARE))
    allowed = _lag_allowed_ms(evidence)
    if lag is not None and allowed is not None and lag > allowed:
        message = f"the client's event loop was {lag:.1f} ms late at its 99th percentile; {allowed:.1f} ms is tolerable"
        seen.append(Seen(Severity.INVALID, message, value=lag, threshold=allowed))
    return seen


def _lag_allowed_ms(evidence: PointEvidence) -> float | None:
    times = E2E_SENT_MS.values(steady(evidence.rows))
    known = times[~np.isnan(times)]
    return max(LAG_MIN_MS, LAG_SHARE * float(np.median(known))) if known.size else None


CHECK: Check[PointEvidence] = Check(
    name="ClientSaturated",
    severities=(Severity.INVALID,),
    says="The client's event loop was late, or the client used up its core.",
    threshold=(
        f"99th percentile of the loop's lateness above {LAG_SHARE:.0%} of the median request time (and above"
        f" {LAG_MIN_MS:g} ms), or more than {CPU_SHARE:.0%} of one core"
    ),
    argument=(
        "A stamp that is late by 5 % of a request falsifies its times by as much; below 5 ms lies the jitter of timers."
        " Python runs on one core: at 80 % of it, work waits four times its own length."
    ),
    remedy="Give the client its own core, on another node than the engine's CPU work; lower the concurrency.",
    look=_look,
)
