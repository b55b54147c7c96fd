"""Holm's correction: bounds the probability of any false rejection among several hypotheses."""

from __future__ import annotations

from collections.abc import Sequence


def holm_rejections(p_values: Sequence[float | None], alpha: float) -> list[bool]:
    """Return which hypotheses are rejected at the family-wise level alpha (Holm 1979); none without a p-value."""
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    found = [False] * len(p_values)
    for rank, (value, index) in enumerate(ranked):
        if value > alpha / (len(ranked) - rank):
            break
        found[index] = True
    return found
