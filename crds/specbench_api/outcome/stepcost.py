"""What a decode step costs: observations by cell, and the linear model that was fitted to them."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class Coefficient(StrEnum):
    """Terms of the model, each with what it is multiplied by. All are milliseconds a step and never negative."""

    BASE = "base"
    """1: what every step costs."""
    VERIFIED = "per_verified_token"
    """Tokens in verification: batch × (draft tokens + 1)."""
    CONTEXT = "per_context_token"
    """Tokens of all requests of the batch whose keys and values are read."""
    PREFILL = "per_prefill_token"
    """Prompt tokens of other requests that are computed in a step, on the mean."""
    DRAFTING = "drafting"
    """1 where anything is drafted: what drafting costs at any length."""
    DRAFT = "per_draft"
    """Draft tokens a step."""


class Basis(StrEnum):
    """What step times between the cells may be taken from."""

    FIT = "fit"
    """The model: held-out cells are met well enough."""
    INTERPOLATION = "interpolation"
    """Bilinear interpolation between the cells alone: there is no fit, or it is poor."""


class StepSplit(ApiModel):
    """A cell's step time in parts, in ms, as the fitted model splits it: none of them was timed. They add up to it.

    Sampling, scheduling and the client's share cannot be told from the target's own pass, and are in it.
    """

    target_ms: float
    """The target's pass over one token of each request: what the step would take without drafts."""
    draft_ms: float
    """Making the drafts."""
    verify_ms: float
    """What the target's pass takes longer because it verifies the drafts, too."""
    prefill_ms: float
    """Prompts of other requests that are computed within the step."""
    rest_ms: float
    """What the model does not explain: measured less the others; below 0 where the model says more."""
    draft_to_target: Figure | None = None
    """One draft pass over one pass of the target without drafts, in this batch; None where nothing is drafted."""


class StepObservation(ApiModel):
    """One cell as an observation of the step time: at what batch, draft length and context it was measured."""

    run: str
    """Name of the run."""
    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    asked_tokens: int
    """Draft tokens a step that were asked for; 0 for the baseline."""
    draft_tokens: float
    """Draft tokens a step, mean over steps."""
    batch: float
    """Requests in decode, as one of them sees it: itself, and the mean number of the others."""
    context_tokens: float
    """Tokens in the cache of all requests of the batch, mean."""
    prefill_tokens: float
    """Prompt tokens of others computed a step, mean: cached ones left out."""
    step_ms: float
    """Median over requests of the time per step, ms."""
    requests: int
    """Requests it is the median of."""
    fitted_ms: float | None = None
    """What the model says here, ms."""
    held_out: float | None = None
    """(model fitted without this cell ÷ measured) − 1; None where the rest does not carry the model."""
    split: StepSplit | None = None
    """Its parts; None where no model meets held-out cells well enough, and in older results."""


class StepCost(ApiModel):
    """The step-cost profile of one drafter, with the baseline as its draft length 0."""

    arms: list[str]
    """The arms that it is of: the baseline, and the drafter at one length or several."""
    basis: Basis
    """What step times between the cells may be taken from."""
    coefficients: dict[Coefficient, Figure] = {}
    """The model's terms; empty where none was fitted. One that is missing could not be told from the others."""
    r_squared: Figure | None = None
    """Share of the variance of step times that the model explains."""
    held_out_error: Figure | None = None
    """Root mean square of `held_out` over the cells that have it."""
    observations: list[StepObservation]
    """What it rests on."""
    notes: list[str] = []
    """What was not fitted, or not used, and why."""

    @property
    def draft_lengths(self) -> list[int]:
        """Draft lengths that were measured, 0 for the baseline."""
        return sorted({each.asked_tokens for each in self.observations})
