"""A speed-up that the engine's throughput contradicts.

In a closed loop with the same number of streams, faster answers mean more tokens per second. If the streams' time shows
a speed-up and the throughput a slow-down, the missing time is where no latency is measured: between requests, or after
the last token.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.rows import Rows
from specbench_client.metrics.steady_window import window_throughput
from specbench_client.metrics.tidy_frame import steady_rows
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

APART = 0.1
FEW_APART = 0.2
TURNS = 3
"""Steady requests per stream and repeat from which on `APART` applies; below it, `FEW_APART` does."""


def _evaluate(evidence: CellEvidence) -> CheckResults:
    speedup, baseline = evidence.speedup, evidence.baseline
    if evidence.level.concurrency is None or baseline is None or speedup is None or speedup.value is None:
        return []
    mine, theirs = _output_tps(evidence.rows), _output_tps(baseline)
    if not evidence.is_speedup_claimed or not mine or not theirs:
        return []
    ratio = mine / theirs
    apart = float(abs(np.log(speedup.value / ratio)))
    if (speedup.value > 1) == (ratio > 1) or apart <= np.log1p(APART):
        return []
    turns = min(_turns(rows, evidence.level.concurrency) for rows in (evidence.rows, baseline))
    if turns < TURNS and apart <= np.log1p(FEW_APART):
        return []
    message = (
        f"streams were {speedup.value:.2f} times as fast as the baseline's, but the engine delivered {ratio:.2f}"
        " times as many tokens per second under the same load: one of the two omits part of the time"
    )
    return [CheckResult(Severity.WARNING, message, value=ratio, threshold=speedup.value)]


def _turns(rows: Rows, streams: int) -> float:
    """Mean number of steady requests per stream and repeat."""
    inside = steady_rows(rows)
    return len(inside) / streams / max(1, inside["repeat"].nunique())


def _output_tps(rows: Rows) -> float | None:
    tokens, seconds = window_throughput(rows)
    return float(tokens.sum() / seconds.sum()) if seconds.size else None


CHECK: Check[CellEvidence] = Check(
    name="ThroughputContradictsSpeedup",
    severities=(Severity.WARNING,),
    description="In a closed loop, speed-up and engine throughput point in opposite directions.",
    threshold=(
        "a speed-up whose interval excludes 1, and a ratio of output_tps on the other side of 1, more than"
        f" {APART:.0%} apart ({FEW_APART:.0%} if a stream had fewer than {TURNS} steady requests per repeat)"
    ),
    rationale=(
        "The two differ slightly by design: the window contains requests without a partner, about one per stream."
        " In 148 cells of valid runs the standard deviation of the difference was 4 % below three requests per"
        " stream, 2.4 % from three to five, and 0.3 % from ten on; in one cell, with 36 prompts on 16 streams, they"
        " were 11 % apart: 1.11 times as fast by one and 0.99 by the other."
    ),
    remedy="See LateStreamEnd and ConcurrencyNotReached, and find out what the streams do between two answers.",
    evaluate=_evaluate,
)
