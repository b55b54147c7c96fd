"""First tokens that come earlier than the baseline's where nothing is before them: a prefill that was not done.

Drafting begins after the first token. A single stream has no queue that a faster engine could shorten, so the same
prompt needs as long as without a drafter, or longer where the drafter reads it too. What comes earlier came out of a
cache that the engine does not tell of, from a faster machine, or is no first token of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers
from specbench_client.metrics.pairing import ARM, BASELINE
from specbench_client.metrics.rows import Columns
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import CellEvidence, Seen

EARLIER = 0.1
AT_LEAST_MS = 2.0
PAIRS_MIN = 5
NS_PER_MS = 1e6


def _look(evidence: CellEvidence) -> Sequence[Seen]:
    if evidence.pairs is None or evidence.level.concurrency != 1:
        return []
    first = evidence.pairs.among(numbers(evidence.pairs.rows, "turn") == 0)
    repeats = numbers(first.rows, "repeat")
    by_repeat = [first.among(repeats == repeat).rows for repeat in np.unique(repeats)]
    middles = [(_middle(rows, ARM), _middle(rows, BASELINE)) for rows in by_repeat if len(rows) >= PAIRS_MIN]
    if not middles or not all(_is_early(mine, theirs) for mine, theirs in middles):
        return []
    mine, theirs = (float(np.median(side)) for side in zip(*middles, strict=True))
    message = (
        f"at one stream the first token comes after {mine:.0f} ms, and after {theirs:.0f} ms on the baseline: drafting"
        " makes no prefill shorter, so something else does"
    )
    return [Seen(Severity.DOUBT, message, value=mine / theirs, threshold=1 - EARLIER)]


def _middle(rows: Columns, side: str) -> float:
    """The median time to the first token of one side (ms)."""
    return float(np.median(numbers(rows, "first_token_ns" + side) - numbers(rows, "intended_ns" + side))) / NS_PER_MS


def _is_early(mine: float, theirs: float) -> bool:
    return mine < (1 - EARLIER) * theirs and theirs - mine > AT_LEAST_MS


CHECK: Check[CellEvidence] = Check(
    name="EarlyFirstTokens",
    severities=(Severity.DOUBT,),
    says="At one stream, the arm's first tokens come earlier than the paired baseline's.",
    threshold=(
        f"in every repeat of at least {PAIRS_MIN} pairs of first turns, a median time to first token more than"
        f" {EARLIER:.0%} and {AT_LEAST_MS:g} ms below the baseline's; only at concurrency 1"
    ),
    argument=(
        "The same prompt is the same prefill. Launches of one engine differ by some hundredths, and all repeats in one"
        " direction are no chance. Under load a faster engine has shorter queues, so nothing is said there."
    ),
    remedy="Switch prefix caching off on every arm, look for a cache in front of the engine, and compare the nodes.",
    look=_look,
)
