"""A schedule of draft lengths by batch size: proposed from measurements, to be verified by a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from specbench_api.model import ApiModel
from specbench_api.outcome.step_cost import StepCostBasis


class TokensEvidence(StrEnum):
    """How a number was obtained, the best first."""

    MEASURED = "measured"
    """An arm with this draft length was run."""
    LOWER_BOUND = "lower bound"
    """Truncated from a longer draft; what shorter drafts would gain at later steps is not counted."""


class EmittedTokens(ApiModel):
    """Tokens per step at one draft length."""

    draft_tokens: int
    """The draft length; 0 for none."""
    tokens: float
    """Tokens per step."""
    relative_error: float
    """Half-width of the 95 % interval over the value."""
    how: TokensEvidence
    """Measured, or a lower bound."""
    source: str
    """Name of the arm it comes from."""


class DraftLengthOption(ApiModel):
    """One draft length at one batch size."""

    draft_tokens: int
    """The draft length; 0 for none."""
    step_ms: float
    """Step time in ms."""
    tokens_per_s: float
    """Token goodput of one request: tokens per step ÷ step time."""
    tied: bool
    """Whether it is indistinguishable from the best."""
    how: TokensEvidence
    """How its tokens per step were obtained."""


class DraftScheduleRange(ApiModel):
    """Batch sizes for which one draft length is best."""

    first: int
    """Smallest batch size."""
    last: int
    """Largest batch size."""
    draft_tokens: int
    """The draft length; 0 for none."""
    tied: list[int]
    """Lengths that are indistinguishable from it at some batch size of the range."""
    gain: float | None = None
    """Its goodput over that without drafts, at the middle of the range; None if that was not measured there."""
    unknown: list[int] = []
    """Lengths that were compared elsewhere in the schedule and whose step time is unknown at some batch size of this
    range, so that they may be better here."""
    carried: bool = False
    """Whether the range begins below the smallest measured batch size, where its length is carried over."""


class DraftSchedule(ApiModel):
    """The best draft length by batch size, of one drafter for one workload."""

    arms: list[str]
    """Arms it was computed from."""
    workload: str
    """Name of the workload."""
    basis: StepCostBasis
    """How step times between the cells were obtained."""
    batches: tuple[int, int]
    """Smallest and largest measured batch size."""
    emitted: list[EmittedTokens]
    """Tokens per step by draft length."""
    ranges: list[DraftScheduleRange]
    """Ranges in order, without gaps, from batch size 1 on."""
    table: dict[int, list[DraftLengthOption]]
    """Every draft length at the measured batch sizes, the best first."""
    notes: list[str] = []
    """Limits of this schedule."""


class EngineDraftSchedule(ApiModel):
    """The schedule as configuration of one engine."""

    engine: str
    """Kind of the engine."""
    config: Any
    """The configuration: a value of the engine's speculative configuration, or the content of its file."""
    arguments: list[str]
    """The command-line arguments that pass it to the engine."""
    problems: list[str] = []
    """Why this engine would reject or not follow the schedule; empty for none."""
    run: dict[str, Any] | None = None
    """A SpecBenchRun that verifies it together with the measured lengths; None for another engine than the run's."""
