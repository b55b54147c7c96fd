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


class SplitMissing(StrEnum):
    """Why a net speed-up is not split into drafting and reuse."""

    NOT_REPORTED = "CachedTokensNotReported"
    """Neither side reports cached tokens for requests that both answered."""
    ARM_NOT_REPORTED = "ArmReportsNoCachedTokens"
    """Only the baseline reports them."""
    BASELINE_NOT_REPORTED = "BaselineReportsNoCachedTokens"
    """Only the arm reports them."""
    NO_LATENCIES = "NoLatencies"
    """No pair of requests has both latencies."""
    SAME_COMPUTED_TOKENS = "ComputedTokensDoNotVary"
    """All requests of the arm computed the same number of prompt tokens."""
    TOO_FEW_STEPS = "TooFewSteps"
    """Too few answers of the arm arrived in several steps."""
    NO_COST = "LatenciesShowNoTokenCost"
    """The durations of the arm's steps do not show what a computed prompt token costs."""
    REPLAY_DIFFERS = "ReplayDiffers"
    """The model of the arm's steps does not give its latencies."""


class Reuse(ApiModel):
    """Prompt tokens that came from the prompt cache, and what lost reuse costs.

    The split needs a model of the arm's steps, with the cost of a computed prompt token; `Cell.split_missing` is the
    reason if there is none.
    """

    hit_share: Figure
    """Cached tokens over prompt tokens of the arm."""
    baseline_hit_share: Figure
    """Cached tokens over prompt tokens of the baseline, for the same requests."""
    computed_ratio: Figure
    """Computed (not cached) prompt tokens of the arm, divided by the baseline's."""
    lost_tokens: Figure
    """Cached tokens that a request lost against the baseline, on average; negative if the arm reuses more."""
    lost_ms: Figure
    """Time to compute these tokens once, in ms per request."""
    token_ms: Figure
    """Time of a computed prompt token, by which it delays all requests in flight, in ms."""
    net: Figure
    """Mean E2E latency of the baseline, divided by the arm's: `drafting` × `reuse`."""
    drafting: Figure
    """The speed-up that the arm would have with the baseline's reuse."""
    reuse: Figure
    """The factor that lost reuse costs; below 1 if the arm reuses less than the baseline."""
    by_turn: list[ReuseSlice] = []
    """By turn of the conversation."""
    by_depth: list[ReuseSlice] = []
    """By depth of the shared prefix: the larger number of cached tokens of both sides of a pair."""
