"""Breakdown of a cell's requests and steps by position, context, length, turn, and reasoning or answer.

A breakdown shows where a drafter works well and where it does not. Slices of steps assign every decode step by its own
position, so one answer is in several slices; slices of requests contain whole answers. Two slices of one cell are not
paired: they contain different prompts, which may explain their difference. Reuse of the prompt cache is broken down by
turn and depth, and compared with the same requests of the paired baseline.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure


class BreakdownSlice(ApiModel):
    """One slice of steps or of requests."""

    label: str
    """Label for tables: `64–127`, `turn 2`, `reasoning`."""
    low: int | None = None
    """Smallest number of tokens in the slice; None if slices are not ranges of tokens."""
    high: int | None = None
    """Largest number of tokens in the slice; None: no upper bound."""
    steps: int
    """Decode steps of the target in the slice; for slices of requests, over those that report their steps."""
    requests: int
    """Requests with at least one of these steps; for slices of requests, all in the slice."""
    prompts: int
    """Number of different prompts among these requests."""
    figures: dict[str, Figure]
    """Figures by name, see docs/reference/metrics.md."""


class LengthClass(ApiModel):
    """Answers of one length class, and their steps by position."""

    whole: BreakdownSlice
    """The class as a slice of requests."""
    by_position: list[BreakdownSlice] = []
    """Its steps by output position; empty if the positions of steps are unknown."""


class RequestDistribution(ApiModel):
    """Distribution of a per-request number: the data of a box plot."""

    unit: str
    """Unit of the values."""
    definition: str
    """What the number is for one request."""
    n: int
    """Number of requests that have it."""
    prompts: int
    """Number of different prompts among these requests."""
    source: str
    """Who counted: client or engine."""
    minimum: float
    """Smallest value."""
    lower_quartile: float
    """25th percentile, linearly interpolated like all percentiles here."""
    median: float
    """50th percentile."""
    upper_quartile: float
    """75th percentile."""
    maximum: float
    """Largest value."""
    deciles: list[float] = Field(min_length=9, max_length=9)
    """10th, 20th, … 90th percentile."""


class Breakdown(ApiModel):
    """All slices of one cell. A dimension that is not available is empty, and `missing` contains the reason."""

    acceptance_by_request: RequestDistribution | None = None
    """Distribution over requests of the emitted acceptance length."""
    by_position: list[BreakdownSlice] = []
    """Steps by the output position of their first emitted token. The token emitted by prefill has position 0."""
    by_context: list[BreakdownSlice] = []
    """Steps by the number of preceding tokens: prompt and output so far."""
    by_length: list[LengthClass] = []
    """Requests by their number of output tokens."""
    length_classes: str = ""
    """How the length classes were chosen."""
    by_turn: list[BreakdownSlice] = []
    """Requests by their turn in the conversation; empty if all are first turns."""
    by_part: list[BreakdownSlice] = []
    """Steps by the part of the output that they wrote: reasoning or answer."""
    placed_share: float | None = None
    """Fraction of the requests with known steps whose step positions are known, too; None if no steps are known."""
    missing: dict[str, str] = {}
    """Name of an empty dimension → why it is empty."""


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
    kept_share: Figure | None = None
    """Cached tokens of the arm over the baseline's; None if the baseline has none."""
    computed_ratio: Figure
    """Computed (not cached) prompt tokens of the arm, divided by the baseline's."""
    by_turn: list[ReuseSlice] = []
    """By turn of the conversation."""
    by_depth: list[ReuseSlice] = []
    """By depth of the shared prefix: the larger number of cached tokens of both sides of a pair."""
