"""What a step of an engine takes, as a linear model: measured by somebody, on one machine, for one model.

Seconds of a step = target(tokens in the cache, tokens in the batch) + drafting + overhead. It bounds what a step can
gain; it is no forecast of a service: no queueing, no tile or graph sizes, no requests of different lengths.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specbench_api.model import ApiModel

Seconds = Annotated[float, Field(ge=0, le=1000)]


class TargetCost(ApiModel):
    """The target's forward pass: fixed + perToken × tokens in the batch + perCachedToken × tokens in the cache."""

    fixed_s: Seconds
    """Seconds of any pass."""
    per_token_s: Seconds
    """Seconds for each token of the batch: of all requests, drafts among them."""
    per_cached_token_s: Seconds = 0
    """Seconds for each token in the KV cache, of all requests."""


class DraftCost(ApiModel):
    """One drafter's share of a step that drafts. A step that drafts nothing has none."""

    fixed_s: Seconds = 0
    """Seconds of drafting at all."""
    per_draft_s: Seconds = 0
    """Seconds for each draft token asked of one request: the requests of a batch draft together."""
    per_cached_token_s: Seconds = 0
    """Seconds for each token in the KV cache, of all requests."""
    share_of_target: Annotated[float, Field(ge=0, le=100)] = 0
    """Seconds as a share of the target's pass of the same step."""


class CostModel(ApiModel):
    """A cost model by name, and where its numbers are from: what `--step-cost FILE` reads, as YAML or JSON."""

    schema_version: Literal["specbench.io/cost-model/v1"] = "specbench.io/cost-model/v1"
    """Version of this document."""
    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Its name in tables."""
    source: Annotated[str, Field(min_length=1, max_length=1024)]
    """Which model on which machine, measured by whom."""
    target: TargetCost
    """The target's forward pass."""
    overhead_s: Seconds = 0
    """Seconds of each step besides, with drafts or without: scheduling, sampling."""
    drafters: Annotated[dict[str, DraftCost], Field(max_length=64)]
    """By the name of an arm, or of a method."""
