"""First tokens that arrive earlier than the baseline's although there is no queue: part of the prefill was not done.

Drafting begins after the first token. A single stream has no queue that a faster engine could shorten, so the same
prompt takes as long as without a drafter, or longer if the drafter reads it too. An earlier first token came from a
cache that the engine does not report, from a faster machine, or is not the model's first token.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.latency import NS_PER_MS
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_client.metrics.rows import Columns
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import CellEvidence

EARLIER = 0.1
AT_LEAST_MS = 2.0
PAIRS_MIN = 5


def _evaluate(evidence: CellEvidence) -> CheckResults:
    if evidence.pairs is None or evidence.level.concurrency != 1:
        return []
    first = evidence.pairs.among(numbers(evidence.pairs.rows, "turn") == 0)
    repeats = numbers(first.rows, "repeat")
    by_repeat = [first.among(repeats == repeat).rows for repeat in np.unique(repeats)]
    middles = [
        (_median_ttft_ms(rows, ARM), _median_ttft_ms(rows, BASELINE)) for rows in by_repeat if len(rows) >= PAIRS_MIN
    ]
    if not middles or not all(_is_early(mine, theirs) for mine, theirs in middles):
        return []
    mine, theirs = (float(np.median(side)) for side in zip(*middles, strict=True))
    message = (
        f"at one stream the first token arrives after {mine:.0f} ms, but after {theirs:.0f} ms on the baseline:"
        " drafting shortens no prefill, so something else differs"
    )
    return [CheckResult(Severity.WARNING, message, value=mine / theirs, threshold=1 - EARLIER)]


def _median_ttft_ms(rows: Columns, side: str) -> float:
    """The median TTFT of one side, in ms."""
    return float(np.median(numbers(rows, "first_token_ns" + side) - numbers(rows, "intended_ns" + side))) / NS_PER_MS


def _is_early(mine: float, theirs: float) -> bool:
    return mine < (1 - EARLIER) * theirs and theirs - mine > AT_LEAST_MS


CHECK: Check[CellEvidence] = Check(
    name="TtftBelowBaseline",
    severities=(Severity.WARNING,),
    description="At one stream, the arm's first tokens arrive earlier than the paired baseline's.",
    threshold=(
        f"in every repeat with at least {PAIRS_MIN} pairs of first turns, a median TTFT more than {EARLIER:.0%} and"
        f" {AT_LEAST_MS:g} ms below the baseline's; only at concurrency 1"
    ),
    rationale=(
        "The same prompt needs the same prefill. Launches of one engine differ by a few hundredths, and all repeats"
        " in one direction are not chance. Under load a faster engine has shorter queues, so it is not evaluated"
        " there."
    ),
    remedy="Disable prefix caching on every arm, look for a cache in front of the engine, and compare the nodes.",
    evaluate=_evaluate,
)
