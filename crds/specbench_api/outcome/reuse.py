"""What an arm reuses from the prompt cache, compared with the same requests of its paired baseline."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.api_model import ApiModel
from specbench_api.outcome.figure import Figure


class ReuseSlice(ApiModel):
    """Reuse over the pairs of one turn, or of one depth."""

    label: str
    """The turn, counted from 1, or the range of tokens."""
    pairs: int
    """Number of pairs."""
    hit_share: float
    """Cached tokens over prompt tokens of the arm."""
    baseline_hit_share: float
    """The same of the baseline."""
    computed_ratio: Figure
    """Computed prompt tokens of the arm, divided by the baseline's."""


class ReuseMissing(StrEnum):
    """Why reuse of the prompt cache is not compared with the baseline's."""

    NOT_REPORTED = "CachedTokensNotReported"
    """Neither side reports cached tokens for requests that both answered."""
    ARM_NOT_REPORTED = "ArmReportsNoCachedTokens"
    """Only the baseline reports them."""
    BASELINE_NOT_REPORTED = "BaselineReportsNoCachedTokens"
    """Only the arm reports them."""


class Reuse(ApiModel):
    """Prompt tokens that came from the prompt cache."""

    hit_share: Figure
    """Cached tokens over prompt tokens of the arm."""
    baseline_hit_share: Figure
    """Cached tokens over prompt tokens of the baseline, for the same requests."""
    computed_ratio: Figure
    """Computed (not cached) prompt tokens of the arm, divided by the baseline's."""
    by_turn: list[ReuseSlice] = []
    """By turn of the conversation."""
    by_depth: list[ReuseSlice] = []
    """By depth of the shared prefix: the larger number of cached tokens of both sides of a pair."""
