"""Prompts that come from a cache hide their prefill: the time to first token is then another benchmark's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench_api.outcome.finding import Severity
from specbench_client.metrics.frame import Values, numbers
from specbench_client.trust.check import Check
from specbench_client.trust.evidence import PointEvidence, Seen

SHARE = 0.01


def _look(evidence: PointEvidence) -> Sequence[Seen]:
    share = _share(evidence)
    if share is None or share <= SHARE:
        return []
    message = (
        f"{share:.1%} of the prompt tokens of first turns came from the engine's prompt cache: time to first token and"
        " end-to-end times are too short"
    )
    return [Seen(Severity.INVALID, message, value=share, threshold=SHARE)]


def _share(evidence: PointEvidence) -> float | None:
    """From the records of first turns, else from the counters where there are only first turns."""
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
    says="Prompt tokens of first turns came from a prompt cache.",
    threshold=f"more than {SHARE:.0%} of the prompt tokens of first turns",
    argument=(
        "The cache is off by the launch, so any hit is a setting that did not take; 1 % leaves room for a start token"
        " that some engines keep. Later turns of a conversation share their own history and are not judged."
    ),
    remedy="Switch prefix caching off on every arm, or do not ask the same prompts of an engine that keeps them.",
    look=_look,
)
