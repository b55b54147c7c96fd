"""The report of `specbench analyze ngram`: n-gram drafting replayed over recorded outputs."""

from __future__ import annotations

from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import RuleReading
from specbench_client.documents.cost_model import CostModel


class NgramFigures(ApiModel):
    """Figures of one setting over all answers, or over those of one category."""

    acceptance_length: Figure
    """Emitted tokens per step, pooled over steps."""
    acceptance_length_mean: Figure
    """Emitted tokens per step, mean over requests."""
    drafted_steps: Figure
    """Share of steps with a match to draft from."""
    acceptance_rate: Figure
    """Accepted / drafted tokens."""
    speedups: dict[str, Figure] = {}
    """Speed-ups by batch size; empty without a step cost."""


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


class OverlapFigures(ApiModel):
    """Overlap of the outputs with their prompts, as means over requests."""

    copied_share: Figure
    """Share of the output's 4-grams of tokens that occur in the prompt."""
    bleu4: Figure
    """BLEU-4 of the output against the prompt."""


class OverlapBin(ApiModel):
    """Answers with similar overlap with their prompts."""

    by: Literal["copied_share", "bleu4"]
    """The measure: the share of the output's 4-grams in the prompt, or BLEU-4 of the output against the prompt."""
    low: float
    """Lower bound, included."""
    high: float
    """Upper bound, excluded except in the last bin."""
    answers: int
    """Number of answers."""
    acceptance_lengths: dict[str, Figure] = {}
    """Tokens per step of n-gram drafting replayed over these answers, by setting."""
    speedups: dict[str, Figure] = {}
    """Measured speed-up of each arm of a run over the prompts whose answers (mean over repeats) are in this bin; empty
    for a file."""


class NgramReport(ApiModel):
    """What `specbench analyze ngram` prints as JSON."""

    schema_version: Literal["specbench.io/replay/v1"] = "specbench.io/replay/v1"
    """Version of this document."""
    source: str
    """File or run that was read."""
    simulated: bool = False
    """Whether the answers come from the simulator."""
    token_ids: str
    """Origin of the token ids: the file itself, or a tokenizer."""
    answers: int
    """Replayed answers."""
    prompt_tokens: int
    """Tokens of their prompts."""
    output_tokens: int
    """Their output tokens."""
    left_out: dict[str, int] = {}
    """Rows that were left out, by reason."""
    overlap: OverlapFigures
    """Overlap over all answers."""
    overlap_by_category: dict[str, OverlapFigures] = {}
    """Overlap by category, if there are several."""
    by_overlap: list[OverlapBin] = []
    """Gain of drafting by the overlap of an answer with its prompt; empty if no answer has an overlap."""
    rule: RuleReading | None = None
    """Whether n-gram beats EAGLE in this run where BLEU-4 is above 0.6; None for a file."""
    step_cost: CostModel | None = None
    """The step cost; without it there are no speed-ups."""
    settings: list[NgramSetting]
    """Every replayed setting."""
    limits: list[str]
    """Limits of this report."""
