"""A warm-up that ended before step times were steady: part of it is in the figures."""

from __future__ import annotations

from collections.abc import Sequence

from specbench_api.outcome.finding import Severity
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    watch = evidence.watch
    if watch.warmup_steady is not False:
        return []
    message = (
        f"step times were not steady after {watch.warmup_requests or 0} warm-up requests, the most that"
        " load.warmupRequests allows: this point, the first of its launch, may hold the rest of the warm-up"
    )
    return [Seen(Severity.DOUBT, message, value=watch.warmup_requests)]


CHECK: Check[PointEvidence] = Check(
    name="WarmupNotSteady",
    severities=(Severity.DOUBT,),
    says="The warm-up before the launch's first point ended without steady step times.",
    threshold="the warm-up's own test, see load.warmupRequests",
    argument=(
        "Compilation, graphs captured for new batch sizes, clocks and caches make the first requests slow; where the"
        " last of them were still getting faster, the first measured ones were too."
    ),
    remedy="Raise load.warmupRequests (`measure`: --warmup); on a noisy machine, find what else runs on it.",
    look=_look,
)
