"""Explains speed-ups: their factors, predictions for other traffic mixes, and the cost of a decode step.

The cost of a step has one observation per cell, and a linear model fitted to them.
"""

from __future__ import annotations

from specbench_api.api_model import ApiModel, Names
from specbench_client.documents.figure import CellReference, Figure


class Prediction(ApiModel):
    """A measured speed-up as an exact product: ideal × acceptance × step cost × prefill × length."""

    measured: Figure
    """Speed-up over the pairs in which both sides have all the parts."""
    predicted: Figure
    """Step time of the baseline × acceptance length ÷ step time of the arm: decoding only."""
    gap: Figure
    """Measured ÷ predicted: prefill × length."""
    ideal: Figure
    """Draft tokens per step + 1: everything accepted at no cost. Without a value if the plan does not declare them."""
    acceptance: Figure
    """Acceptance length ÷ ideal; without an ideal, the acceptance length."""
    step_cost: Figure
    """Step time of the baseline ÷ the arm's, each at its own batch size."""
    prefill: Figure
    """Decode's share of the arm's stream time ÷ of the baseline's: waiting and prefill are not sped up."""
    length: Figure
    """Output tokens ÷ output tokens after the first, of the arm ÷ of the baseline. It is 1 unless answers differ in
    length."""


class MixCategory(ApiModel):
    """One category of a traffic mix."""

    category: str
    """Name of the category."""
    requests_share: float
    """Fraction of the requests."""
    tokens_share: float
    """Fraction of the baseline's output tokens."""
    time_share: float
    """Fraction of the baseline's stream time: the weight of its speed-up in the harmonic mean."""
    acceptance_length: float | None = None
    """Measured acceptance length, in tokens per step."""
    speedup: float
    """Measured speed-up."""


class MixEstimate(ApiModel):
    """Predicted results for another mix of the measured categories."""

    speedup: Figure
    """Predicted speed-up."""
    acceptance_length: Figure
    """Predicted acceptance length, in tokens per step."""
    categories: list[MixCategory]
    """The categories of the mix."""


class MixPrediction(MixEstimate, CellReference):
    """The same for one arm at one load."""

    measured_speedup: Figure
    """Speed-up of the workload as it was measured."""
    valid: bool
    """Whether the measured comparison was valid."""


class Coefficient(Names):
    """Terms of the model, each with its regressor. All are milliseconds per step and never negative."""

    BASE = "base"
    """1: the fixed cost of every step."""
    VERIFIED = "per_verified_token"
    """Verified tokens: batch × (draft tokens + 1)."""
    CONTEXT = "per_context_token"
    """Tokens of all requests of the batch whose keys and values are read."""
    PREFILL = "per_prefill_token"
    """Mean prompt tokens of other requests that are processed in a step."""
    DRAFTING = "drafting"
    """1 if anything is drafted: the fixed cost of drafting."""
    DRAFT = "per_draft"
    """Draft tokens per step."""


class StepSplit(ApiModel):
    """A cell's step time in ms, split by the fitted model into parts that add up to it. None was measured directly.

    Sampling, scheduling and the client's overhead cannot be separated from the target's own pass and are part of it.
    """

    target_ms: float
    """The target's pass over one token of each request: the step time without drafts."""
    draft_ms: float
    """Generating the drafts."""
    verify_ms: float
    """Additional time of the target's pass for verifying the drafts."""
    prefill_ms: float
    """Prompts of other requests that are processed in the step."""
    rest_ms: float
    """The unexplained rest: measured minus the other parts; negative if the model overestimates."""
    draft_to_target: Figure | None = None
    """Time of one draft pass divided by one pass of the target without drafts, at this batch size; None without drafts.
    """


class StepObservation(CellReference):
    """Step time of one cell, with the batch size, draft length and context at which it was measured."""

    configured_draft_tokens: int
    """Configured draft tokens per step; 0 for the baseline."""
    draft_tokens: float
    """Mean draft tokens per step."""
    batch: float
    """Requests in decode as one of them observes it: itself, and the mean number of others."""
    context_tokens: float
    """Mean number of tokens in the cache, over all requests of the batch."""
    prefill_tokens: float
    """Mean prompt tokens of other requests processed per step, without cached ones."""
    step_ms: float
    """Median over requests of the time per step, in ms."""
    requests: int
    """Number of requests of this median."""
    split: StepSplit | None = None
    """The parts of the step time; None if no model is accurate enough on held-out cells."""


class StepCost(ApiModel):
    """Step-cost profile of one drafter, with the baseline as draft length 0."""

    arms: list[str]
    """The arms of the profile: the baseline, and the drafter at one or more draft lengths."""
    fits: bool
    """Whether there is a model that predicts held-out cells well enough to split step times."""
    coefficients: dict[Coefficient, Figure] = {}
    """Terms of the model; empty without a fit. A term that cannot be separated from the others is missing."""
    r_squared: Figure | None = None
    """Fraction of the variance of step times that the model explains."""
    held_out_error: Figure | None = None
    """Root mean square over cells of the model's relative error, if it is fitted without the cell."""
    observations: list[StepObservation]
    """The data."""
    notes: list[str] = []
    """What was not fitted or not used, and why."""
