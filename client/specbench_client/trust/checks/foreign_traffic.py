"""The engine generated more tokens than our requests received: other clients used it at the same time."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import flags, numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.01


def _evaluate(evidence: PointEvidence) -> CheckResults:
    counters, tried = evidence.monotonic_counters, evidence.tried
    counted = numbers(tried, "output_tokens")
    uncounted = flags(tried, "ok") & np.isnan(counted)
    if counters is None or counters.output_tokens is None or uncounted.any() or tried.empty:
        return []
    most = evidence.workload.output.max_tokens
    ours = float(np.nansum(counted)) + most * int((~flags(tried, "ok")).sum())
    foreign = counters.output_tokens - ours
    if foreign <= SHARE * ours + len(tried):
        return []
    message = (
        f"the engine generated {counters.output_tokens} tokens, but our requests received at most {ours:.0f}: other"
        " clients used it during the measurement"
    )
    return [CheckResult(Severity.INVALID, message, value=foreign / counters.output_tokens, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="ForeignTraffic",
    severities=(Severity.INVALID,),
    description="The engine's counter of generated tokens is larger than what our requests received.",
    threshold=f"more than {SHARE:.0%} plus one token per request; failed requests count as full answers",
    rationale=(
        "One token per request is the end-of-sequence token, which some counters include; 1 % of foreign tokens"
        " reduces the speed by about 1 % at most."
    ),
    remedy=(
        "Make sure that nothing else uses the engine during the measurement; check the Service and the network policy."
    ),
    evaluate=_evaluate,
)
