"""The engine generated more than we asked for: somebody else is on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import flags, numbers
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.01


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    counters, tried = evidence.counters, evidence.tried
    counted = numbers(tried, "output_tokens")
    uncounted = flags(tried, "ok") & np.isnan(counted)
    if counters is None or counters.restarted or counters.output_tokens is None or uncounted.any() or tried.empty:
        return []
    most = evidence.plan.workload(evidence.point.workload).output.max_tokens
    ours = float(np.nansum(counted)) + most * int((~flags(tried, "ok")).sum())
    foreign = counters.output_tokens - ours
    if foreign <= SHARE * ours + len(tried):
        return []
    message = (
        f"the engine generated {counters.output_tokens} tokens while our requests received at most {ours:.0f}: other"
        " requests ran beside ours"
    )
    return [Seen(Severity.INVALID, message, value=foreign / counters.output_tokens, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="ForeignTraffic",
    severities=(Severity.INVALID,),
    says="The engine's counter of generated tokens is larger than what our requests received.",
    threshold=f"more than {SHARE:.0%} and one token a request; failed requests count as full answers of ours",
    argument=(
        "One token a request is the end-of-sequence token that some counters hold; 1 % of foreign tokens takes at most"
        " about 1 % of the speed."
    ),
    remedy="Let nobody else use the engine while it is measured; check the Service and the network policy.",
    look=_look,
)
