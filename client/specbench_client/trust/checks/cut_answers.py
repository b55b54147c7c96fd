"""Answers that ended at a length nobody asked for: the engine has a limit of its own, and it cut them.

The engine says `length` and means another: its context was full, or it was started with a smaller one. Where both arms
are cut alike no comparison shows it, and what was measured is another workload: shorter answers, of other tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import numbers
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

OFF_BY = 1
SHARE = 0.01
LENGTH = "length"


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    rows, asked = evidence.answered, evidence.plan.workload(evidence.point.workload).output.max_tokens
    tokens = numbers(rows, "tokens")
    cut = (rows["finish_reason"] == LENGTH).to_numpy(np.bool_) & (tokens < asked - OFF_BY)
    if not cut.any():
        return []
    share = float(cut.mean())
    message = (
        f"{int(cut.sum())} of {len(rows)} answers ended with finish_reason {LENGTH!r} after"
        f" {np.median(tokens[cut]):.0f} tokens in the median, {asked} were allowed: the engine has a limit of its own"
    )
    return [Seen(Severity.INVALID if share > SHARE else Severity.NOTE, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="CutAnswers",
    severities=(Severity.INVALID, Severity.NOTE),
    says="Answers ended for their length with fewer tokens than output.maxTokens allows.",
    threshold=(
        f"Invalid above {SHARE:.0%} of the answers, a Note below; {OFF_BY} token less than allowed is convention (the"
        " end-of-sequence token)"
    ),
    argument=(
        "Only maxTokens should end an answer for its length. Another limit on every arm makes a comparison of other,"
        " shorter answers; one answer in a hundred is a long prompt that hardly moves a figure."
    ),
    remedy="Raise the engine's context length (--max-model-len, --ctx-size over its slots), or lower output.maxTokens.",
    look=_look,
)
