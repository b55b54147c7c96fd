"""The factors of measured speed-ups, and predictions of speed-ups for other traffic mixes."""

from __future__ import annotations

from specbench_api.api_model import ApiModel
from specbench_api.outcome.figure import Figure


class Prediction(ApiModel):
    """A measured speed-up as an exact product: ideal × acceptance × step cost × prefill × length."""

    measured: Figure
    """Speed-up over the pairs in which both sides have all the parts."""
    predicted: Figure
    """Step time of the baseline × acceptance length ÷ step time of the arm: decoding only."""
    gap: Figure
    """Measured ÷ predicted: prefill × length."""
    ideal: Figure
    """Draft tokens per step + 1: everything accepted at no cost."""
    acceptance: Figure
    """Acceptance length ÷ ideal."""
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


class MixPrediction(ApiModel):
    """Predicted results of one arm at one load for another mix of the measured categories."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """Label of the load level."""
    speedup: Figure
    """Predicted speed-up."""
    acceptance_length: Figure
    """Predicted acceptance length, in tokens per step."""
    measured_speedup: Figure
    """Speed-up of the workload as it was measured."""
    categories: list[MixCategory]
    """The categories of the mix."""
    valid: bool
    """Whether the measured comparison was valid."""
