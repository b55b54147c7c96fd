"""A schedule of draft lengths by batch size: proposed from measurements, to be verified by a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from specbench_api.model import ApiModel
from specbench_api.outcome.stepcost import Basis


class How(StrEnum):
    """How a number was come by, from the best to the least."""

    MEASURED = "measured"
    """An arm with this draft length was run."""
    LOWER_BOUND = "lower bound"
    """Truncated from a longer draft: what a shorter one would have reached further on is not counted."""


class Emitted(ApiModel):
    """Tokens a step that a draft length gives."""

    draft_tokens: int
    """The draft length; 0: none."""
    tokens: float
    """Tokens a step."""
    relative_error: float
    """Half of its 95 % interval, over itself."""
    how: How
    """Measured, or a bound."""
    source: str
    """The arm that it was read from."""


class Option(ApiModel):
    """One draft length at one batch size."""

    draft_tokens: int
    """The draft length; 0: none."""
    step_ms: float
    """Time of a step."""
    tokens_per_s: float
    """Token goodput of one request: tokens a step ÷ time of a step."""
    tied: bool
    """Whether it cannot be told from the best."""
    how: How
    """How its tokens a step were come by."""


class ScheduleRange(ApiModel):
    """Batch sizes for which one draft length is best."""

    first: int
    """Smallest batch."""
    last: int
    """Largest batch."""
    draft_tokens: int
    """The draft length; 0: none."""
    tied: list[int]
    """Lengths that cannot be told from it at some batch of the range."""
    gain: float | None = None
    """Its goodput over that without drafts, at the middle of the range; None where that was not measured there."""
    unknown: list[int] = []
    """Lengths that were compared elsewhere in the schedule, and whose step time is not known at some batch of this
    range: they may be better here."""
    carried: bool = False
    """Begins below the smallest batch that was measured: there it is carried over, not measured."""


class Schedule(ApiModel):
    """The best draft length by batch size, of one drafter for one workload."""

    arms: list[str]
    """Arms that it was made from."""
    workload: str
    """Name of the workload."""
    basis: Basis
    """What step times between the cells were taken from."""
    batches: tuple[int, int]
    """Smallest and largest batch that was measured."""
    emitted: list[Emitted]
    """Tokens a step by draft length."""
    ranges: list[ScheduleRange]
    """In order, without gaps, from 1 on."""
    table: dict[int, list[Option]]
    """At the batches that were measured, every draft length, the best first."""
    notes: list[str] = []
    """What must be known to read it."""


class EngineSchedule(ApiModel):
    """The schedule as one engine takes it."""

    engine: str
    """Kind of the engine."""
    config: Any
    """What the engine reads: a value of its speculative configuration, or its file."""
    arguments: list[str]
    """The arguments that bring it in."""
    problems: list[str] = []
    """Why this engine would not do it, or would not do it as it stands; empty where nothing speaks against it."""
    run: dict[str, Any] | None = None
    """A SpecBenchRun that verifies it beside the measured lengths; None where the engine is another one."""
