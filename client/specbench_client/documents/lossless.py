"""Whether an arm's answers are those of the baseline and as good, as far as a run can show."""

from __future__ import annotations

from enum import StrEnum

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure


class LosslessVerdict(StrEnum):
    """Conclusion about one arm."""

    LOSSLESS = "NoDifferenceFound"
    """No test distinguishes its answers from the baseline's; `detectable` is the smallest difference that would."""
    DIVERGES = "DivergesMoreThanBaseline"
    """Its answers differ from the baseline's more than the baseline's own repeats differ from each other."""
    NO_CONTROL = "NoControl"
    """The baseline was measured only once, or its repeats are not usable as a control."""
    TOO_FEW = "InsufficientSamples"
    """Too few prompts or answers for an interval or a test."""
    NOT_INDEPENDENT = "SamplesNotIndependent"
    """Sampled answers repeat word for word, as from one seed, so they are not independent samples."""


class ComparedBy(StrEnum):
    """The data by which answers, and the position of a first difference, were compared."""

    TOKEN_IDS = "TokenIDs"  # noqa: S105  no secret
    TEXT = "Text"
    DIGEST = "Digest"
    """Only digests were stored: whether answers differ is known, but not where."""


class FirstDifference(ApiModel):
    """Position of the first difference, over answers that differ."""

    unit: str
    """`tokens` or `characters`, from the start of the answer."""
    arm: Figure | None = None
    """Median over differing pairs of an arm's and a baseline's answer."""
    control: Figure | None = None
    """The same for pairs of two of the baseline's repeats."""


class DistributionTest(ApiModel):
    """One permutation test of sampled answers: labels are exchanged within each prompt."""

    name: str
    """`opening` or `length`."""
    difference: Figure
    """Distance between the arm's and the baseline's distributions."""
    p_value: float
    """Probability of a difference at least this large if both have the same distribution."""
    control_p_value: float | None = None
    """The same test between two halves of the baseline's repeats; None if it has only one."""
    detectable: Figure
    """Smallest difference that four runs out of five would detect (power 0.8)."""


class Losslessness(ApiModel):
    """Conclusion for one arm, workload and load."""

    verdict: LosslessVerdict
    """The conclusion."""
    message: str
    """The conclusion in a sentence, with its numbers."""
    temperature: float
    """Sampling temperature. At 0 answers are compared word for word; above 0 their distributions are."""
    compared_by: ComparedBy
    """The data by which answers were compared."""
    divergence: Figure | None = None
    """Greedy only: fraction of answers that differ from the baseline's."""
    control: Figure | None = None
    """Greedy only: fraction of the baseline's answers that differ between its repeats."""
    excess: Figure | None = None
    """Greedy only: divergence - control, with its confidence interval."""
    detectable: Figure | None = None
    """Greedy only: smallest excess that four runs out of five would detect (power 0.8)."""
    first_difference: FirstDifference | None = None
    """Greedy only: where answers start to differ, if texts or token ids were stored."""
    tests: list[DistributionTest] = []
    """Above temperature 0 only: the permutation tests."""


class JudgedAnswers(ApiModel):
    """Flawed answers of one arm, workload and load, paired with the baseline's to the same requests."""

    pairs: int
    """Pairs of judged answers."""
    flawed: int
    """Pairs in which the arm's answer is flawed."""
    baseline_flawed: int
    """Pairs in which the baseline's answer is flawed."""
    only_arm: int
    """Pairs in which only the arm's answer is flawed."""
    only_baseline: int
    """Pairs in which only the baseline's answer is flawed."""
    flaws: dict[str, int] = {}
    """Flaw → number of the arm's answers with it."""
    baseline_flaws: dict[str, int] = {}
    """Flaw → number of the baseline's answers with it."""
    prompts: int
    """Prompts of these pairs. Answers to one prompt are not independent, so prompts are the unit of the test."""
    worse_prompts: int
    """Prompts of which the arm has more flawed answers than the baseline."""
    better_prompts: int
    """Prompts of which the arm has fewer flawed answers than the baseline."""
    p_value: float
    """Two-sided exact sign test over these prompts: McNemar's test if each prompt has one pair."""
    control: float | None = None
    """Share of pairs of the baseline's own answers in two repeats of which exactly one is flawed. None: one repeat."""
    not_judged: int = 0
    """Pairs with an answer that is `NotJudged`. They are in none of the other numbers."""
