"""What `specbench replay` answers: what an n-gram drafter would have had accepted in texts that are there already."""

from __future__ import annotations

from typing import Literal

from specbench_api.model import ApiModel
from specbench_api.outcome.cost_model import CostModel
from specbench_api.outcome.figure import Figure
from specbench_api.outcome.recommendation import RuleReading


class ReplayFigures(ApiModel):
    """One setting over all answers, or over one category's."""

    acceptance_length: Figure
    """Emitted tokens a step, pooled over steps."""
    acceptance_length_mean: Figure
    """The same as the mean over requests."""
    drafted_steps: Figure
    """Share of steps that found anything to draft."""
    acceptance_rate: Figure
    """Accepted / drafted tokens."""
    speedups: dict[str, Figure] = {}
    """By batch size; empty without a step cost."""


class ReplaySetting(ApiModel):
    """One n-gram drafter, as engines name its knobs."""

    drafts: int
    """Draft tokens a step, at most (k)."""
    lookup_min: int
    """Shortest suffix that is looked up."""
    lookup_max: int
    """Longest suffix that is looked up."""
    overall: ReplayFigures
    """Over all answers."""
    categories: dict[str, ReplayFigures] = {}
    """By category, where there are several."""


class OverlapFigures(ApiModel):
    """How much of the outputs stands in their prompts, as means over requests."""

    copied_share: Figure
    """Share of the output's 4-grams of tokens that occur in the prompt."""
    bleu4: Figure
    """BLEU-4 of the output against the prompt."""


class OverlapBin(ApiModel):
    """Answers of which about as much stands in their prompts."""

    by: Literal["copied_share", "bleu4"]
    """Which overlap: the share of the output's 4-grams in the prompt, or BLEU-4 of the output against it."""
    low: float
    """Least overlap."""
    high: float
    """Below which it is; the last bin holds 1 too."""
    answers: int
    """Answers in it."""
    acceptance_lengths: dict[str, Figure] = {}
    """Of n-gram, replayed over these answers: knobs → tokens a step."""
    speedups: dict[str, Figure] = {}
    """Of a run: arm → its measured speed-up over the paired baseline, over the prompts whose answers (mean over
    repeats) are in it; empty for a file."""


class ReplayReport(ApiModel):
    """What `specbench replay` prints as JSON."""

    schema_version: Literal["specbench.io/replay/v1"] = "specbench.io/replay/v1"
    """Version of this document."""
    source: str
    """What was read."""
    simulated: bool = False
    """True for a run that no engine answered."""
    token_ids: str
    """Where the token ids are from: the file itself, or a tokenizer."""
    answers: int
    """Answers that were replayed."""
    prompt_tokens: int
    """Tokens of their prompts."""
    output_tokens: int
    """Their output tokens."""
    left_out: dict[str, int] = {}
    """Rows that were not, by reason."""
    overlap: OverlapFigures
    """Over all answers."""
    overlap_by_category: dict[str, OverlapFigures] = {}
    """By category, where there are several."""
    by_overlap: list[OverlapBin] = []
    """What drafting is worth by how much of an answer stands in its prompt; empty: written before this was told."""
    rule: RuleReading | None = None
    """Of a run: whether n-gram beats EAGLE where BLEU-4 is above 0.6; None for a file."""
    step_cost: CostModel | None = None
    """What a step takes; without it there are no speed-ups."""
    settings: list[ReplaySetting]
    """Every setting that was asked for."""
    limits: list[str]
    """What this does not say."""
