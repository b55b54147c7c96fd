"""The reports of the what-if analyses (oracle, n-gram replay), and the cost model that they use."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure

# A linear model of an engine's step time, measured on one machine for one model: seconds of a step = target(tokens in
# the cache, tokens in the batch) + drafting + overhead. The model bounds the gain of a step; it does not predict a
# service, because it has no queueing, no tile or graph sizes, and no mixed lengths.

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


# The reports of `specbench analyze`: what both have, then those of `oracle` and of `ngram`.


class WalkFigures(ApiModel):
    """Figures of one way to draft, over answers that were walked again."""

    acceptance_length: Figure
    """Emitted tokens per step, pooled over steps."""
    acceptance_length_mean: Figure
    """Emitted tokens per step, mean over requests."""
    speedups: dict[str, Figure] = {}
    """Speed-ups by batch size; empty without a step cost."""


class WhatIfReport(ApiModel):
    """What was read, and the cost model and the limits of what follows from it."""

    source: str
    """File or run that was read."""
    simulated: bool = False
    """Whether the engine was the simulator, so that it is not a measurement."""
    answers: int
    """Number of answers that were walked again."""
    left_out: dict[str, int] = {}
    """Answers or rows that were left out, by reason."""
    step_cost: CostModel | None = None
    """The step cost; without it there are no speed-ups."""
    limits: list[str] = []
    """Limits of this report."""


# Bounds for an oracle that drafts exactly what will be accepted.


class DraftPolicy(StrEnum):
    """How long the drafts of a step are."""

    FIXED = "fixed"
    """A fixed number at every step, or as many as the drafter proposes."""
    ORACLE = "oracle"
    """Exactly as many as will be accepted."""


class OracleRow(WalkFigures):
    """One policy over the same answers."""

    policy: DraftPolicy
    """How draft lengths are chosen."""
    drafts: int | None = None
    """Draft tokens per step; only for a fixed policy."""


class BatchHeadroom(ApiModel):
    """The headroom at one batch size."""

    batch: int
    """Requests per step."""
    best_drafts: int
    """The best fixed draft length; 0 if none pays and the baseline is best."""
    best_fixed: Figure
    """Speed-up of the best fixed draft length; 1 for the baseline."""
    headroom: Figure
    """Speed-up of the oracle − of the best fixed draft length."""


class OracleReport(WhatIfReport):
    """What `specbench analyze oracle` prints as JSON."""

    schema_version: Literal["specbench.io/oracle/v2"] = "specbench.io/oracle/v2"
    """Version of this document."""
    drafter: str
    """Name of the arm or method."""
    tokens: int
    """Output tokens of the answers."""
    censored: Figure | None = None
    """Share of steps with all drafts accepted: longer drafts might have gained more, so the oracle is a lower bound
    there. None for a trace, which has the acceptance of every position."""
    rows: list[OracleRow] = []
    """Every policy."""
    rooms: list[BatchHeadroom] = []
    """Headroom by batch size."""


# N-gram drafting replayed over recorded outputs.


class NgramFigures(WalkFigures):
    """Figures of one setting over all answers, or over those of one category."""

    drafted_steps: Figure
    """Share of steps with a match to draft from."""
    acceptance_rate: Figure
    """Accepted / drafted tokens."""


class NgramSetting(ApiModel):
    """One setting of an n-gram drafter, with its figures."""

    drafts: int
    """Most draft tokens per step (k)."""
    lookup_min: int
    """Shortest suffix that is looked up, tokens."""
    lookup_max: int
    """Longest suffix that is looked up, tokens."""
    overall: NgramFigures
    """Figures over all answers."""
    categories: dict[str, NgramFigures] = {}
    """Figures by category, if there are several."""


class NgramReport(WhatIfReport):
    """What `specbench analyze ngram` prints as JSON."""

    schema_version: Literal["specbench.io/ngram/v2"] = "specbench.io/ngram/v2"
    """Version of this document."""
    token_ids: str
    """Origin of the token ids: the file itself, or a tokenizer."""
    prompt_tokens: int
    """Tokens of the prompts."""
    output_tokens: int
    """Output tokens of the answers."""
    copied_share: Figure
    """Share of an output's 4-grams of tokens that occur in its prompt, mean over answers."""
    copied_share_by_category: dict[str, Figure] = {}
    """The same by category, if there are several."""
    settings: list[NgramSetting]
    """Every replayed setting."""
