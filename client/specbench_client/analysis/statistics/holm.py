"""Holm's correction: many hypotheses at once, and still the chance of any false rejection is bounded."""

from __future__ import annotations

from collections.abc import Sequence


def rejected(p_values: Sequence[float | None], alpha: float) -> list[bool]:
    """Which hypotheses are rejected at the family-wise level alpha (Holm 1979). Without a p-value none is."""
    ranked = sorted((value, index) for index, value in enumerate(p_values) if value is not None)
    found = [False] * len(p_values)
    for rank, (value, index) in enumerate(ranked):
        if value > alpha / (len(ranked) - rank):
            break
        found[index] = True
    return found
