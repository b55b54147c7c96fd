"""Whether an arm's answers are the baseline's, as far as a run can tell."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure


class LosslessVerdict(StrEnum):
    """What can be said."""

    LOSSLESS = "LosslessAsFarAsCanBeTold"
    """Nothing tells its answers from the baseline's; `detectable` says what would have."""
    DIVERGES = "DivergesMoreThanBaseline"
    """Its answers differ from the baseline's more than the baseline's differ from themselves."""
    NO_CONTROL = "NoControl"
    """The baseline was not measured twice, or its own repeats differ in a way that is no control."""
    TOO_FEW = "TooFewToTell"
    """Too few prompts or answers for any interval or test."""
    NOT_INDEPENDENT = "AnswersRepeatThemselves"
    """Sampled answers come back word for word, as from one seed: they are not the samples that a test needs."""


class ComparedBy(StrEnum):
    """What the place of a first difference, or an answer's opening, was read from."""

    TOKEN_IDS = "token ids"  # noqa: S105  no secret
    TEXT = "text"
    DIGEST = "SHA-256"
    """Nothing but a digest was kept: whether answers differ is known, not where."""


class FirstDifference(ApiModel):
    """Where answers that differ begin to."""

    unit: str
    """`tokens` or `characters`, from the answer's begin."""
    arm: Figure | None = None
    """Median over pairs of the arm's and the baseline's answers that differ."""
    control: Figure | None = None
    """The same of pairs of the baseline's own repeats."""


class DistributionTest(ApiModel):
    """One permutation test of sampled answers: labels are exchanged within each prompt."""

    name: str
    """`opening` or `length`."""
    difference: Figure
    """How far apart arm and baseline are."""
    p_value: float
    """Chance of a difference as large, were both of one distribution."""
    control_p_value: float | None = None
    """The same test between two halves of the baseline's repeats; None where it has but one."""
    detectable: Figure
    """The smallest difference that would have been found in four runs of five."""


class Losslessness(ApiModel):
    """One arm × workload × load."""

    verdict: LosslessVerdict
    """What can be said."""
    message: str
    """The same for a person, with its numbers."""
    temperature: float
    """At 0 answers are compared word for word; above, their distributions are."""
    compared_by: ComparedBy
    """What more than a digest was kept."""
    divergence: Figure | None = None
    """Share of answers that differ from the baseline's. Greedy alone."""
    control: Figure | None = None
    """Share of the baseline's answers that differ from its own of other repeats. Greedy alone."""
    excess: Figure | None = None
    """divergence - control, with its interval. Greedy alone."""
    detectable: Figure | None = None
    """The smallest excess that would have been found in four runs of five. Greedy alone."""
    first_difference: FirstDifference | None = None
    """Where answers begin to differ, where texts or token ids were kept. Greedy alone."""
    tests: list[DistributionTest] = []
    """Above temperature 0 alone."""
