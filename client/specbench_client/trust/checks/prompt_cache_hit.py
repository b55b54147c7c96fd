"""Prompt tokens served from a cache, which hides their prefill from TTFT."""

from __future__ import annotations

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.tidy_frame import Values, numbers
from specbench_client.trust.check import Check, CheckResult, CheckResults
from specbench_client.trust.evidence import PointEvidence

SHARE = 0.01


def _evaluate(evidence: PointEvidence) -> CheckResults:
    share = _share(evidence)
    if share is None or share <= SHARE:
        return []
    message = (
        f"{share:.1%} of the prompt tokens of first turns came from the engine's prompt cache: TTFT and E2E latency"
        " are too short"
    )
    return [CheckResult(Severity.INVALID, message, value=share, threshold=SHARE)]


def _share(evidence: PointEvidence) -> float | None:
    """The share according to the records of first turns, else to the counters if there are only first turns."""
    rows = evidence.answered
    first = rows[numbers(rows, "turn") == 0]
    cached, prompt = numbers(first, "cached_tokens"), numbers(first, "input_tokens")
    known = ~np.isnan(cached) & ~np.isnan(prompt)
    if known.any():
        return _quotient(cached[known], prompt[known])
    counters = evidence.counters
    if len(first) < len(rows) or counters is None or counters.cached_tokens is None or not counters.prompt_tokens:
        return None
    return counters.cached_tokens / counters.prompt_tokens


def _quotient(over: Values, under: Values) -> float | None:
    return float(over.sum() / under.sum()) if under.sum() > 0 else None


CHECK: Check[PointEvidence] = Check(
    name="PromptCacheHit",
    severities=(Severity.INVALID,),
    description="Prompt tokens of first turns came from a prompt cache.",
    threshold=f"more than {SHARE:.0%} of the prompt tokens of first turns",
    rationale=(
        "The launch disables the cache, so any hit means that the setting had no effect; 1 % allows for a start"
        " token that some engines cache. Later turns of a conversation share their own history and are not checked."
    ),
    remedy=(
        "Disable prefix caching on every arm, or do not send the same prompts twice to an engine that caches them."
    ),
    evaluate=_evaluate,
)
