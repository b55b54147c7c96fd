"""Steps with drafts that take less time than steps without: the same engine cannot do more work in less time.

A step that verifies drafts reads the same weights and the same context as one that generates a single token, and
computes more; the drafter's own time is added. If it is shorter than the baseline's nevertheless, the two engines
differ in more than the drafter: one of them ran on a slower or shared machine, under a power cap or without graphs, or
the answers came from a cache.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.pairing import ARM, BASELINE, STEPS
from specbench_client.metrics.rows import Columns
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

SHORTER = 0.1
STEPS_MIN = 100


def _evaluate(evidence: CellEvidence) -> CheckResults:
    if evidence.pairs is None or evidence.level.concurrency is None:
        return []
    repeats = numbers(evidence.pairs.rows, "repeat")
    ratios = [_ratio(evidence.pairs.among(repeats == repeat).rows) for repeat in np.unique(repeats)]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or max(known) >= 1 - SHORTER:
        return []
    middle = float(np.median(known))
    message = (
        f"a step of this arm takes {middle:.2f} of the time of the baseline's (median of {len(known)} repeats)"
        " although it does more work: the engines or machines differ in more than the drafter"
    )
    return [CheckResult(Severity.WARNING, message, value=middle, threshold=1 - SHORTER)]


def _ratio(rows: Columns) -> float | None:
    """Mean step time of the arm over the baseline's, in one repeat; None if steps are few or not reported."""
    mine, theirs = _mean_step_ns(rows, ARM), _mean_step_ns(rows, BASELINE)
    return None if mine is None or theirs is None else mine / theirs


def _mean_step_ns(rows: Columns, side: str) -> float | None:
    steps = numbers(rows, STEPS + side)
    times = numbers(rows, "last_token_ns" + side) - numbers(rows, "first_token_ns" + side)
    known = (steps > 0) & ~np.isnan(times)
    count = float(steps[known].sum())
    return float(times[known].sum()) / count if count >= STEPS_MIN and times[known].sum() > 0 else None


CHECK: Check[CellEvidence] = Check(
    name="StepsFasterThanBaseline",
    severities=(Severity.WARNING,),
    description="In a closed loop, the arm's decode steps are shorter than the paired baseline's.",
    threshold=(
        f"more than {SHORTER:.0%} shorter in every repeat, over at least {STEPS_MIN} steps per side; only if the"
        " engine reports its steps"
    ),
    rationale=(
        "With the same number of streams, a step that verifies drafts takes as long as a plain one, or longer. Runs"
        " of one engine differ by a few hundredths in both directions: three that are a tenth shorter are not"
        " chance. It is equivalent to a speed-up per token above the acceptance length, which no drafter can have."
        " In an open loop a faster arm has fewer requests in a step, so its steps may legitimately be shorter."
    ),
    remedy=(
        "Compare the launches' nodes, clocks, power limits, graphs and kernels (`provenance.json`), and interleave"
        " the arms."
    ),
    evaluate=_evaluate,
)
