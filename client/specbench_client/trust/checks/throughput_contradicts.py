"""A speed-up that the engine's throughput denies.

In a closed loop of as many streams, faster answers are more tokens a second. Where the streams' time says faster and
the throughput slower, the time that is missing lies where no latency looks: between requests, or after the last token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import steady
from specbench_client.metrics.rows import Rows
from specbench_client.metrics.window import deliveries
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

APART = 0.1
FEW_APART = 0.2
TURNS = 3
"""Steady requests a stream and repeat from which on `APART` is asked; below, `FEW_APART`."""


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    speedup, baseline = evidence.speedup, evidence.baseline
    if evidence.level.concurrency is None or baseline is None or speedup is None or speedup.value is None:
        return []
    claimed = speedup.interval is not None and not speedup.interval.low <= 1 <= speedup.interval.high
    mine, theirs = _output_tps(evidence.rows), _output_tps(baseline)
    if not claimed or not mine or not theirs:
        return []
    ratio = mine / theirs
    apart = float(abs(np.log(speedup.value / ratio)))
    if (speedup.value > 1) == (ratio > 1) or apart <= np.log1p(APART):
        return []
    turns = min(_turns(rows, evidence.level.concurrency) for rows in (evidence.rows, baseline))
    if turns < TURNS and apart <= np.log1p(FEW_APART):
        return []
    message = (
        f"streams were {speedup.value:.2f} times as fast as the baseline's, and the engine delivered {ratio:.2f} times"
        " as many tokens a second under the same load: one of the two leaves out part of the time"
    )
    return [Seen(Severity.DOUBT, message, value=ratio, threshold=speedup.value)]


def _turns(rows: Rows, streams: int) -> float:
    """Steady requests of a stream in one repeat, on the mean."""
    inside = steady(rows)
    return len(inside) / streams / max(1, inside["repeat"].nunique())


def _output_tps(rows: Rows) -> float | None:
    tokens, seconds = deliveries(rows)
    return float(tokens.sum() / seconds.sum()) if seconds.size else None


CHECK: Check[CellEvidence] = Check(
    name="ThroughputContradicts",
    severities=(Severity.DOUBT,),
    says="In a closed loop, the speed-up says faster and the engine's throughput slower, or the other way round.",
    threshold=(
        f"a speed-up whose interval excludes 1, and a ratio of output_tps on the other side of 1, more than {APART:.0%}"
        f" apart ({FEW_APART:.0%} where a stream had fewer than {TURNS} steady requests a repeat)"
    ),
    argument=(
        "The two differ a little by design: the window holds requests that have no partner, one a stream about. In 148"
        " cells of honest runs the difference had a standard deviation of 4 % below three requests a stream, of 2.4 %"
        " from three to five, and of 0.3 % from ten on; one of 36 prompts on 16 streams was 11 % apart, and 1.11 times"
        " as fast by the one and 0.99 by the other."
    ),
    remedy="See LateEnd and ConcurrencyNotReached; look at what the streams do between two answers.",
    look=_look,
)
