"""A stored run along one axis: where speed-ups cross 1, the curves, and the best draft lengths."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from specbench_api.api_model import ApiModel
from specbench_client.documents.figure import Figure, Verdict


class CrossoverKind(StrEnum):
    """What is known about the position at which a speed-up is 1."""

    REACHED = "Reached"
    """It is between two measured positions."""
    NOT_REACHED = "NotReached"
    """The speed-up is above 1 at every measured position (for an axis other than the load: on one side)."""
    BELOW_SMALLEST = "BelowSmallest"
    """The speed-up is at most 1 from the smallest measured position on."""
    INDISTINGUISHABLE = "Indistinguishable"
    """It may be anywhere between the smallest and the largest measured position, or beyond: the noise is too large."""
    NOT_MONOTONE = "NotMonotone"
    """The curve crosses 1 several times, or upwards, by more than noise explains: there is no single position."""
    INSUFFICIENT_DATA = "InsufficientData"
    """Fewer than two positions have a usable speed-up."""


class Crossing(ApiModel):
    """One position at which the linearly interpolated measurements cross 1."""

    at: float
    """The position, in the axis's unit."""
    falls: bool
    """Whether the speed-up falls through 1 there; otherwise it rises."""


class CrossoverInterval(ApiModel):
    """Confidence interval of the position; its ends may be outside the measured range."""

    low: float | None = None
    """Lower end, in the axis's unit; None: below the smallest measured position. If the whole interval is beyond the
    largest measured position, that position."""
    high: float | None = None
    """Upper end, in the axis's unit; None: beyond the largest measured position. If the whole interval is below the
    smallest measured position, that position."""
    level: float = 0.95
    """Confidence level."""
    method: str
    """How the interval was computed."""


class Crossover(ApiModel):
    """The position along one axis at which the speed-up over the paired baseline is 1."""

    axis: str
    """The axis: concurrency, rate, temperature, draft-tokens, input-tokens or output-tokens."""
    kind: CrossoverKind
    """What is known about the position."""
    at: Figure
    """The position, in the axis's unit; missing unless it was reached. It has an interval only if both ends are in the
    measured range; see `interval`."""
    interval: CrossoverInterval | None = None
    """Confidence interval of the position; None if nothing is known."""
    places: list[float] = []
    """The measured positions that were used, in the axis's unit, ascending."""
    crossings: list[Crossing] = []
    """Every position at which the measurements cross 1, without any assumption of monotonicity."""
    left_out: list[str] = []
    """Positions that were not used, each with the reason."""
    lost: Figure | None = None
    """Fraction of the speed-up lost from the smallest to the largest measured position: 1 - last / first; negative if
    it grows. None if fewer than two positions are usable."""
    message: str
    """The result in one sentence."""


class ArmCrossover(ApiModel):
    """Up to which load an arm is faster than the baseline, for one workload."""

    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    crossover: Crossover
    """The crossover over concurrency or rate."""


class CurvePoint(ApiModel):
    """The measurement at one place of a curve."""

    place: float
    """The place in the axis's unit; for measured lengths, the geometric mean over the paired requests."""
    label: str
    """The place as text: `0.7`, `8`, `about 1,024`."""
    arm: str
    """Name of the arm."""
    workload: str
    """Name of the workload."""
    pairs: int
    """Number of paired requests."""
    speedup: Figure
    """Output tokens per second of stream time over the paired baseline's."""
    conclusion: Verdict
    """Conclusion from the speed-up, after Holm's correction over every place of every curve."""
    acceptance_length: Figure
    """Acceptance length, emitted and pooled, over the same pairs, tokens/step."""


class SpeedupCurve(ApiModel):
    """Measurements that are alike in everything but the axis."""

    title: str
    """Short title."""
    points: list[CurvePoint]
    """Points, the smallest place first."""
    crossover: Crossover
    """Where the speed-up is 1."""


class Curves(ApiModel):
    """All curves over one axis."""

    schema_version: Literal["specbench.io/curves/v2"] = "specbench.io/curves/v2"
    """Version of this document."""
    axis: str
    """The axis: concurrency, temperature, draft-tokens, input-tokens or output-tokens."""
    unit: str
    """Unit of the places; empty for none."""
    simulated: bool
    """Whether the engine was simulated, so that it is not a measurement."""
    curves: list[SpeedupCurve] = []
    """Curves, the one with the most points first."""
    comparisons: int = 0
    """Number of speed-ups over all curves that Holm's correction covers."""
    left_out: list[str] = []
    """Cells that are in no curve, each with the reason."""
    limit: str
    """Limit of curves over this axis."""


# The report of `specbench analyze draft-lengths`: the best measured draft length at each load.


class BestDraftLength(ApiModel):
    """The best draft length at one load."""

    load: str
    """Label of the load."""
    measured: list[int]
    """The draft lengths that were compared; 0 is the baseline."""
    draft_tokens: int
    """The best of them."""
    speedup: Figure | None
    """Its speed-up over the baseline; None for the baseline."""
    next_draft_tokens: int
    """The next best."""
    ratio: Figure
    """Output tokens per second of stream time of the best over the next best, over pairs of the same requests."""
    conclusion: Verdict
    """Conclusion from that ratio, after Holm's correction over every load of every table."""


class DraftSchedule(ApiModel):
    """The best lengths as configuration of the run's engine."""

    engine: str
    """Kind of the engine."""
    config: Any
    """The configuration: a value of the engine's speculative configuration, or the content of its file."""
    arguments: list[str]
    """The command-line arguments that pass it to the engine."""
    problems: list[str] = []
    """Why this engine would reject or not follow the schedule; empty for none."""
    drafter: dict[str, Any]
    """The schedule as an arm: an entry of `spec.drafters`."""
    run_as: str | None = None
    """Name of the arm that ran this schedule; None: not run as a schedule."""


class DraftLengthTable(ApiModel):
    """The best draft lengths of one drafter on one workload."""

    arms: list[str]
    """The compared arms."""
    workload: str
    """Name of the workload."""
    loads: list[BestDraftLength]
    """By load, the smallest first."""
    schedule: DraftSchedule | None
    """The schedule; None if there is none."""
    why_no_schedule: str = ""
    """Why there is none."""


class DraftLengths(ApiModel):
    """All tables of a run."""

    schema_version: Literal["specbench.io/draft-lengths/v2"] = "specbench.io/draft-lengths/v2"
    """Version of this document."""
    simulated: bool
    """Whether the engine was simulated, so that it is not a measurement."""
    tables: list[DraftLengthTable]
    """By drafter and workload."""
    left_out: list[str] = []
    """Cells that were not compared, each with the reason."""
