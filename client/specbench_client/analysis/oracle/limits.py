"""What an oracle does not say, in words that stand beside every answer."""

from __future__ import annotations

from collections.abc import Mapping

from specbench_api.outcome.figure import Figure
from specbench_client.analysis.oracle.course import PUBLISHED
from specbench_client.analysis.oracle.policies import Pricing

_BOUND = "an upper bound, for draft lengths that nobody can choose: an adaptive drafter gets a part of it, unknown here"
_NO_COST = "no speed-up without a step cost: tokens a step alone do not say whether drafting pays (--step-cost)"
_COST = (
    "speed-ups are as good as the step cost ({name}: {source}): linear, without queueing, each answer as a batch of"
    " copies of itself, prefill included"
)
_SAMPLED = "answers were drawn at a temperature: other draft lengths would have drawn other texts"
_SPLIT = (
    "fixed lengths below the run's own, and positions between its steps in a combination, are lower bounds"
    " (span-split): headroom is an upper bound"
)
CENSORED_MOST = 0.1
"""Share of steps with all drafts accepted. At 6 % (n-gram, code, 20 drafts) span-split was 3 % low; at 76 % (the target
itself, quantised, 10 drafts) it was 27 % below truncation, which is low too."""
_TOO_SHORT = (
    "{name}: {share:.0%} of its steps accepted every draft: its drafts were too short for this question; the oracle,"
    " and fixed lengths by span-split above all, are far too low: measure again with longer drafts"
)
_TWO = "two drafters: only where both wrote the same text, which may be the easier part of it"
_PUBLISHED = (
    "as published, with its faults: every step looks one position too early, an oracle drafts where it knows that"
    " nothing will be accepted, and an uncharged combination pays for the first drafter alone"
)


def limits(pricing: Pricing, *, drawn: bool, two: bool, split: bool) -> list[str]:
    """`drawn`: at a temperature above 0; `two`: drafters were combined; `split`: positions are from a run's steps."""
    cost = pricing.cost
    return [
        _BOUND,
        _COST.format(name=cost.name, source=cost.source) if cost else _NO_COST,
        *([_SPLIT] if split else []),
        *([_SAMPLED] if drawn else []),
        *([_TWO] if two else []),
        *([_PUBLISHED] if pricing.rules == PUBLISHED else []),
    ]


def too_short(censored: Mapping[str, Figure]) -> list[str]:
    """Of runs whose own draft length cut off so much that span-split tells little."""
    shares = {name: figure.value for name, figure in censored.items() if figure.value is not None}
    return [_TOO_SHORT.format(name=name, share=share) for name, share in shares.items() if share > CENSORED_MOST]
