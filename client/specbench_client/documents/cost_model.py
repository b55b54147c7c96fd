"""A linear model of an engine's step time, measured on one machine for one model.

Seconds of a step = target(tokens in the cache, tokens in the batch) + drafting + overhead. The model bounds the gain of
a step; it does not predict a service, because it has no queueing, no tile or graph sizes, and no mixed lengths.
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
    """The cost of one drafter in a step that drafts; steps without drafts do not pay it."""

    fixed_s: Seconds = 0
    """Seconds of drafting, at any draft length."""
    per_draft_s: Seconds = 0
    """Seconds for each draft token of one request: the requests of a batch draft together."""
    per_cached_token_s: Seconds = 0
    """Seconds for each token in the KV cache, of all requests."""
    share_of_target: Annotated[float, Field(ge=0, le=100)] = 0
    """Seconds as a share of the target's pass of the same step."""


class CostModel(ApiModel):
    """A named cost model and its source, as `--step-cost FILE` reads it from YAML or JSON."""

    schema_version: Literal["specbench.io/cost-model/v1"] = "specbench.io/cost-model/v1"
    """Version of this document."""
    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Its name in tables."""
    source: Annotated[str, Field(min_length=1, max_length=1024)]
    """Model, machine, and who measured it."""
    target: TargetCost
    """The target's forward pass."""
    overhead_s: Seconds = 0
    """Other seconds of each step, with or without drafts: scheduling, sampling."""
    drafters: Annotated[dict[str, DraftCost], Field(max_length=64)]
    """Cost of each drafter, by the name of an arm or of a method."""
