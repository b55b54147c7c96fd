"""Steps with drafts that take less time than steps without: more work cannot be done sooner by the same engine.

A step that verifies drafts reads the same weights and the same context as one that makes a single token, and computes
more; the drafter's own time comes on top. Where it is shorter than the baseline's nevertheless, the two engines differ
in more than the drafter: one of them ran on a slower machine, under a power cap, in the rush hour, without graphs; or
the answers came out of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS
from specbench_client.metrics.rows import Columns
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

SHORTER = 0.1
STEPS_MIN = 100


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if evidence.pairs is None or evidence.level.concurrency is None:
        return []
    repeats = numbers(evidence.pairs.rows, "repeat")
    ratios = [_ratio(evidence.pairs.among(repeats == repeat).rows) for repeat in np.unique(repeats)]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or max(known) >= 1 - SHORTER:
        return []
    middle = float(np.median(known))
    message = (
        f"a step of this arm takes {middle:.2f} of the time of the baseline's (the median of {len(known)} repeats), and"
        " does more: engines or machines differ in more than the drafter"
    )
    return [Seen(Severity.DOUBT, message, value=middle, threshold=1 - SHORTER)]


def _ratio(rows: Columns) -> float | None:
    """Mean step of the arm over the baseline's, over the pairs of one repeat; None where steps are few or not told."""
    mine, theirs = _step(rows, ARM), _step(rows, BASELINE)
    return None if mine is None or theirs is None else mine / theirs


def _step(rows: Columns, side: str) -> float | None:
    steps = numbers(rows, STEPS + side)
    times = numbers(rows, "last_token_ns" + side) - numbers(rows, "first_token_ns" + side)
    known = (steps > 0) & ~np.isnan(times)
    count = float(steps[known].sum())
    return float(times[known].sum()) / count if count >= STEPS_MIN and times[known].sum() > 0 else None


CHECK: Check[CellEvidence] = Check(
    name="ShortSteps",
    severities=(Severity.DOUBT,),
    says="In a closed loop, the arm's decode steps are shorter than the paired baseline's.",
    threshold=(
        f"in every repeat more than {SHORTER:.0%} shorter, over at least {STEPS_MIN} steps a side; only where the"
        " engine tells its steps"
    ),
    argument=(
        "At as many streams a step that verifies drafts is as long as a plain one, or longer. Runs of one engine differ"
        " by some hundredths, in both directions: three of them a tenth in one direction are no chance. It is the"
        " same as a speed-up per token above the acceptance length, which no drafter can have. In an open loop a faster"
        " arm has fewer requests in a step, and may be honest."
    ),
    remedy="Compare node, clocks and power limits, graphs and kernels of the launches (`provenance.json`); interleave.",
    look=_look,
)
