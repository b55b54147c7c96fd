"""What simple formulas say of a speed-up beside what was measured, and what lies between the two."""

from __future__ import annotations

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class IndependenceTest(ApiModel):
    """Whether the conditional acceptance rate is the same at every position of the draft, as the formula presumes."""

    rates: list[float]
    """Conditional acceptance rates of the positions that were compared, from position 1."""
    statistic: float
    """F: Wald statistic of `all equal`, clustered by prompt, in Hotelling's form."""
    freedom: tuple[int, int]
    """Its degrees of freedom."""
    p_value: float
    """Chance of so large a statistic if all were equal."""
    prompts: int
    """Prompts: the clusters."""


class ConstantAcceptance(ApiModel):
    """The acceptance length that one acceptance rate for all positions would give, beside the measured one."""

    alpha: Figure
    """The rate: accepted ÷ (accepted + rejected) draft tokens that were looked at."""
    predicted: Figure
    """(1 − alpha^(k+1)) ÷ (1 − alpha), tokens a step."""
    measured: Figure
    """Tokens that a step with drafts verified: 1 + accepted a draft step."""
    test: IndependenceTest | None = None
    """None where there are too few positions or prompts."""
    says: str
    """The answer in words."""


class Prediction(ApiModel):
    """A measured speed-up as a product: ideal × acceptance × step cost × occupancy × prefill × length, exactly."""

    measured: Figure
    """Speed-up over the pairs in which both sides have all parts."""
    predicted: Figure
    """Step time of the baseline × acceptance length ÷ step time of the arm: decode alone, occupancy as it was."""
    gap: Figure
    """Measured ÷ predicted: prefill × length."""
    ideal: Figure
    """Draft tokens a step + 1: everything accepted, at no cost."""
    acceptance: Figure
    """Acceptance length ÷ ideal."""
    step_cost: Figure
    """Step time of the baseline ÷ the arm's, at the baseline's batch where that is known."""
    occupancy: Figure
    """The arm's step time at the baseline's batch ÷ at its own; without a value where no step-cost profile tells it,
    and then it is part of `step_cost`."""
    prefill: Figure
    """Share of decode in the arm's stream time ÷ in the baseline's: waiting and prefill are not sped up."""
    length: Figure
    """Tokens over tokens after the first, of the arm ÷ of the baseline: not 1 only where answers differ in length."""
    constant: ConstantAcceptance | None = None
    """The acceptance length by one rate for all positions; None where steps are not told, or k varies."""

    @property
    def factors(self) -> list[Figure]:
        """Those whose product, with the ideal, is the measured speed-up; without the missing one."""
        told = (self.ideal, self.acceptance, self.step_cost, self.occupancy, self.prefill, self.length)
        return [each for each in told if each.value is not None]


class MixCategory(ApiModel):
    """One category of a traffic mix."""

    category: str
    """Its name."""
    requests_share: float
    """Its share of the requests."""
    tokens_share: float
    """Its share of the baseline's output tokens."""
    time_share: float
    """Its share of the baseline's stream time: by this its speed-up weighs, harmonically."""
    acceptance_length: float | None = None
    """Measured, tokens a step."""
    speedup: float
    """Measured."""


class MixPrediction(ApiModel):
    """What one arm would do at one load for another mix of the measured categories."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    speedup: Figure
    """Predicted."""
    acceptance_length: Figure
    """Predicted, tokens a step."""
    measured_speedup: Figure
    """Of the workload as it was measured."""
    categories: list[MixCategory]
    """What it is made of."""
    valid: bool
    """Whether the measured comparison was valid."""


class DomainPrediction(ApiModel):
    """One category's speed-up in decoding, from its acceptance length and the step times of the whole cell."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    load: str
    """The load level's label."""
    category: str
    """Name of the category."""
    acceptance_length: Figure
    """Emitted, pooled over the category's steps."""
    predicted: Figure
    """That over the acceptance length at which the cell breaks even (t_sd / t_ar)."""
    measured: Figure | None = None
    """The category's own TPOT speed-up; None where nothing was compared."""
    ratio: Figure | None = None
    """measured / predicted: 1 where the category's steps take as long as all others."""
