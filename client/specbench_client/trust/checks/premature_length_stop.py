"""Answers that were stopped at a length that nobody requested: the engine has its own limit.

The engine reports finish_reason `length` although maxTokens was not reached: its context was full, or it was started
with a smaller one. If both arms are cut equally, no comparison shows it, but the measured workload is a different one,
with shorter answers.
"""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

OFF_BY = 1
SHARE = 0.01
LENGTH = "length"


def _evaluate(evidence: PointEvidence) -> CheckResults:
    rows, allowed = evidence.answered, evidence.workload.output.max_tokens
    tokens = numbers(rows, "tokens")
    cut = (rows["finish_reason"] == LENGTH).to_numpy(np.bool_) & (tokens < allowed - OFF_BY)
    if not cut.any():
        return []
    share = float(cut.mean())
    message = (
        f"{int(cut.sum())} of {len(rows)} answers ended with finish_reason {LENGTH!r} after a median of"
        f" {np.median(tokens[cut]):.0f} tokens, although {allowed} were allowed: the engine has its own limit"
    )
    return [CheckResult(Severity.INVALID if share > SHARE else Severity.INFO, message, value=share, threshold=SHARE)]


CHECK: Check[PointEvidence] = Check(
    name="PrematureLengthStop",
    severities=(Severity.INVALID, Severity.INFO),
    description="Answers ended with finish_reason length before they reached output.maxTokens.",
    threshold=(
        f"Invalid above {SHARE:.0%} of the answers, Info below; {OFF_BY} token less than allowed is a convention"
        " (the end-of-sequence token)"
    ),
    rationale=(
        "Only maxTokens should end an answer for its length. Another limit on every arm compares different, shorter"
        " answers; one answer in a hundred is a long prompt that hardly changes a figure."
    ),
    remedy=(
        "Raise the engine's context length (--max-model-len, or --ctx-size, which is divided by its slots), or"
        " lower output.maxTokens."
    ),
    evaluate=_evaluate,
)
