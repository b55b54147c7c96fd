"""Speed-ups predicted by simple formulas, compared with the measured ones, and the factors between the two."""

from __future__ import annotations

from specbench_api.api_model import ApiModel
from specbench_api.outcome.figure import Figure


class IndependenceTest(ApiModel):
    """Test whether the conditional acceptance rate is equal at every draft position, as the formula assumes."""

    rates: list[float]
    """Conditional acceptance rates of the tested positions, from position 1."""
    statistic: float
    """F: Wald statistic of the hypothesis that all are equal, clustered by prompt, in Hotelling's form."""
    freedom: tuple[int, int]
    """Its degrees of freedom."""
    p_value: float
    """Probability of a statistic at least this large if all rates are equal."""
    prompts: int
    """Number of prompts, which are the clusters."""


class ConstantAcceptance(ApiModel):
    """Acceptance length predicted from a single acceptance rate for all positions, next to the measured one."""

    alpha: Figure
    """The rate: accepted ÷ (accepted + rejected) draft tokens, over those that were verified up to the first rejection.
    """
    predicted: Figure
    """(1 − alpha^(k+1)) ÷ (1 − alpha), in tokens per step."""
    measured: Figure
    """Tokens per step with drafts: 1 + accepted tokens ÷ draft steps."""
    test: IndependenceTest | None = None
    """The test of its assumption; None with too few positions or prompts."""
    conclusion: str
    """The conclusion in a sentence."""


class Prediction(ApiModel):
    """A measured speed-up as an exact product: ideal × acceptance × step cost × occupancy × prefill × length."""

    measured: Figure
    """Speed-up over the pairs in which both sides have all the parts."""
    predicted: Figure
    """Step time of the baseline × acceptance length ÷ step time of the arm: decoding only, at the measured occupancy.
    """
    gap: Figure
    """Measured ÷ predicted: prefill × length."""
    ideal: Figure
    """Draft tokens per step + 1: everything accepted at no cost."""
    acceptance: Figure
    """Acceptance length ÷ ideal."""
    step_cost: Figure
    """Step time of the baseline ÷ the arm's, at the baseline's batch size if a step-cost profile allows it."""
    occupancy: Figure
    """The arm's step time at the baseline's batch size ÷ at its own. Without a step-cost profile the value is missing,
    and the effect is part of `step_cost`."""
    prefill: Figure
    """Decode's share of the arm's stream time ÷ of the baseline's: waiting and prefill are not sped up."""
    length: Figure
    """Output tokens ÷ output tokens after the first, of the arm ÷ of the baseline. It is 1 unless answers differ in
    length."""
    constant: ConstantAcceptance | None = None
    """Acceptance length from a single acceptance rate; None if steps are unknown or k varies."""

    @property
    def factors(self) -> list[Figure]:
        """The known factors, including the ideal; their product is the measured speed-up."""
        factors = (self.ideal, self.acceptance, self.step_cost, self.occupancy, self.prefill, self.length)
        return [each for each in factors if each.value is not None]


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


class DomainPrediction(ApiModel):
    """Decoding speed-up of one category, predicted from its acceptance length and the cell's step times."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """Label of the load level."""
    category: str
    """Name of the category."""
    acceptance_length: Figure
    """Emitted acceptance length, pooled over the category's steps."""
    predicted: Figure
    """acceptance_length divided by the cell's break-even acceptance length (t_sd / t_ar)."""
    measured: Figure | None = None
    """The category's measured TPOT speed-up; None if nothing was compared."""
    ratio: Figure | None = None
    """measured / predicted; 1 if the category's steps take as long as the others."""
